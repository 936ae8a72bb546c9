"""Twenty advertisers whose payloads change each second, and the share of the changes that comes."""

import asyncio
from dataclasses import dataclass, field

from fogline_lab.ble.air import Broadcaster, bthome

ADVERTISERS = 20
CHANGE_S = 1.0
HOLE_S = 6.0
SETTINGS = '[ble]\nprofiles = ["bthome"]\n'
ENOUGH = 0.95


@dataclass
class Course:
    """Values on the air, by device, and how long each was there outside the holes of BlueZ."""

    open_s: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def due(self) -> set[tuple[str, int]]:
        return {said for said, seconds in self.open_s.items() if seconds >= CHANGE_S / 2}


async def deliver(world, seconds: int, holes: list[int]) -> Course:
    """Let all of them talk for so long; a hole begins at each of `holes`."""
    advertisers = [Broadcaster(f"C0:00:00:00:01:{n:02X}", bthome(0, 0)) for n in range(ADVERTISERS)]
    for each in advertisers:
        await each.start(world.air)
    for each in advertisers:
        await world.until_event(each.address)
    course, loop = Course(), asyncio.get_running_loop()
    began_s = loop.time()
    for second in range(1, seconds + 1):
        world.bluez.adapter.deaf = any(hole <= second < hole + HOLE_S for hole in holes)
        for each in advertisers:
            each.say(bthome(second, second))
            course.open_s[each.address, second] = 0.0 if world.bluez.adapter.deaf else CHANGE_S
        await asyncio.sleep(began_s + second * CHANGE_S - loop.time())
    world.bluez.adapter.deaf = False
    for each in advertisers:
        each.say(bthome(0, 32767))
    for each in advertisers:
        await world.bridge.until(lambda each=each: (each.address, 32767) in came(world), "the last word does not come")
    return course


def came(world) -> set[tuple[str, int]]:
    return {(event.device, int.from_bytes(event.data[-2:], "little")) for _, event in world.bridge.came}


def judge(world, course: Course) -> float:
    """The share of what was due that came; nothing came twice."""
    events = [(event.device, event.data) for _, event in world.bridge.came if event.subject == "bthome"]
    assert len(events) == len(set(events)), "something came twice"
    share = len(course.due & came(world)) / len(course.due)
    print(f"delivered {share:.1%} of {len(course.due)} changes that were on the air")
    return share
