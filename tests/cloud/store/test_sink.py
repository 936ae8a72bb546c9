"""A sink whose table is in an object store: it follows it, and waits if the store is away."""

import threading

import pytest

from fogline.errors import Unreachable
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.sink_settings import SinkSettings
from fogline_cloud.sinks.database import connected
from fogline_cloud.sinks.place import place_of
from fogline_cloud.sinks.sink import Sink
from fogline_lab.flow_table import FlowTable
from fogline_lab.object_store import ObjectStore


def rows(place):
    with connected(place) as database:
        return sorted(database.execute("SELECT sequence, value FROM readings"))


def test_a_sink_follows_a_table_in_the_store_and_waits_while_the_store_is_away(folder):
    stop, place = threading.Event(), place_of(f"sqlite:///{folder}/x.db")
    with ObjectStore(folder / "store") as store:
        # One try, else the client waits for minutes by itself.
        options = {**store.options(), "aws_conditional_put": "etag", "max_retries": "1", "retry_timeout": "1s"}
        table = FlowTable("readings", TableFolder("s3://fog/tables/readings", options))
        table.append(3)
        sink = Sink("lab", SinkSettings(url=""), table.folder, place)
        assert sink.catch_up(stop, lambda _: None)
        table.append(2)
        table.delete("sequence = 1")
        assert sink.catch_up(stop, lambda _: None)
        assert rows(place) == [(0, 0.0), (2, 1.0), (3, 1.5), (4, 2.0)]

        store.kill()
        with pytest.raises(Unreachable, match=r"the object store at http.* does not answer"):
            sink.catch_up(stop, lambda _: None)
        store.start()
        table.append(1)
        assert sink.catch_up(stop, lambda _: None)
        assert rows(place)[-1] == (5, 2.5)
