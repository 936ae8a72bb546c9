"""Deployed parsers in a worker's process: each gets its own modules, and a bad one leaves its events to the former one."""

import importlib
import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from flows.deployments import ACME, deploy, parser_folder, reads
from flows.record_batches import BATCH, of_events
from fogline.errors import Poison
from fogline.events.event import Event
from fogline_cloud.flows.deployed import loaded_parsers, wheel
from fogline_cloud.flows.deployed.loaded_parsers import DeployedParsers
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import Change, ParserSet, former_digest, with_parser, without_trial
from fogline_cloud.flows.deployed.trial_report import TrialReport, is_refuted
from fogline_cloud.flows.deployed.unpacked import WrongFile
from fogline_cloud.flows.deployed.wheel import read_wheel
from fogline_cloud.flows.driver.deployments import Deployments
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.worker.parse import ParserNotes, Plan, parse
from fogline_cloud.parser_kit.packing import wheel_of
from fogline_cloud.settings import CloudSettings, FlowSettings

MakeEvent = Callable[..., Event]


@pytest.fixture
def log(tmp_path: Path) -> ParserLog:
    return ParserLog(CloudSettings(tenant="t", flow=FlowSettings(tables=str(tmp_path / "tables"))))


class Worker:
    """Parses bodies with what is deployed, in this process, as a worker of Spark does."""

    def __init__(self, log: ParserLog, make_event: MakeEvent) -> None:
        self.log = log
        self.make_event = make_event
        self.notes = ParserNotes()

    def rows(self, *bodies: bytes, given: ParserSet | None = None, kind: str = ACME) -> list[dict[str, Any]]:
        newest = self.log.newest()
        wanted = given or (ParserSet() if newest is None else newest.set)
        plan = Plan(tenant="t", limit_s=1, parsers={}, deployed=DeployedParsers(wanted, TableFolder(self.log.place)))
        self.notes = ParserNotes()
        events = [self.make_event(body, content_type=kind) for body in bodies]
        (out,) = parse(plan, BATCH, iter([of_events(events)]), self.notes)
        return out.to_pylist()

    def values(self, *bodies: bytes, **given: Any) -> list[list[tuple[str, float]]]:
        return [[(each["metric"], each["value"]) for each in row["readings"]] for row in self.rows(*bodies, **given)]


@pytest.fixture
def worker(log: ParserLog, make_event: MakeEvent) -> Worker:
    return Worker(log, make_event)


def test_deployed_parser_is_chosen_by_its_content_type_and_the_row_names_its_digest(
    worker: Worker, log: ParserLog, tmp_path: Path
) -> None:
    before = worker.rows(b"21")
    entry = deploy(log, parser_folder(tmp_path / "acme", reads("temperature")))
    (row,) = worker.rows(b"21")
    assert (before[0]["outcome"], before[0]["reason"]) == ("skip", "no-parser")
    assert (row["outcome"], row["parser"], row["parser_digest"]) == ("ok", "acme", entry.digest)
    assert row["readings"][0]["value"] == 21.0


def test_installed_parser_has_no_digest(worker: Worker, log: ParserLog, tmp_path: Path) -> None:
    deploy(log, parser_folder(tmp_path / "acme", reads("temperature")))
    (row,) = worker.rows(b"21", kind="text/plain")
    assert (row["outcome"], row["parser"], row["parser_digest"]) == ("ok", "raw-number", None)


def test_process_that_has_imported_one_version_runs_the_next_one(worker: Worker, log: ParserLog, tmp_path: Path) -> None:
    """Its modules of the same names too, also those that it imports within a call."""
    source = """
        def parse(event):
            import acme_table
            yield Reading(acme_table.METRIC, float(event.data))
    """
    found = []
    for version in ("one", "two", "three"):
        deploy(log, parser_folder(tmp_path / version, source, acme_table__py=f"METRIC = '{version}'\n"))
        found += worker.values(b"1")
    assert found == [[("one", 1.0)], [("two", 1.0)], [("three", 1.0)]]


def test_parsers_of_two_teams_with_modules_of_one_name_each_get_their_own(
    worker: Worker, log: ParserLog, tmp_path: Path
) -> None:
    source = """
        def parse(event):
            import table
            yield Reading(table.METRIC, float(event.data))
    """
    for name in ("acme", "best"):
        folder = parser_folder(tmp_path / name, source, name=name, module="sensor", table__py=f"METRIC = '{name}'\n")
        deploy(log, folder, name=name, kinds=(f"application/vnd.{name}",))
    newest = log.newest()
    assert newest is not None
    plan = Plan(tenant="t", limit_s=1, parsers={}, deployed=DeployedParsers(newest.set, TableFolder(log.place)))
    events = [worker.make_event(b"1", content_type=f"application/vnd.{name}") for name in ("acme", "best", "acme", "best")]
    (out,) = parse(plan, BATCH, iter([of_events(events)]))
    assert [row["readings"][0]["metric"] for row in out.to_pylist()] == ["acme", "best", "acme", "best"]


