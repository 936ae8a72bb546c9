"""One owner per flow name: an epoch in the log of each table, which every starting flow raises.

The epoch is the version of a Delta transaction application, which every commit of a flow compares and writes again. So Delta
refuses one of two concurrent commits, and the newest owner wins; the former one stops at its next commit.
"""

import msgspec

from fogline.errors import Misconfigured


class Owner(msgspec.Struct, frozen=True):
    """A flow as the owner of its tables. `run`: uuid of its checkpoint. `epoch`: number of this owner, from 1."""

    tenant: str
    flow: str
    run: str
    epoch: int

    @property
    def name(self) -> str:
        """The flow's name, unique over all tenants. Each name has one owner."""
        return f"{self.tenant}/{self.flow}"

    @property
    def application(self) -> str:
        """The Delta transaction application whose version is the epoch of the newest owner."""
        return f"{self.name}/owner"

    @property
    def application_of_run(self) -> str:
        """The Delta transaction application whose version is the last epoch of this owner's checkpoint."""
        return f"{self.name}/owner/{self.run}"

    @property
    def application_of_successor(self) -> str:
        """The Delta transaction application that exists if `fogline flow resume` has replaced this owner's checkpoint."""
        return f"{self.name}/replaced/{self.run}"

    @property
    def marks(self) -> dict[str, int]:
        """Delta transactions that each commit of this owner carries."""
        return {self.application: self.epoch, self.application_of_run: self.epoch}

    def superseded(self, path: str) -> Misconfigured:
        """Return the error for a flow that is not the owner any more."""
        return Misconfigured(
            f"[flow] name = {self.flow}: another flow of this name has taken over the table {path}: stop one of them, "
            "or give one of them other [flow] tables and another checkpoint"
        )
