"""Tables `events` and `fleet` in a folder, and what `fleet` must have."""

from datetime import date

from deltalake import DeltaTable

from cloud.fleet.fleet_model import as_model, fleet_of_events
from fogline_cloud.fleet.fleet_table import FleetTable
from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.flow_table import FlowTable

TODAY = date(2026, 1, 20)


class CountedEvents:
    """Table `events`, and table `fleet` beside it. `kept`: rows of `events` of days that it does not have any more."""

    def __init__(self, folder) -> None:
        self.events = FlowTable("events", TableFolder(str(folder / "events")))
        self.folder = TableFolder(str(folder / "fleet"))
        self.kept = []

    def fleet(self, keep_days: int | None = None) -> FleetTable:
        """Open table `fleet` as a new process does."""
        return FleetTable(self.folder, self.events.folder, keep_days, TODAY)

    def event_rows(self) -> list[dict]:
        """Return every row of `events`."""
        return DeltaTable(self.events.folder.uri).to_pyarrow_table().to_pylist()

    def model(self) -> dict:
        """Return what `fleet` must have, by day and key."""
        return fleet_of_events([*self.event_rows(), *self.kept])

    def stored(self) -> dict:
        """Return what `fleet` has in its files."""
        return as_model(DeltaTable(self.folder.uri).to_pyarrow_table().to_pylist())

    def answered(self) -> list[dict]:
        """Return the rows from which questions are answered now."""
        return self.fleet().current().to_pylist()

    def require_exact(self) -> None:
        """Compare what questions are answered from with the model; days are not among its columns."""
        by_key = {}
        for key, row in self.model().items():
            by_key.setdefault(key[1:], []).append(row)
        found = {}
        for row in self.answered():
            ((key, values),) = as_model([row]).items()
            found.setdefault(key, []).append(values)
        assert {key: sorted(rows, key=repr) for key, rows in found.items()} == {
            key: sorted(map(_plain, rows), key=repr) for key, rows in by_key.items()
        }


def _plain(row: dict) -> dict:
    return {name: dict(value) if name in {"sizes", "delays"} else value for name, value in row.items()}