def test_installed_version_of_a_deployed_package_keeps_its_modules(
    plugin: None, worker: Worker, log: ParserLog, tmp_path: Path
) -> None:
    installed = importlib.import_module("fogline_test_parsers")
    folder = parser_folder(tmp_path / "new", reads("new"), name="acme", module="fogline_test_parsers")
    deploy(log, folder)
    assert worker.values(b"1") == [[("new", 1.0)]]
    plan = Plan(
        tenant="t",
        limit_s=1,
        parsers={"application/x-wrong": "test-wrong"},
        deployed=DeployedParsers(log.newest().set, TableFolder(log.place)),  # type: ignore[union-attr]
    )
    events = [worker.make_event(b"1", content_type=kind) for kind in (ACME, "application/x-wrong", ACME)]
    rows = next(iter(parse(plan, BATCH, iter([of_events(events)])))).to_pylist()
    assert [row["outcome"] for row in rows] == ["ok", "dead", "ok"]
    assert "the table of this device is empty" in rows[1]["detail"]
    worker.rows(b"1", kind="text/plain")  # an installed parser puts the installed modules back
    assert sys.modules["fogline_test_parsers"] is installed


@pytest.mark.parametrize(
    ("source", "failure"),
    [
        ("import no_such_module", "no_such_module"),
        ("import os\nos.kill(os.getpid(), 9)", "SIGKILL"),
        ("import os\nos._exit(3)", "exit status 3"),
        ("parse = 5", "is not a function"),
    ],
)
def test_parser_that_cannot_be_imported_leaves_all_events_to_the_former_one(
    worker: Worker, log: ParserLog, tmp_path: Path, source: str, failure: str
) -> None:
    former = deploy(log, parser_folder(tmp_path / "one", reads("one")))
    broken = deploy(log, parser_folder(tmp_path / "two", source))
    rows = worker.rows(b"1", b"2")
    assert [(row["outcome"], row["parser_digest"]) for row in rows] == [("ok", former.digest)] * 2
    (report,) = worker.notes.trials
    assert (report.name, report.digest) == ("acme", broken.digest)
    assert failure in report.failure
    assert is_refuted(report)


def test_first_deployment_that_cannot_be_imported_makes_events_dead_until_there_is_a_parser(
    worker: Worker, log: ParserLog, tmp_path: Path
) -> None:
    deploy(log, parser_folder(tmp_path / "one", "import no_such_module"))
    (row,) = worker.rows(b"1")
    assert (row["outcome"], row["reason"], row["parser_digest"], row["data"]) == ("dead", "no-parser", None, b"1")


def test_event_that_only_the_former_parser_reads_lands_with_its_readings_and_digest(
    worker: Worker, log: ParserLog, tmp_path: Path
) -> None:
    former = deploy(log, parser_folder(tmp_path / "one", reads("one")))
    source = """
        def parse(event):
            if event.data == b"2":
                raise ValueError("two")
            yield Reading("two", float(event.data))
    """
    new = deploy(log, parser_folder(tmp_path / "two", source))
    rows = worker.rows(b"1", b"2", b"what")
    assert [(row["outcome"], row["parser_digest"]) for row in rows] == [
        ("ok", new.digest),
        ("ok", former.digest),
        ("dead", new.digest),  # neither reads it
    ]
    (report,) = worker.notes.trials
    assert (report.events, report.left) == (3, 1)
    assert "two" in report.why
    assert is_refuted(report)


def test_parser_that_may_refuse_what_the_former_one_read_is_not_refuted(worker: Worker, log: ParserLog, tmp_path: Path) -> None:
    deploy(log, parser_folder(tmp_path / "one", reads("one")))
    source = """
        def parse(event):
            raise Poison("garbage", "no such device")
    """
    new = deploy(log, parser_folder(tmp_path / "two", source), accept_dead=True)
    (row,) = worker.rows(b"1")
    assert (row["outcome"], row["reason"], row["parser_digest"]) == ("dead", "garbage", new.digest)
    assert not any(map(is_refuted, worker.notes.trials))


def test_replay_reads_by_the_new_parser_alone(worker: Worker, log: ParserLog, tmp_path: Path) -> None:
    deploy(log, parser_folder(tmp_path / "one", reads("one")))
    new = deploy(log, parser_folder(tmp_path / "two", "def parse(event):\n    raise Poison('odd')"))
    (row,) = worker.rows(b"1", given=new.set.settled)
    assert (row["outcome"], row["parser_digest"]) == ("dead", new.digest)


