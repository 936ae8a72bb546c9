"""The ways in which the router of a `ViaWorld` fails."""

import asyncio
from functools import partial

from fogline_lab.waiting import until


class RouterFaults:
    """The ways in which a router fails, each as a coroutine that ends when the router serves again."""

    def __init__(self, router, world):
        self.router, self.world = router, world

    def all(self):
        return [
            self.killed_with_outcomes_on_their_way,
            self.stopped_and_started,
            self.frozen,
            self.gateways_cut_off,
            self.bridges_cut_off,
            *(partial(self.detached, kind) for kind in ("ingest", "hello", "control")),
            *(partial(self.parted, kind) for kind in ("ingest", "hello", "control")),
            self.congested,
            self.world.restart_a_bridge,
            self.killed_again_and_again,
        ]

    def addresses(self, kind):
        return [each for each in self.router.routing.links.at if each.startswith(f"{kind}/")]

    async def serves(self):
        await until(lambda: all(each.uplink.connected for each in self.world.gateways.values()), "not connected", 120.0)

    async def killed_with_outcomes_on_their_way(self):
        self.router.routing.keep_outcomes = True
        before = self.router.routing.forwarded
        await until(lambda: self.router.routing.forwarded > before, "nothing is forwarded")
        self.router.kill()
        await self.router.start()
        await self.serves()

    async def killed_again_and_again(self):
        for _ in range(3):
            self.router.kill()
            await self.router.start()
            await self.serves()

    async def stopped_and_started(self):
        await self.router.stop()
        await self.router.start()
        await self.serves()

    async def frozen(self):
        self.router.freeze()
        await until(lambda: not any(each.uplink.connected for each in self.world.gateways.values()), "not noticed", 120.0)
        self.router.thaw()
        await self.serves()

    async def gateways_cut_off(self):
        for name in self.world.gateways:
            self.router.cut(name)
        await self.serves()

    async def bridges_cut_off(self):
        for name in self.world.bridges:
            self.router.cut(name)
        await self.serves()

    async def detached(self, kind):
        for address in self.addresses(kind):
            self.router.detach(address)
        await self.serves()

    async def parted(self, kind):
        for address in self.addresses(kind):
            self.router.part(address)
        before = self.router.routing.forwarded
        await asyncio.sleep(0.5)  # what is sent meanwhile finds no receiver
        for address in self.addresses(kind):
            self.router.join(address)
        await until(lambda: self.router.routing.forwarded > before, "nothing is forwarded")
        await self.serves()

    async def congested(self):
        self.router.routing.release_next = self.router.routing.modify_next = 20
        await until(lambda: not self.router.routing.release_next, "fewer than 20 messages come", 120.0)
        await self.serves()
