"""Lands the events of one shard in Kafka, exactly once.

A `Shard` runs on its own thread and owns one transactional producer. It settles each delivery only after its transaction is
committed and visible to `read_committed` consumers. If a transaction fails in any way, it takes ownership again, which fences
the old producer and reads the high-water marks from Kafka; then it evaluates the failed transaction's deliveries again.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fogline.errors import FoglineError, Misconfigured
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.registry import Registry
from fogline_cloud.commands.routes import Routes
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.settings import BridgeSettings, DeviceSettings
from fogline_cloud.shard.admission import Admission, StreamState
from fogline_cloud.shard.checkpoint import LayoutChanged, ShardOwner
from fogline_cloud.shard.foreign_devices import MaySpeakFor
from fogline_cloud.shard.group_commit import GroupCommit
from fogline_cloud.shard.inbox import MarksQuery, ShardInbox, Stop
from fogline_cloud.shard.owned_shard import OwnedShard, ShardCounters, ShardWork
from fogline_cloud.shard.pace import Pace
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_cloud.shard.sightings import Sightings

RETAKE_S = 2.0
"""Pause before the bridge takes a shard again after an error."""

_log = logging.getLogger("fogline.shard")


@dataclass(frozen=True, slots=True)
class ShardListeners:
    """What a shard reports, on its own thread.

    `on_change`: `ready` or `why_not` has changed. `on_commands`: the command records of a shard that is taken, and those of
    replies after their commit. `on_gateways`: when the shard is taken, the time of each gateway's last commit in milliseconds
    since 1970. `on_layout`: the number of shards was changed, so that the shard has ended for good.
    """

    on_change: Callable[["Shard"], None]
    on_commands: Callable[[Sequence[CommandRecord]], None] = lambda _: None
    on_gateways: Callable[[dict[str, int]], None] = lambda _: None
    on_layout: Callable[[str], None] = lambda _: None


class Shard:
    """Owned by this bridge from `start` until `stop`. `submit` may be called from any thread.

    `issued` returns True if a bridge of this tenant made a command id; `may_speak_for`, if a gateway may send events of a
    device. `make_sightings` returns a new memory of sightings, with the table of devices of all bridges.
    """

    def __init__(
        self,
        number: int,
        make_writer: Callable[[], ShardWriter],
        settings: BridgeSettings,
        listeners: ShardListeners,
        *,
        routes: Routes | None = None,
        issued: Callable[[str], bool] = lambda _: False,
        may_speak_for: MaySpeakFor = lambda _gateway, _device: True,
        make_sightings: Callable[[], Sightings] = lambda: Sightings(DeviceTable(), DeviceSettings()),
    ) -> None:
        self.number = number
        self.ready = False
        self.why_not = "it is being taken"
        self.counters = ShardCounters()
        self._make_writer = make_writer
        self._settings = settings
        self._listeners = listeners
        self._routes = routes or Routes()
        self._issued = issued
        self._may_speak_for = may_speak_for
        self._make_sightings = make_sightings
        self._inbox = ShardInbox()
        self._epochs: dict[str, str] = {}  # outlives a loss of the shard: batches of before may be tried again
        self._stopping = threading.Event()
        self._commits: GroupCommit | None = None
        self._pace = Pace()
        self._thread = threading.Thread(target=self._run, name=f"shard-{number}", daemon=True)

    def start(self) -> None:
        """Begin to take the shard."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Give the shard up. Unsettled deliveries are released; the next owner reads from Kafka which events landed."""
        self._stopping.set()
        self._inbox.put(Stop())

    def join(self, limit_s: float) -> None:
        """Wait until the thread has ended, at most `limit_s` seconds."""
        self._thread.join(limit_s)

    def submit(self, item: ShardWork | MarksQuery) -> None:
        """Queue work for the next transaction, or a query, which is answered between transactions."""
        self._inbox.put(item)

    def _run(self) -> None:
        retry: list[ShardWork] = []
        while not self._stopping.is_set():
            try:
                retry = self._serve(self._commits or self._take(), retry)
            except Exception as error:  # noqa: BLE001 - an unexpected error must not end the shard's thread
                self._lose(error)
        if self._commits is not None:
            with contextlib.suppress(FoglineError):
                self._commits.close()
            retry = [*self._commits.take_unsettled(), *retry]
        for work in (*retry, *self._inbox.take_work()):
            work.give_up()
        self._discard()
        self._set_ready(ready=False, why="this bridge gave it up")

    def _serve(self, commits: GroupCommit, retry: list[ShardWork]) -> list[ShardWork]:
        """Run one transaction, with work of `retry` if there is any. Return the work that has to be tried again."""
        waiting, group = list(retry), list[ShardWork]()
        try:
            commits.run(waiting, group)
        except FoglineError as error:
            self._pace.failed(commits.owned.writer.producer.written_bytes, len(group))
            self._lose(error)  # the outcome of the commit is unknown until the shard is taken again
            return [*commits.take_unsettled(), *group, *waiting]
        except Exception as error:  # noqa: BLE001 - an unexpected error must not end the shard's thread
            for work in (*commits.take_unsettled(), *group, *waiting):
                work.give_up()
            self._lose(error)
            return []
        return waiting

    def _take(self) -> GroupCommit:
        began = time.monotonic()
        writer = self._make_writer()
        writer.producer.limit_s = self._pace.limit_s
        recovered = writer.take(ShardOwner(self._settings.name, self._settings.advertised or self._settings.listen))
        registry = Registry()
        for record in recovered.commands:
            registry.put(record)
        for device, route in recovered.routes.items():
            self._routes.recall(device, route.gateway, route.since_ms)
        sightings = self._make_sightings()
        recovered.devices.share(sightings.table)
        admission = Admission(recovered.known, self._epochs)
        owned = OwnedShard(
            writer,
            admission,
            registry,
            self._routes,
            self.counters,
            self._listeners.on_commands,
            self._issued,
            recovered.changes,
            recovered.devices,
            sightings,
            self._may_speak_for,
        )
        self._commits = GroupCommit(self.number, owned, self._inbox, self._settings, self._pace)
        self._listeners.on_commands(registry.everything())
        self._listeners.on_gateways(_last_commits(recovered.known.values()))
        crash_point(CrashPoint.AFTER_TAKE_BEFORE_READY)
        seconds = time.monotonic() - began
        _log.info("shard %d is taken: %d streams, %.1f s", self.number, len(recovered.known), seconds)
        self._set_ready(ready=True, why="")
        return self._commits

    def _lose(self, error: Exception) -> None:
        why = str(error)
        if not isinstance(error, FoglineError):
            _log.error("shard %d: an unexpected error", self.number, exc_info=error)
            why = f"{type(error).__name__}: {error}"
        self.counters.retaken += 1
        self._discard()
        self._set_ready(ready=False, why=why)
        _log.warning("shard %d has to be taken again: %s", self.number, why)
        if isinstance(error, LayoutChanged):
            self._stopping.set()
            self._listeners.on_layout(why)
        elif isinstance(error, Misconfigured):
            _log.error("shard %d stays closed until this is corrected: %s", self.number, why)
        self._stopping.wait(RETAKE_S * 15 if isinstance(error, Misconfigured) else RETAKE_S)

    def _discard(self) -> None:
        if self._commits is not None:
            self._commits.owned.writer.producer.destroy()
            self._commits = None

    def _set_ready(self, *, ready: bool, why: str) -> None:
        if ready != self.ready or why != self.why_not:
            self.ready, self.why_not = ready, why
            self._listeners.on_change(self)


def _last_commits(streams: Iterable[StreamState]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in streams:
        found[each.gateway] = max(each.changed_ms, found.get(each.gateway, 0))
    return found
