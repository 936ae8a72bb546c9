"""Table `fleet` in an object store, which may be away."""

from datetime import date

import pytest

from fogline.errors import Unreachable
from fogline_cloud.fleet.fleet_table import FleetTable
from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.flow_table import FlowTable
from fogline_lab.object_store import ObjectStore


def test_events_in_the_store_are_counted_and_a_store_that_is_away_is_one_sentence(folder):
    with ObjectStore(folder / "store") as store:
        # One try, else the client waits for minutes by itself.
        options = {**store.options(), "aws_conditional_put": "etag", "max_retries": "1", "retry_timeout": "1s"}
        events = FlowTable("events", TableFolder("s3://fog/tables/events", options))
        fleet = FleetTable(TableFolder("s3://fog/tables/fleet", options), events.folder, None, date(2026, 1, 6))

        def counted() -> int:
            return sum(fleet.current(["events"]).column("events").to_pylist())

        events.append(7)
        assert counted() == 7
        assert fleet.update().days == ("2026-01-05",)
        events.append(2)
        events.delete("sequence = 1")
        assert counted() == 8
        fleet.update()
        assert counted() == 8
        assert fleet.forget("t", "d-2") == {"2026-01-05": 1}

        store.kill()
        with pytest.raises(Unreachable, match=r"the object store at http.* does not answer"):
            fleet.update()
