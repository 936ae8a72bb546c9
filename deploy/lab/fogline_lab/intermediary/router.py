"""A stand-in of Qpid Dispatch and skupper-router: it forwards messages between its peers and stores none.

It does what skupper-router's source does with balanced addresses in one router (`transfer.c`, `forwarder.c`, `connections.c` in
`src/router_core`):

- A message goes to that receiver of its address which has the fewest unsettled messages.
- Credit is the router's own: `router_links.LINK_CAPACITY` for each sending link once its address has a receiver, and one more
  for each settled message. Properties of connections and links are not passed on, and neither is a redirect.
- The receiver's outcome reaches the sender as it is. If a receiver ends, its messages are released, or modified with
  `delivery-failed` if it had begun to get them.
- A message without a receiver is released, and the sender's credit is drained.
- Bytes are passed on as they come (cut-through), and messages of several links are interleaved. If a sender ends within a
  message, the receiver sees it aborted.

Policies, dynamic and multicast addresses, link routes and networks of several routers are left out: Fogline uses none of them.

    python -m fogline_lab.intermediary.router [--port 5672]

Prints one JSON line with its address when it listens; Ctrl-C or SIGTERM stops it.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from typing import Self

import proton

from fogline_lab.intermediary.accepting_engine import Door
from fogline_lab.intermediary.amqp_socket import AmqpSocket, serve
from fogline_lab.intermediary.link_events import LinkEvents
from fogline_lab.intermediary.passage import Egress, Ingress
from fogline_lab.intermediary.routing import Routing

FORCED = "amqp:connection:forced"
LOST = "qd:routed-link-lost"


class Router:
    """One router on a port that stays. `start` after `kill` or `stop` begins without any state, as a restarted process does.

    Its faults: `kill`, `stop`, `freeze` and `thaw`, `cut`, `detach`, `part` and `join`, and those of its `routing`.
    """

    def __init__(self, door: Door | None = None) -> None:
        self.port = 0
        self.routing = self._new_routing()
        self._door = door or Door()
        self._server: asyncio.Server | None = None
        self._events = LinkEvents(self.routing)

    def _new_routing(self) -> Routing:
        return Routing()

    @property
    def sockets(self) -> list[AmqpSocket]:
        """The open connections."""
        return list(self._events.sockets)

    async def start(self) -> Self:
        """Listen, on the same port as before."""
        events = self._events
        self._server, self.port = await serve(lambda: AmqpSocket(events, self._door, "router"), self.port)
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await asyncio.sleep(0)  # asyncio tells the sockets of their end in the next turn of the loop

    def kill(self) -> None:
        """End as by SIGKILL: sockets are reset, and all that was on its way is lost."""
        self._stop_listening()
        for each in self.sockets:
            each.reset()
        self.routing = self._new_routing()
        self._events = LinkEvents(self.routing)

    async def stop(self) -> None:
        """End in order: connections are closed with `amqp:connection:forced`. Returns when all are closed."""
        self._stop_listening()
        for each in self.sockets:
            each.close(FORCED, "the router shuts down")
        while self._events.sockets:  # noqa: ASYNC110 - asyncio tells of each end in a turn of the loop
            await asyncio.sleep(0.01)

    def freeze(self) -> None:
        """Stop as by SIGSTOP: connections stay open, and nothing moves."""
        for each in self.sockets:
            each.freeze(frozen=True)

    def thaw(self) -> None:
        """Go on as by SIGCONT."""
        for each in self.sockets:
            each.freeze(frozen=False)

    def cut(self, container: str) -> int:
        """Reset the connections of one peer, by its container name. Returns their number."""
        found = [each for each in self.sockets if each.name == container]
        for each in found:
            each.reset()
        return len(found)

    def detach(self, address: str) -> int:
        """Detach all links of an address, with an error. Returns their number."""
        place = self.routing.links.at[address]
        links: list[Ingress | Egress] = [*place.receivers, *place.senders]
        for each in links:
            each.native.condition = proton.Condition(LOST, "the link was lost")
            each.native.close()
            self.routing.link_ended(each.native)
            each.socket.soon()
        return len(links)

    def part(self, address: str) -> None:
        """Lose the way to an address's receivers. They stay attached, and senders keep the credit that they have."""
        self.routing.links.set_parted(address, parted=True)

    def join(self, address: str) -> None:
        """Find the way to an address's receivers again."""
        self.routing.links.set_parted(address, parted=False)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


async def _serve(port: int) -> None:
    over = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, over.set)
    router = Router()
    router.port = port
    async with router:
        sys.stdout.write(json.dumps({"amqp": f"127.0.0.1:{router.port}", "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        await over.wait()
        await router.stop()


def main() -> int:
    """Run one router until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m fogline_lab.intermediary.router", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    asyncio.run(_serve(parser.parse_args().port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
