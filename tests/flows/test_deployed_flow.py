"""A running flow takes deployed parsers between two micro-batches, and goes back from those that are broken."""

import json
import threading
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.deployments import ACME, deploy, parser_folder, reads
from flows.tenant_flow import Flow
from fogline.events.event import Event
from fogline_cloud.cli.tables import flow_state
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import Change
from fogline_cloud.flows.driver.metrics import FlowMetrics
from fogline_cloud.kafka.clients import KafkaClients

MakeEvent = Callable[..., Event]
RAISES = """
    def parse(event):
        raise ValueError("broken")
"""
ENDS = """
    import os
    def parse(event):
        os.kill(os.getpid(), 9)
"""


class Steps:
    """Does one step after each micro-batch of a running flow, then stops it."""

    def __init__(self, flow: Flow, steps: list[Callable[[], object]]) -> None:
        self._flow = flow
        self._steps = iter(steps)
        self._stop = threading.Event()
        self.metrics = FlowMetrics(KafkaClients(flow.settings.kafka))

    def run(self) -> None:
        next(self._steps)()
        self._flow.run(once=False, stop=self._stop, on_batch=self._next, metrics=self.metrics)

    def _next(self) -> None:
        step = next(self._steps, None)
        if step is None:
            self._stop.set()
        else:
            step()


@pytest.mark.fault("K26")
def test_running_flow_takes_a_parser_at_the_next_batch_and_goes_back_from_a_broken_one(
    flow: Flow, make_event: MakeEvent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = ParserLog(flow.settings)
    digests: dict[str, str] = {}

    def deployed(version: str, source: str) -> None:
        digests[version] = deploy(log, parser_folder(tmp_path / version, source)).digest
        landed()

    def landed() -> None:
        flow.land([make_event(b"%d" % number, content_type=ACME) for number in range(20)])

    steps = Steps(
        flow,
        [
            landed,
            lambda: deployed("one", reads("one")),
            lambda: deployed("two", reads("two")),
            lambda: deployed("raises", RAISES),
            landed,
            lambda: deployed("ends", ENDS),
            landed,
        ],
    )
    steps.run()
    rows = flow.rows("events")
    assert [row["outcome"] for row in rows] == ["skip"] * 20 + ["ok"] * 120
    found = [row["parser_digest"] for row in rows]
    # The former parser reads what the broken ones do not, in the micro-batch that shows that they are broken, and after it.
    assert found == [None] * 20 + [digests["one"]] * 20 + [digests["two"]] * 100
    assert [row["metric"] for row in flow.rows("readings")] == ["one"] * 20 + ["two"] * 100
    history = [(each.change, each.digest) for each in log.history()]
    assert history == [
        (Change.DEPLOY, digests["one"]),
        (Change.DEPLOY, digests["two"]),
        (Change.DEPLOY, digests["raises"]),
        (Change.RETURN, digests["two"]),
        (Change.DEPLOY, digests["ends"]),
        (Change.RETURN, digests["two"]),
    ]
    returned = {each.name: each.value for each in steps.metrics.read()}["fogline_flow_parsers_returned_total"]
    assert returned == 2
    monkeypatch.setattr(flow_state, "load", lambda _: flow.settings)
    capsys.readouterr()
    flow_state._status(Namespace(config=None, json=True))
    (shown,) = json.loads(capsys.readouterr().out)["parsers"]
    assert (shown["parser"], shown["digest"], shown["change"]) == ("acme", digests["two"], "return")
    assert "of 20 events only the former parser reads 20; the first: dead killed" in shown["why"]
    flow_state._status(Namespace(config=None, json=False))
    assert f"parser acme: wheel {digests['two'][:12]} (return by flow {flow.settings.tenant}/main" in capsys.readouterr().out
