"""Deletes large bodies after their time: those of events, those that their gateways have ended, and those that stay unfinished.

A body is live while its event is young, and while its event may still come: a gateway that is offline sends the rest of a body
weeks later. So only the gateway's word, or `tables.body_days` without a further chunk, ends a body without an event.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

import msgspec

from fogline.events.large_body import day_of
from fogline_cloud.flows.bodies.body_folder import ENDED, EVENT
from fogline_cloud.store.object_folder import ObjectFolder, StoredObject
from fogline_cloud.table_settings import TablesSettings


class BodyObjects(msgspec.Struct, frozen=True):
    """The objects of one body. `written`: when the newest one was written. `has_event`: its event has come."""

    paths: tuple[str, ...]
    written: datetime
    has_event: bool


def delete_expired(bodies: ObjectFolder, settings: TablesSettings, now: datetime, *, dry_run: bool) -> int:
    """Delete the bodies to which nothing was written for `body_days`. Returns their number.

    The last object of a body with an event is usually that of the event. Only days of that age are read.
    """
    limit = now - timedelta(days=settings.body_days)
    count = 0
    for folder in bodies.folders():
        if (day := _day(folder)) is None or day > limit.astimezone(UTC).date():
            continue
        for body in bodies_of(bodies.objects(f"{folder}/")):
            if body.written < limit:
                count += 1
                _delete(bodies, body.paths, dry_run=dry_run)
    return count


def delete_ended(bodies: ObjectFolder, settings: TablesSettings, now: datetime, *, dry_run: bool) -> int:
    """Delete the bodies whose gateway said so `ended_body_hours` ago. Returns their number. One with an event stays."""
    limit = now - timedelta(hours=settings.ended_body_hours)
    count = 0
    for mark in list(bodies.objects(f"{ENDED}/")):
        if mark.modified >= limit:
            continue
        _, gateway, name = mark.path.split("/")
        found = list(bodies_of(bodies.objects(f"{day_of(name)}/{gateway}/{name}/")))
        if not any(each.has_event for each in found):
            count += 1
            for each in found:
                _delete(bodies, each.paths, dry_run=dry_run)
        _delete(bodies, (mark.path,), dry_run=dry_run)  # last, so that a kill before it repeats this
    return count


def bodies_of(objects: Iterator[StoredObject]) -> Iterator[BodyObjects]:
    """Yield the bodies of one day. The objects of a body come one after the other, as stores list them."""
    for _, some in groupby(sorted(objects), key=lambda each: each.path.rpartition("/")[0]):
        found = list(some)
        has_event = any(each.path.endswith(f"/{EVENT}") for each in found)
        yield BodyObjects(tuple(each.path for each in found), max(each.modified for each in found), has_event)


def _day(folder: str) -> date | None:
    try:
        return date.fromisoformat(folder)
    except ValueError:
        return None


def _delete(bodies: ObjectFolder, paths: tuple[str, ...], *, dry_run: bool) -> None:
    """Delete the objects of a body, that of the event last: until then the body is known to have one."""
    if not dry_run:
        bodies.delete(sorted(paths, key=lambda each: each.endswith(f"/{EVENT}")))
