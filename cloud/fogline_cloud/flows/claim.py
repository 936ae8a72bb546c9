"""The claim of a starting flow on its tables: refused if its checkpoint does not fit them, else the newest owner."""

from collections.abc import Mapping
from dataclasses import dataclass

from fogline.errors import Misconfigured
from fogline_cloud.flows.batch import Batch
from fogline_cloud.flows.checkpoint import Checkpoint
from fogline_cloud.flows.delta_log import DeltaLog
from fogline_cloud.flows.owner import Owner
from fogline_cloud.flows.topic_ids import application, changed
from fogline_cloud.settings import FlowSettings

_REMEDY = "delete this folder, and the flow goes on from where the tables end"


@dataclass
class Claim:
    """A flow with its checkpoint before both tables.

    `ids`: the topics' ids. `accept_new_topics`: go on if some of them were made again. `decided`: the newest batch of this
    checkpoint in `events`.
    """

    tenant: str
    flow: FlowSettings
    events: DeltaLog
    readings: DeltaLog
    checkpoint: Checkpoint
    ids: Mapping[str, str]
    accept_new_topics: bool = False

    def __post_init__(self) -> None:
        self._batch = Batch(self.flow.name, self.checkpoint.run, max(self.checkpoint.done, 0))
        self.decided = self.events.newest(self._batch)

    def make(self, *, there: bool, epoch: int | None) -> Owner:
        """Become the newest owner. `there`: the tables are not new. `epoch`: under which this process owned them before.

        Raises `Misconfigured` if the checkpoint is not that of the tables' owner, or if either was set back.
        """
        held = Owner(self.tenant, self.flow.name, self.checkpoint.run, epoch or 0)
        newest = max(log.version_of(held.application) or 0 for log in (self.events, self.readings))
        if epoch is not None and newest > epoch:
            raise held.superseded(self.events.folder.path)
        self._check(held, newest, there=there)
        renewed = self._check_topics(held.name)
        if epoch is not None:
            return held
        owner = Owner(self.tenant, self.flow.name, self.checkpoint.run, newest + 1)
        self.events.claim(owner, {**self._marks("events"), **self._topic_marks(owner, renewed)})
        self.readings.claim(owner, self._marks("readings"))
        return owner

    def _check_topics(self, name: str) -> list[str]:
        """The topics that were made again. Raises `Misconfigured` unless they are accepted, for a new checkpoint."""
        renewed = [
            topic
            for topic, each in self.ids.items()
            if (known := self.events.version_of(application(name, topic))) is not None
            and self.events.version_of(application(name, topic, each)) != known
        ]
        if renewed and (not self.accept_new_topics or self.checkpoint.planned >= 0):
            raise changed(renewed)
        return renewed

    def _topic_marks(self, owner: Owner, renewed: list[str]) -> dict[str, int]:
        """The ids of topics that the table does not know yet; one that was made again counts from this epoch."""
        marks: dict[str, int] = {}
        for topic, each in self.ids.items():
            whole = application(owner.name, topic)
            if topic in renewed or self.events.version_of(whole) is None:
                version = owner.epoch if topic in renewed else 0
                marks |= {whole: version, application(owner.name, topic, each): version}
        return marks

    def _marks(self, what: str) -> dict[str, int]:
        """The batches that a former version finished, which committed nothing for a batch without rows."""
        return {self._batch.application(what): self.checkpoint.done} if self.checkpoint.done > self.decided else {}

    def _check(self, held: Owner, newest: int, *, there: bool) -> None:
        """Raise unless the tables hold what this checkpoint has finished, and nobody else has written since."""
        checkpoint = self.checkpoint
        restored = [log for log in (self.events, self.readings) if log.is_restored(held.name)]
        if checkpoint.planned < 0:
            if len(restored) == 1:
                raise restored[0].restored()
            return
        this = f"[flow] checkpoint = {self.flow.checkpoint}"
        if restored:
            raise restored[0].restored()
        if self.decided > checkpoint.planned:
            raise Misconfigured(
                f"{this}: it is older than the tables (it knows batch {checkpoint.planned}, "
                f"they hold {self.decided}): delete it, and the flow goes on from where the tables end"
            )
        if newest and self.events.version_of(held.application_of_run) != newest:
            raise Misconfigured(
                f"{this}: another flow with [flow] name = {self.flow.name} has taken over the tables in {self.flow.tables} "
                f"since this checkpoint was used: {_REMEDY}, or set other [flow] tables"
            )
        if not there or (checkpoint.done > self.decided and (newest or self.decided < 0)):
            raise Misconfigured(
                f"{this}: it has finished batch {checkpoint.done}, but the tables in {self.flow.tables} hold "
                f"{f'batch {self.decided} of it' if self.decided >= 0 else 'none of its batches'}: "
                f"were they deleted, or replaced by an older copy? Put them back, or {_REMEDY}"
            )
