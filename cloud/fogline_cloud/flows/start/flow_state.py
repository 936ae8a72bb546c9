"""State of a flow, read from its checkpoint, its tables and Kafka without Spark, and the way on after a gap."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.flows.start import positions
from fogline_cloud.flows.start.checkpoint_files import CheckpointFiles, QueryCheckpoint, raw_checkpoint
from fogline_cloud.flows.start.positions import Bounds, Positions, require_topics
from fogline_cloud.flows.start.retention_gap import REMEDY, RetentionGap, find_gaps, write_gap_rows
from fogline_cloud.flows.start.takeover import Takeover
from fogline_cloud.flows.start.topic_ids import read_topic_ids, topic_application
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.table_history import last_commit_s
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

STALLED_S = 300.0
"""Time without a commit after which a flow with unread records counts as stopped."""
_NEW = QueryCheckpoint("", -1, -1)


@dataclass(frozen=True, slots=True)
class FlowState:
    """A query of a flow. `version`: that of its first table when it was read. `problem`: why the query would not start."""

    takeover: Takeover
    owner: Owner
    version: int
    positions: Positions
    bounds: Bounds
    problem: str
    last_commit_s: float | None  # since 1970

    @property
    def table(self) -> str:
        """The first table of the query: `events` or `raw`."""
        return self.takeover.logs[0].table

    @property
    def kept(self) -> Positions:
        """The positions in topics of which the tables are known to have the offsets that they have now."""
        return {each: offset for each, offset in self.positions.items() if self.takeover.knows(each[0])}

    @property
    def gaps(self) -> list[RetentionGap]:
        """The records that Kafka deleted before the flow had read them."""
        return find_gaps(self.positions, self.bounds)

    def problems(self, now_s: float) -> list[str]:
        """Return what stops the flow, each with the remedy. `now_s`: seconds since 1970."""
        found = [self.problem] if self.problem else []
        found += [f"Kafka has deleted records that table {self.table} lacks: {gap.text}. {REMEDY}" for gap in self.gaps]
        waiting = sum(lag for lag in self.lag.values() if lag > 1)  # 1: the marker of the last transaction has no row
        if waiting and not found and (self.last_commit_s or 0) < now_s - STALLED_S:
            found.append(
                f"{waiting:,} offsets wait for table {self.table}, and no commit came for {STALLED_S / 60:.0f} minutes: start "
                "`fogline flow run`, or see in its log why it waits"
            )
        return found

    def require_startable(self) -> None:
        """Raise `Misconfigured` if the flow would not start for another reason than a gap."""
        if self.problem:
            raise Misconfigured(self.problem)

    @property
    def lag(self) -> dict[tuple[str, int], int]:
        """The number of offsets that each partition is ahead of the flow."""
        return {
            partition: max(0, end - self.positions.get(partition, first)) for partition, (first, end) in self.bounds.items()
        }


def read_states(settings: CloudSettings) -> list[FlowState]:
    """Return the state of each query whose tables exist: that of `events`, then that of `raw`.

    Raises `Misconfigured` or `Unreachable`.
    """
    flow, tables = settings.flow, tables_in(settings.flow.tables, storage_of(settings))
    require_topics(settings)
    topic_ids = read_topic_ids(settings)
    bounds = topic_ids.clients.bounds(topic_ids.partitions, committed=True)
    queries = [({"events": tables.events, "readings": tables.readings}, flow.checkpoint)]
    if flow.raw_days:
        queries.append(({"raw": tables.raw}, raw_checkpoint(flow)))
    return [
        _state(settings, [DeltaLog(name, folder) for name, folder in folders.items()], checkpoint, topic_ids.ids, bounds)
        for folders, checkpoint in queries
        if all(DeltaTable.is_deltatable(folder.uri, folder.storage) for folder in folders.values())
    ]


def _state(settings: CloudSettings, logs: list[DeltaLog], checkpoint: str, ids: Mapping[str, str], bounds: Bounds) -> FlowState:
    files = CheckpointFiles(checkpoint, storage_of(settings))
    takeover = Takeover(settings.tenant, settings.flow, checkpoint, logs, files.state() or _NEW, ids)
    if takeover.is_replaced:
        takeover = Takeover(settings.tenant, settings.flow, checkpoint, logs, _NEW, ids)
    log, version = logs[0], logs[0].version()
    owner, problem = takeover.newest, ""
    try:
        takeover.check(exists=True)
    except Misconfigured as error:
        problem = str(error)
    if takeover.checkpoint.planned >= 0 and not problem:
        known = positions.of_checkpoint(files, takeover.checkpoint, takeover.decided, bounds)
    elif log.table == "raw":
        known = positions.of_raw(owner, log, ids, bounds)
    else:
        known = positions.of_events(owner, log, ids, bounds).positions
    return FlowState(takeover, owner, version, known, bounds, problem, last_commit_s(log.snapshot(), owner.name))


def accept_gaps(state: FlowState) -> None:
    """Commit a row of `events` for each gap, and the positions after the gaps in place of the checkpoint's, in one commit.

    Table `raw` gets no rows. A running flow loses the tables. Raises `Misconfigured` if `state` is out of date.
    """
    takeover = state.takeover
    owner, marks = _successor(state, {each: max(offset, state.bounds[each][0]) for each, offset in state.positions.items()})
    batch = MicroBatch(owner.flow, owner.run, 0)
    log = takeover.logs[0]
    files = write_gap_rows(log.folder, state.gaps, takeover.tenant, batch) if log.table == "events" else []
    log.take_over(owner, marks, files, at=state.version)


def set_positions(state: FlowState, found: Positions) -> None:
    """Commit positions in place of the checkpoint's, for topics of another Kafka. Raises as `accept_gaps`."""
    owner, marks = _successor(state, found)
    for topic, topic_id in state.takeover.ids.items():
        for application in (topic_application(owner.tenant, topic), topic_application(owner.tenant, topic, topic_id)):
            marks[application] = owner.epoch
    state.takeover.logs[0].take_over(owner, marks, at=state.version)


def _successor(state: FlowState, found: Positions) -> tuple[Owner, dict[str, int]]:
    """Return the owner that replaces the checkpoint, and Delta transactions with the positions."""
    owner = msgspec.structs.replace(state.owner, run=str(uuid.uuid4()), epoch=state.owner.epoch + 1)
    marks = {state.owner.application_of_successor: owner.epoch} if state.owner.run else {}
    for partition, offset in found.items():
        marks[positions.position_application(owner.tenant, partition, state.takeover.ids.get(partition[0]))] = offset
    return owner, marks
