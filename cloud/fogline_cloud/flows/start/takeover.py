"""A starting flow takes over its tables, and becomes their owner. It may not if its checkpoint does not fit them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from fogline.errors import Misconfigured
from fogline_cloud.flows.start.checkpoint_files import QueryCheckpoint
from fogline_cloud.flows.start.topic_ids import recreated, topic_application
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.table_history import restored
from fogline_cloud.kafka import topics
from fogline_cloud.settings import FlowSettings

_REMEDY = "delete this folder, and the flow continues after the last rows of the tables"


@dataclass
class Takeover:
    """A query's checkpoint compared with its tables. `decided`: newest batch of this checkpoint in the first table.

    `logs`: the logs of the tables that the query writes. A commit to the first one decides a micro-batch.
    """

    tenant: str
    flow: FlowSettings
    folder: str  # of the checkpoint
    logs: Sequence[DeltaLog]
    checkpoint: QueryCheckpoint
    ids: Mapping[str, str]  # of the raw topics
    accept_new_topics: bool = False  # continue if a topic was created again

    def __post_init__(self) -> None:
        self._decisive = self.logs[0]
        self._batch = MicroBatch(self.flow.name, self.checkpoint.run, 0)
        self.decided = self._decisive.newest(self._batch)

    @property
    def newest(self) -> Owner:
        """The newest owner of the tables, under the uuid of this checkpoint. Epoch 0 for none."""
        held = Owner(self.tenant, self.flow.name, self.checkpoint.run, 0, tuple(topics.of_lanes(self.flow.lanes, self.tenant)))
        return msgspec.structs.replace(held, epoch=max(log.epoch_of(held) for log in self.logs))

    @property
    def is_replaced(self) -> bool:
        """True if `fogline flow resume` has replaced the checkpoint by the positions in the first table."""
        return self._decisive.version_of(self.newest.application_of_successor) is not None

    @property
    def is_overwritten(self) -> bool:
        """True if only the first table lacks the newest batch of the checkpoint: another program has overwritten its commit.

        The first table gets each batch first, so an older copy of it alone is the only other way to this.
        """
        done = self.checkpoint.done
        if done < 0 or self.decided != done - 1 or any(log.is_restored(self.newest.name) for log in self.logs):
            return False
        return any(log.newest(self._batch) == done for log in self.logs[1:])

    def knows(self, topic: str) -> bool:
        """Return True if the tables know the topic by the id that it has now."""
        if topic not in self.ids:
            return False
        whole, now = topic_application(self.tenant, topic), topic_application(self.tenant, topic, self.ids[topic])
        version = self._decisive.version_of(whole)
        return version is not None and version == self._decisive.version_of(now)

    def check(self, *, exists: bool, epoch: int | None = None) -> Owner:
        """Return the newest owner of the tables. Raises `Misconfigured` if the checkpoint is another owner's, or was set back.

        `exists`: the tables are not new. `epoch`: the epoch under which this process owns the tables already.
        """
        newest = self.newest
        if epoch is not None and newest.epoch > epoch:
            raise newest.superseded(self._decisive.folder.path)
        self._check(newest, exists=exists)
        self._recreated_topics()
        return newest

    def make(self, *, exists: bool, epoch: int | None) -> Owner:
        """Become the newest owner of the tables. Arguments and errors are those of `check`."""
        newest = self.check(exists=exists, epoch=epoch)
        if epoch is not None:
            return msgspec.structs.replace(newest, epoch=epoch)
        owner = msgspec.structs.replace(newest, epoch=newest.epoch + 1)
        for log in self.logs:
            log.take_over(owner, self._topic_marks(owner) if log is self._decisive else {})
        return owner

    def _recreated_topics(self) -> list[str]:
        recreated_topics = [topic for topic, each in self.ids.items() if self._is_recreated(topic, each)]
        if recreated_topics and (not self.accept_new_topics or self.checkpoint.planned >= 0):
            raise recreated(recreated_topics)
        return recreated_topics

    def _is_recreated(self, topic: str, topic_id: str) -> bool:
        """Return True if the tables know the topic by another id."""
        known = self._decisive.version_of(topic_application(self.tenant, topic))
        return known is not None and self._decisive.version_of(topic_application(self.tenant, topic, topic_id)) != known

    def _topic_marks(self, owner: Owner) -> dict[str, int]:
        marks: dict[str, int] = {}
        recreated_topics = self._recreated_topics()
        for topic, each in self.ids.items():
            whole = topic_application(self.tenant, topic)
            if topic in recreated_topics or self._decisive.version_of(whole) is None:
                version = owner.epoch if topic in recreated_topics else 0
                marks |= {whole: version, topic_application(self.tenant, topic, each): version}
        return marks

    def _check(self, newest: Owner, *, exists: bool) -> None:
        checkpoint = self.checkpoint
        set_back = [log for log in self.logs if log.is_restored(newest.name)]
        if checkpoint.planned < 0:
            if 0 < len(set_back) < len(self.logs):
                raise restored(set_back[0].folder.path)
            return
        this = f"[flow] checkpoint = {self.folder}"
        if set_back:
            raise restored(set_back[0].folder.path)
        if self.decided > checkpoint.planned:
            raise Misconfigured(
                f"{this}: it is older than the tables (its newest batch is {checkpoint.planned}, theirs is {self.decided}): "
                f"{_REMEDY}"
            )
        if newest.epoch and self._decisive.version_of(newest.application_of_checkpoint) != newest.epoch:
            raise Misconfigured(
                f"{this}: another flow with [flow] name = {self.flow.name} or with its lanes has taken over the tables in "
                f"{self.flow.tables}, or [flow] lanes has changed, since this checkpoint was used: {_REMEDY}, or set other "
                "[flow] tables"
            )
        if not exists or checkpoint.done > self.decided:
            raise Misconfigured(
                f"{this}: it has finished batch {checkpoint.done}, but the tables in {self.flow.tables} hold "
                f"{f'batch {self.decided} of it' if self.decided >= 0 else 'none of its batches'}: "
                "were they deleted, replaced by an older copy, or has another program overwritten a commit? "
                f"Put them back, or {_REMEDY}"
            )
