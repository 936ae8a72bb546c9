"""One owner per flow name: an epoch in the log of every table, raised by each flow that starts.

The epoch is the version of a Delta transaction application. Every commit of the flow compares the epoch on the snapshot
that it is made from, and writes it again, so that Delta refuses one of two concurrent commits of the same flow name. The
newest owner wins; the former one stops at its next commit.
"""

import msgspec

from fogline.errors import Misconfigured


class Owner(msgspec.Struct, frozen=True):
    """A flow as the owner of its tables. `run`: uuid of its checkpoint. `epoch`: counts the owners from 1."""

    tenant: str
    flow: str
    run: str
    epoch: int

    @property
    def name(self) -> str:
        """The flow's name within all tenants: what there is one owner of."""
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
    def marks(self) -> dict[str, int]:
        """Delta transactions of each commit of this owner."""
        return {self.application: self.epoch, self.application_of_run: self.epoch}

    def superseded(self, path: str) -> Misconfigured:
        """The error of a former owner."""
        return Misconfigured(
            f"[flow] name = {self.flow}: another flow of this name has taken over the table {path}: stop one of them, "
            "or give one of them other [flow] tables and another checkpoint"
        )