def test_one_event_in_a_hundred_may_be_left_to_the_former_parser() -> None:
    assert not is_refuted(TrialReport("acme", "d", events=100, left=1))
    assert is_refuted(TrialReport("acme", "d", events=100, left=2))
    assert is_refuted(TrialReport("acme", "d", events=1000, left=1, harmed=True))


@pytest.mark.fault("K26")
def test_file_that_was_changed_in_the_store_is_refused_and_the_former_parser_stays(
    worker: Worker, log: ParserLog, tmp_path: Path
) -> None:
    former = deploy(log, parser_folder(tmp_path / "one", reads("one")))
    new = deploy(log, parser_folder(tmp_path / "two", reads("two")))
    other = wheel_of(parser_folder(tmp_path / "three", reads("three")))
    (Path(log.place) / "files" / f"{new.digest}.whl").write_bytes(other)
    with pytest.raises(WrongFile, match="is not the file that was deployed"):
        log.file(new.digest)
    (row,) = worker.rows(b"1")
    assert (row["outcome"], row["parser_digest"]) == ("ok", former.digest)
    assert "is not the file that was deployed" in worker.notes.trials[0].failure
    flow = Deployments(log, "flow t/main", ParserSet())
    assert flow.current().parsers["acme"].digest == former.digest
    newest = log.newest()
    assert newest is not None
    assert (newest.change, newest.digest, newest.who) == (Change.RETURN, former.digest, "flow t/main")


def test_flow_takes_a_deployment_at_its_next_look_and_goes_back_once_it_is_refuted(log: ParserLog, tmp_path: Path) -> None:
    former = deploy(log, parser_folder(tmp_path / "one", reads("one")))
    flow = Deployments(log, "flow t/main", ParserSet())
    assert flow.current().parsers["acme"].digest == former.digest
    new = deploy(log, parser_folder(tmp_path / "two", reads("two")))
    assert flow.current().parsers["acme"].digest == new.digest
    flow.landed([TrialReport("acme", new.digest, events=50, left=1, why="dead parser-error: two")])
    assert flow.current().parsers["acme"].digest == former.digest
    assert flow.take_returned() == ["acme"]
    newest = log.newest()
    assert newest is not None
    assert (newest.change, newest.digest) == (Change.RETURN, former.digest)
    assert "two" in newest.why
    again = deploy(log, parser_folder(tmp_path / "two", reads("two")))
    assert flow.current().parsers["acme"].digest == again.digest == new.digest


def test_trial_ends_after_a_thousand_events(log: ParserLog, tmp_path: Path) -> None:
    deploy(log, parser_folder(tmp_path / "one", reads("one")))
    new = deploy(log, parser_folder(tmp_path / "two", reads("two")))
    flow = Deployments(log, "flow t/main", log.newest().set)  # type: ignore[union-attr]
    flow.landed([TrialReport("acme", new.digest, events=990, left=5)])
    assert flow.current().parsers["acme"].former is not None
    flow.landed([TrialReport("acme", new.digest, events=10)])
    assert flow.current().parsers["acme"].former is None


def test_newer_deployment_is_not_undone_when_the_one_before_it_fails(log: ParserLog, tmp_path: Path) -> None:
    deploy(log, parser_folder(tmp_path / "one", reads("one")))
    broken = deploy(log, parser_folder(tmp_path / "two", reads("two")))
    flow = Deployments(log, "flow t/main", log.newest().set)  # type: ignore[union-attr]
    mended = deploy(log, parser_folder(tmp_path / "three", reads("three")))
    flow.landed([TrialReport("acme", broken.digest, events=1, left=1)])
    assert flow.current().parsers["acme"].digest == mended.digest
    assert log.newest() == mended


@pytest.mark.fault("K26")
def test_deployment_killed_between_its_file_and_its_entry_leaves_the_former_set(
    worker: Worker, log: ParserLog, tmp_path: Path
) -> None:
    former = deploy(log, parser_folder(tmp_path / "one", reads("one")))
    digest = log.put_file(wheel_of(parser_folder(tmp_path / "two", reads("two"))))
    assert log.newest() == former
    assert worker.values(b"1") == [[("one", 1.0)]]
    assert log.put_file(wheel_of(tmp_path / "two")) == digest  # the same deployment, again


@pytest.mark.fault("K26")
def test_entry_that_a_power_cut_has_cut_off_counts_as_none(log: ParserLog, tmp_path: Path) -> None:
    former = deploy(log, parser_folder(tmp_path / "one", reads("one")))
    (Path(log.place) / "entries" / f"{2:020}.json").write_bytes(b'{"number": 2, "pars')
    assert log.newest() == former
    assert log.newer(1) is None
    entry = deploy(log, parser_folder(tmp_path / "two", reads("two")))
    assert entry.number == 3
    assert log.newer(1) == entry


