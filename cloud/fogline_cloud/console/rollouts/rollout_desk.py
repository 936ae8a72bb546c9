"""The roll-outs of this process: their files, those that run, and what became of the others. Used on the loop."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fogline.errors import FoglineError, Misconfigured
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.problems import Problem, not_at_present
from fogline_cloud.commands.client.command_group import GroupCommand, GroupFile, GroupRun
from fogline_cloud.console.rollouts.user_sender import UserSender

MAX_RUNNING: Final = 4
"""Roll-outs that run at a time. Further ones get 503."""
MAX_KEPT: Final = 20
"""Roll-outs that are kept in memory, the newest. The files of older ones stay."""

_log = logging.getLogger("fogline.api")


class Rollout:
    """A roll-out. `why`: the reason if it has ended before all devices had a verdict, and nobody has stopped it."""

    def __init__(self, file: GroupFile) -> None:
        self.file = file
        self.why = ""
        self.run: GroupRun | None = None
        self.stopped_by = ""

    @property
    def command(self) -> GroupCommand:
        """What is sent to whom."""
        return self.file.command

    @property
    def state(self) -> str:
        """RUNNING, DONE, STOPPED, FAILED (too many failures), or PAUSED: it can go on."""
        if self.run is not None:
            return "STOPPING" if self.stopped_by else "RUNNING"
        if not self.file.left:
            return "DONE"
        if self.stopped_by:
            return "STOPPED"
        return "FAILED" if self.file.failed >= self.file.most_failures else "PAUSED"


class RolloutDesk:
    """Roll-outs by id. `folder`: that of their files, None if there are none."""

    def __init__(self, context: ApiContext, folder: str | None) -> None:
        self._context = context
        self._folder = None if folder is None else Path(folder)
        self._rollouts = _read_all(self._folder)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """True if the settings name a folder."""
        return self._folder is not None

    def all(self) -> Iterable[Rollout]:
        """Return all roll-outs, the newest first."""
        return sorted(self._rollouts.values(), key=lambda each: -each.command.created_ms)

    def find(self, rollout_id: str) -> Rollout | None:
        """Return a roll-out."""
        return self._rollouts.get(rollout_id)

    def begin(self, command: GroupCommand, authorization: str) -> Rollout:
        """Write the file of a roll-out, and start it. One with the same id is the same one. Raises `Problem`."""
        if (found := self._rollouts.get(command.id)) is not None:
            return found
        self._require_room()
        assert self._folder is not None
        try:
            rollout = Rollout(GroupFile.create(self._folder, command))
        except Misconfigured as error:
            raise Problem(503, str(error)) from None
        self._rollouts[command.id] = rollout
        for each in [each for each in self.all() if each.run is None and each is not rollout][MAX_KEPT - 1 :]:
            del self._rollouts[each.command.id]
        self._start(rollout, authorization)
        return rollout

    def go_on(self, rollout: Rollout, authorization: str, now_ms: int) -> None:
        """Send what is left. Raises `Problem`."""
        if rollout.run is not None or not rollout.file.left:
            return
        self._require_room()
        try:
            rollout.file.require_recent(now_ms)
        except Misconfigured as error:
            raise Problem(409, str(error)) from None
        self._start(rollout, authorization)

    def stop(self, rollout: Rollout, who: str) -> None:
        """Send nothing more, and cancel what no device has seen."""
        if rollout.run is not None:
            rollout.stopped_by = who
            rollout.run.stop()

    def close(self) -> None:
        """End with this process: each roll-out can go on later."""
        for task in self._tasks:
            task.cancel()

    def _start(self, rollout: Rollout, authorization: str) -> None:
        rollout.why = rollout.stopped_by = ""
        rollout.run = GroupRun(rollout.file, UserSender(self._context, authorization))
        task = asyncio.create_task(self._run(rollout, rollout.run), name=f"rollout {rollout.command.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, rollout: Rollout, run: GroupRun) -> None:
        try:
            await run.run()
        except (FoglineError, Problem, OSError) as error:
            rollout.why = str(error)
            _log.warning("roll-out %s stops: %s", rollout.command.id, error)
        finally:
            rollout.run = None

    def _require_room(self) -> None:
        if sum(each.run is not None for each in self._rollouts.values()) >= MAX_RUNNING:
            raise not_at_present(f"{MAX_RUNNING} roll-outs run already")


def _read_all(folder: Path | None) -> dict[str, Rollout]:
    """Read the files of former runs, the newest. One that cannot be read is named in the log."""
    found: dict[str, Rollout] = {}
    if folder is None or not folder.is_dir():
        return found
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: -path.stat().st_mtime)[:MAX_KEPT]:
        try:
            found[path.stem] = Rollout(GroupFile.read(path.parent, path.stem))
        except Misconfigured as error:
            _log.warning("%s", error)
    return found
