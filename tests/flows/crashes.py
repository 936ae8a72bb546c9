"""A driver that dies between two steps of a micro-batch."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.driver import commit
from fogline_cloud.flows.tables import delta_log


@contextmanager
def crash_at(step: str) -> Iterator[None]:
    """Kill the driver before `step` of a micro-batch: "derive", or the commit to "events" or "readings"."""
    append = delta_log.DeltaLog.append

    def die(log: object = None, *given: object, **_: object) -> bool:
        if isinstance(log, delta_log.DeltaLog) and not log.folder.path.endswith(step):
            return append(log, *given)
        raise ConnectionResetError(f"killed before {step}")

    with pytest.MonkeyPatch.context() as patch:
        owner, name = (commit, step) if step == "derive" else (delta_log.DeltaLog, "append")
        patch.setattr(owner, name, die)
        with pytest.raises(Misconfigured, match="killed before"):
            yield
