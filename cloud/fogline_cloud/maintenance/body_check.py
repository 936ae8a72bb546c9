"""Checks the folder of large bodies, for `fogline doctor`: it changes nothing that stays."""

import os
from datetime import datetime, timedelta
from typing import NamedTuple

from fogline.errors import FoglineError
from fogline_cloud.flows.bodies.body_folder import bodies_in
from fogline_cloud.maintenance.body_expiry import delete_ended, delete_expired
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.object_folder import ObjectFolder

GRACE = timedelta(days=2)
"""Time that maintenance may be late, as one that runs from a daily timer."""


class OverdueBodies(NamedTuple):
    """Numbers of bodies that should have been deleted. `expired`: `body_days` are over. `ended`: their gateway said so."""

    expired: int
    ended: int


def why_not_writable(settings: CloudSettings) -> str:
    """Return why an object cannot be written and deleted among the bodies; "" if it can."""
    bodies, name = _folder(settings), f"doctor-{os.urandom(8).hex()}"
    try:
        bodies.put(name, b"x")
        bodies.delete([name])
    except FoglineError as error:
        return str(error)
    return ""


def overdue(settings: CloudSettings, now: datetime) -> OverdueBodies:
    """Return how many bodies are past their time. Raises `Unreachable` and `Misconfigured`."""
    bodies, due = _folder(settings), now - GRACE
    expired = delete_expired(bodies, settings.tables, due, dry_run=True)
    return OverdueBodies(expired, delete_ended(bodies, settings.tables, due, dry_run=True))


def _folder(settings: CloudSettings) -> ObjectFolder:
    return ObjectFolder(settings, bodies_in(settings.flow.tables, {}).path)