@pytest.mark.fault("K26")
def test_two_deployments_at_once_both_count(log: ParserLog, tmp_path: Path) -> None:
    names = [f"acme-{number}" for number in range(8)]
    folders = {name: parser_folder(tmp_path / name, reads(name), name=name) for name in names}
    threads = [
        threading.Thread(target=deploy, args=(log, folders[name]), kwargs={"name": name, "kinds": (f"application/{name}",)})
        for name in names
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    newest = log.newest()
    assert newest is not None
    assert sorted(newest.parsers) == names
    assert [each.number for each in log.history()] == list(range(1, 9))


def test_roll_back_leads_to_the_parser_that_was_in_use_before(log: ParserLog, tmp_path: Path) -> None:
    one, two, three = (deploy(log, parser_folder(tmp_path / name, reads(name))) for name in ("one", "two", "three"))
    seen = []
    for _ in range(3):
        digest = former_digest(log.history(), "acme")
        seen.append(digest)
        log.append(Change.ROLLBACK, "acme", "alice", "", lambda now, to=digest: without_trial(now, "acme", to))
    assert seen == [two.digest, one.digest, ""]
    assert three.digest not in seen
    with pytest.raises(Poison, match="is not deployed"):
        former_digest(log.history(), "acme")


def test_content_type_belongs_to_one_deployed_parser(log: ParserLog, tmp_path: Path) -> None:
    deploy(log, parser_folder(tmp_path / "one", reads("one")))
    with pytest.raises(Poison, match="parser acme is deployed for content type"):
        with_parser(log.newest().set, "best", "d", (ACME,), accept_dead=False)  # type: ignore[union-attr]


def test_entries_are_chained(log: ParserLog, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        deploy(log, parser_folder(tmp_path / name, reads(name)))
    history = log.history()
    assert history[0].previous == ""
    assert len({each.previous for each in history}) == 3


def test_the_same_folder_makes_the_same_wheel_and_its_second_deployment_none(log: ParserLog, tmp_path: Path) -> None:
    folder = parser_folder(tmp_path / "one", reads("one"), test_acme_parser__py="", my_events__jsonl="{}")
    first = deploy(log, folder)
    (folder / "acme_parser.py").touch()
    assert deploy(log, folder) == first
    found = read_wheel(wheel_of(folder))
    assert (found.parsers, found.modules) == ({"acme": "acme_parser:parse"}, {"acme_parser"})


@pytest.mark.parametrize(
    ("module", "why"),
    [("json", "Python"), ("pyarrow", "distribution pyarrow"), ("fogline_cloud", "Fogline")],
)
def test_wheel_must_not_replace_modules_of_others(tmp_path: Path, module: str, why: str) -> None:
    with pytest.raises(Poison, match=f"is one of {why}"):
        read_wheel(wheel_of(parser_folder(tmp_path / "one", reads("one"), module=module)))


def test_import_that_never_ends_leaves_all_events_to_the_former_parser(
    worker: Worker, log: ParserLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_parsers, "IMPORT_LIMIT_S", 0.5)
    former = deploy(log, parser_folder(tmp_path / "one", reads("one")))
    deploy(log, parser_folder(tmp_path / "two", "while True:\n    pass"))
    (row,) = worker.rows(b"1")
    assert (row["outcome"], row["parser_digest"]) == ("ok", former.digest)
    assert is_refuted(worker.notes.trials[0])


def test_wheel_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Poison, match="may have 4 MiB"):
        read_wheel(bytes(wheel.MAX_WHEEL_BYTES + 1))
    data = wheel_of(parser_folder(tmp_path / "one", f"{reads('one')}\n# {'x' * 1000}"))
    for name, bound in (("MAX_UNPACKED_BYTES", 1000), ("MAX_FILES", 4)):
        with monkeypatch.context() as patch:
            patch.setattr(wheel, name, bound)
            with pytest.raises(Poison, match="a wheel may have"):
                read_wheel(data)


@pytest.mark.parametrize(
    "name", ["../outside.py", "/etc/outside.py", "pkg/native.so", "late.pth", "acme-1.data/x", "acme_parser.py"]
)
def test_wheel_with_a_file_that_is_none_of_a_parser_is_refused(tmp_path: Path, name: str) -> None:
    made = io.BytesIO(wheel_of(parser_folder(tmp_path / "one", reads("one"))))
    with ZipFile(made, "a") as archive:
        archive.writestr(name, "")
    with pytest.raises(Poison):
        read_wheel(made.getvalue())


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"x" * 100, json.dumps({}).encode()])
def test_file_that_is_no_wheel_is_refused(data: bytes) -> None:
    with pytest.raises(Poison):
        read_wheel(data)
