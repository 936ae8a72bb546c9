"""One owner per flow name and raw topic: an epoch in the log of each table, which every starting flow raises.

The epoch is the version of a Delta transaction application, which every commit of a flow compares and writes again. So Delta
refuses one of two concurrent commits, and the newest owner wins; the former one stops at its next commit.
"""

import msgspec

from fogline.errors import Misconfigured


class Owner(msgspec.Struct, frozen=True):
    """A flow as the owner of its tables. `run`: uuid of its checkpoint. `epoch`: number of this owner, from 1.

    `topics`: the raw topics that it reads. Flows with different names and topics write to the same tables.
    """

    tenant: str
    flow: str
    run: str
    epoch: int
    topics: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The flow's name, unique over all tenants. Each name has one owner."""
        return f"{self.tenant}/{self.flow}"

    @property
    def applications(self) -> list[str]:
        """The Delta transaction applications whose versions are the epochs of the newest owners: of the name, of each topic."""
        return [f"{self.name}/owner", *(f"{self.tenant}/reader/{topic}" for topic in self.topics)]

    @property
    def application_of_run(self) -> str:
        """The Delta transaction application whose version is the last epoch of this owner's checkpoint."""
        return f"{self.tenant}/run/{self.run}"

    @property
    def application_of_checkpoint(self) -> str:
        """The same for this checkpoint with these topics: Spark cannot change the topics of a checkpoint."""
        return "/".join([self.application_of_run, *self.topics])

    @property
    def application_of_successor(self) -> str:
        """The Delta transaction application that exists if `fogline flow resume` has replaced this owner's checkpoint."""
        return f"{self.name}/replaced/{self.run}"

    @property
    def marks(self) -> dict[str, int]:
        """Delta transactions that each commit of this owner carries."""
        every = (*self.applications, self.application_of_run, self.application_of_checkpoint)
        return dict.fromkeys(every, self.epoch)

    def superseded(self, path: str) -> Misconfigured:
        """Return the error for a flow that is not the owner any more."""
        return Misconfigured(
            f"[flow] name = {self.flow}: another flow of this name or lane has taken over the table {path}: stop one of them, "
            "or give one of them other [flow] tables and another checkpoint"
        )
