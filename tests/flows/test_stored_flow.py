"""A flow whose tables and checkpoint are in an object store: everything once, also when the store is away for a while."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from deltalake import DeltaTable

from fogline_cloud.flows import job
from fogline_lab.http_line import Absence


def sequences(flow, object_store, table="events"):
    found = DeltaTable(f"{flow.settings.flow.tables}/{table}", storage_options=object_store.options())
    return sorted(found.to_pyarrow_table(columns=["sequence"])["sequence"].to_pylist())


def test_a_flow_on_an_object_store_writes_each_event_once_and_keeps_its_place(stored_flow, object_store, make_event):
    for _ in range(2):
        stored_flow.land([make_event() for _ in range(20)])
        assert sum(batch.events for batch in stored_flow.run()) == 20
    assert sequences(stored_flow, object_store) == sequences(stored_flow, object_store, "readings") == list(range(1, 41))


class Running:
    """A flow that runs on a thread until the end of the block."""

    def __init__(self, flow):
        self._flow = flow
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._batches = {}
        self.waits = []

    def __enter__(self):
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(self._run)
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._future.result(120)
        self._pool.shutdown()

    @property
    def events(self):
        """The number of events that have landed. A batch that is repeated counts once."""
        return sum(self._batches.values())

    def until(self, condition, what):
        with self._changed:
            assert self._changed.wait_for(lambda: condition() or self._future.done(), 300), what
        assert condition(), f"{what}: {self._future.exception(0)}"

    def _note(self, change):
        with self._changed:
            change()
            self._changed.notify_all()

    def _run(self):
        def landed(progress):
            self._note(lambda: self._batches.update({progress.batch: progress.events}))

        callbacks = job.QueryCallbacks(on_progress=landed, on_failure=lambda why: self._note(lambda: self.waits.append(why)))
        flow = self._flow
        try:
            job.run_flow(flow.spark, flow.settings, on_ready=lambda: None, parsing=callbacks, stop=self._stop)
        finally:
            self._note(lambda: None)


@pytest.mark.fault("K24")
@pytest.mark.parametrize("how", [Absence.RESETS, pytest.param(Absence.HANGS, marks=pytest.mark.slow)])
def test_a_flow_waits_for_a_store_that_is_away_and_goes_on_by_itself(stored_flow, object_store, store_line, make_event, how):
    stored_flow.land([make_event() for _ in range(10)])
    with Running(stored_flow) as running:
        running.until(lambda: running.events == 10, "the first events do not land")
        with store_line.away(how):
            stored_flow.land([make_event() for _ in range(10)])
            running.until(lambda: running.waits, "the flow does not say that it waits")
        running.until(lambda: running.events == 20, "the flow does not go on")
    assert all(why.startswith("the object store") for why in running.waits)
    assert sequences(stored_flow, object_store) == list(range(1, 21))


@pytest.mark.fault("K24")
@pytest.mark.parametrize("path", ["_delta_log/[0-9]*.json", "/offsets/|/commits/", "parquet"])
def test_events_are_there_once_when_answers_of_the_store_are_lost(stored_flow, object_store, store_line, make_event, path):
    stored_flow.land([make_event() for _ in range(10)])
    stored_flow.run()
    store_line.lose_answers(path, limit=2)
    stored_flow.land([make_event() for _ in range(10)])
    stored_flow.run()
    assert store_line.lost
    assert sequences(stored_flow, object_store) == sequences(stored_flow, object_store, "readings") == list(range(1, 21))
