"""Large bodies in tests: made from a seed, and put together again from stored events."""

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from fogline.events.event import Event
from fogline.events.large_body import BodyChunk, BodyEnd, BodyRef, read_dataref


def make_body(seed: int, size: int) -> bytes:
    """Return bytes that do not compress, and are the same for the same seed."""
    return random.Random(seed).randbytes(size)


@dataclass
class JoinedBodies:
    """What stored events say of large bodies.

    `whole`: each event that refers to a body, and the body; an event with a missing chunk, or another digest, is in `broken`.
    `ended`: ids of bodies that were ended. `open`: ids of bodies with chunks, and neither event nor end.
    """

    whole: list[tuple[Event, bytes]] = field(default_factory=list)
    broken: list[Event] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)


def join_bodies(events: Iterable[Event]) -> JoinedBodies:
    """Put large bodies together from events in any order."""
    chunks: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
    refs: list[tuple[Event, BodyRef]] = []
    found = JoinedBodies()
    for event in events:
        match read_dataref(event.dataref) if event.dataref else None:
            case BodyChunk(body, number):
                chunks[body][number] = event.data
            case BodyEnd(body):
                found.ended.add(body)
            case BodyRef() as ref:
                refs.append((event, ref))
    for event, ref in refs:
        data = b"".join(chunks[ref.id].get(number, b"") for number in range(ref.chunks))
        if len(data) == ref.size and hashlib.sha256(data).hexdigest() == ref.sha256:
            found.whole.append((event, data))
        else:
            found.broken.append(event)
    found.open = chunks.keys() - {ref.id for _, ref in refs} - found.ended
    return found
