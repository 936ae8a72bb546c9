"""Large bodies in the flow, without Spark: chunks are kept beside the tables, in any order and any number of times."""

import hashlib
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from flows.deployments import deploy, parser_folder
from flows.record_batches import BATCH, of_events
from fogline.events.event import Lane
from fogline.events.large_body import CHUNK_CONTENT_TYPE, BodyChunk, BodyEnd, BodyRef
from fogline_cloud.flows.bodies.body_folder import BodyFolder, ChunkMissing, bodies_in, body_path
from fogline_cloud.flows.deployed import loaded_parsers
from fogline_cloud.flows.deployed.loaded_parsers import DeployedParsers
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.parsers import Reading
from fogline_cloud.flows.replay.staging import ReplayFolders
from fogline_cloud.flows.replay.table_replay import _parse
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.worker.parse import Plan, parse
from fogline_cloud.maintenance.body_expiry import delete_expired
from fogline_cloud.settings import CloudSettings, FlowSettings, StoreSettings
from fogline_cloud.store.object_folder import ObjectFolder
from fogline_cloud.store.options import storage_of
from fogline_lab.large_bodies import make_body
from fogline_lab.object_store import BUCKET, REGION

BODY = make_body(1, 500_000)
ID = "0f" * 16


def plan_for(folder, **given) -> Plan:
    return Plan(
        tenant="t", limit_s=60, parsers={"image/jpeg": "photo", "text/csv": "csv"}, bodies=bodies_in(str(folder), {}), **given
    )


def photo(event):
    body = event.body()
    yield Reading("bytes", len(body))
    yield Reading("sha256", text=hashlib.sha256(body).hexdigest())


photo.large_bodies = True


@pytest.fixture(autouse=True)
def parsers(monkeypatch):
    found = {**loaded_parsers.installed(), "photo": photo}
    monkeypatch.setattr(loaded_parsers, "installed", lambda: found)


@pytest.fixture
def body_events(make_event):
    """Returns the chunks of a body and its event."""

    def made(body=BODY, name=ID, content_type="image/jpeg", *, sha256=None):
        pieces = [body[first : first + 200_000] for first in range(0, len(body), 200_000)]
        ref = BodyRef(name, len(pieces), len(body), sha256 or hashlib.sha256(body).hexdigest())
        common = {"lane": Lane.BULK}
        chunks = [
            make_event(data, content_type=CHUNK_CONTENT_TYPE, dataref=str(BodyChunk(name, number)), **common)
            for number, data in enumerate(pieces)
        ]
        return [*chunks, make_event(b"", content_type=content_type, dataref=str(ref), **common)]

    return made


def rows_of(plan, *batches):
    return pa.Table.from_batches(parse(plan, BATCH, map(of_events, batches), keep_bodies=True)).to_pylist()


def test_parser_reads_a_body_whose_chunks_came_in_earlier_batches(folder, body_events):
    events = body_events()
    rows = rows_of(plan_for(folder), events[:2]) + rows_of(plan_for(folder), events[2:])
    assert [each["outcome"] for each in rows] == ["chunk", "chunk", "chunk", "ok"]
    assert [each["data"] for each in rows] == [None] * 4
    assert (rows[-1]["size_bytes"], rows[-1]["dataref"]) == (len(BODY), events[-1].dataref)
    assert [each["value"] or each["text"] for each in rows[-1]["readings"]] == [len(BODY), hashlib.sha256(BODY).hexdigest()]


def test_chunks_that_are_read_again_after_a_kill_change_nothing(folder, body_events):
    events = body_events()
    first, second = (rows_of(plan_for(folder), events, events[:1]) for _ in range(2))
    timed = {"parse_us"}
    assert [{k: v for k, v in each.items() if k not in timed} for each in first] == [
        {k: v for k, v in each.items() if k not in timed} for each in second
    ]
    assert b"".join(BodyFolder(bodies_in(str(folder), {})).chunks(events[-1])) == BODY


def test_event_before_its_last_chunk_is_slow_and_is_read_later(folder, body_events):
    events = body_events()
    (row,) = rows_of(plan_for(folder), events[-1:])
    assert (row["outcome"], row["reason"], "000000" in row["detail"]) == ("slow", "retry", True)
    rows_of(plan_for(folder), events[:-1])
    (row,) = rows_of(plan_for(folder), events[-1:])
    assert row["outcome"] == "ok"


def test_body_with_another_digest_than_its_event_says_is_dead(folder, body_events):
    rows = rows_of(plan_for(folder), body_events(sha256="0" * 64))
    assert (rows[-1]["outcome"], rows[-1]["reason"]) == ("dead", "body-damaged")


def test_body_that_was_deleted_after_its_time_is_dead_when_it_is_parsed_again(folder, body_events):
    events = body_events()
    rows_of(plan_for(folder), events)
    bodies_in(str(folder), {}).file_system().delete_dir(body_path("gw-1", ID))
    (row,) = parse(plan_for(folder), BATCH, [of_events(events[-1:])])
    assert [row.column(name)[0].as_py() for name in ("outcome", "reason")] == ["dead", "body-gone"]


def test_parser_that_does_not_ask_for_large_bodies_gets_none(folder, body_events):
    rows = rows_of(plan_for(folder), body_events(content_type="text/csv"))
    assert (rows[-1]["outcome"], rows[-1]["reason"]) == ("skip", "large-body")


@pytest.mark.parametrize("name", ["photo", "size"], ids=["installed", "deployed"])
def test_parser_reads_a_body_beside_deployed_parsers(folder, body_events, name):
    log = ParserLog(CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder))))
    source = """
        def parse(event):
            yield Reading("bytes", len(event.body()))

        parse.large_bodies = True
    """
    deploy(log, parser_folder(folder / "size", source, name="size", module="size_parser"), name="size", kinds=("image/png",))
    deployed = DeployedParsers(log.newest().set, TableFolder(log.place))
    kind = {"photo": "image/jpeg", "size": "image/png"}[name]
    rows = rows_of(plan_for(folder, deployed=deployed), body_events(content_type=kind))
    assert (rows[-1]["outcome"], rows[-1]["parser"], rows[-1]["readings"][0]["value"]) == ("ok", name, len(BODY))


def test_end_of_a_body_is_noted_and_is_no_event(folder, make_event):
    end = make_event(b"", content_type=CHUNK_CONTENT_TYPE, dataref=str(BodyEnd(ID)))
    (row,) = rows_of(plan_for(folder), [end])
    assert (row["outcome"], row["reason"]) == ("chunk", "ended")
    assert (folder / "bodies" / "ended" / "gateway=gw-1" / ID).is_file()


@pytest.mark.parametrize("dataref", ["https://example.org/x", f"fogline-body:{ID}?chunk=01", "fogline-body:../../x?chunk=1"])
def test_foreign_reference_is_dead_and_writes_nothing(folder, make_event, dataref):
    rows = rows_of(plan_for(folder), [make_event(b"x", dataref=dataref), make_event(b"x", content_type=CHUNK_CONTENT_TYPE)])
    assert {(each["outcome"], each["reason"]) for each in rows} == {("dead", "bad-dataref")}
    assert not (folder / "bodies").exists()


def test_parser_in_a_child_process_reads_the_body_too(folder, body_events):
    rows = rows_of(plan_for(folder, in_child=frozenset({"photo"})), body_events())
    assert rows[-1]["outcome"] == "ok"


def test_replay_of_records_without_rows_brings_lost_bodies_back(folder, body_events):
    events, plan = body_events(), plan_for(folder)
    rows_of(plan, events)
    bodies_in(str(folder), {}).file_system().delete_dir(body_path("gw-1", ID))
    folders = ReplayFolders(*(TableFolder(str(folder / name)) for name in ReplayFolders.__struct_fields__))
    (folder / "events").mkdir()
    list(_parse(plan, "main", folders, "below/", [of_events(events)]))
    assert b"".join(BodyFolder(bodies_in(str(folder), {})).chunks(events[-1])) == BODY


@pytest.mark.slow
def test_body_in_an_object_store_is_written_read_and_deleted(object_store, tenant, body_events):
    settings = CloudSettings(
        tenant="t",
        flow=FlowSettings(tables=f"s3a://{BUCKET}/{tenant}"),
        store=StoreSettings(endpoint=object_store.endpoint, region=REGION, key_file=str(object_store.key_file)),
    )
    folder = bodies_in(settings.flow.tables, storage_of(settings))
    events, bodies = body_events(), BodyFolder(folder)
    bodies.keep(events)
    bodies.keep(events[:1])
    assert b"".join(bodies.chunks(events[-1])) == BODY
    assert bodies.has_event(events[-1])
    objects, late = ObjectFolder(settings, folder.path), datetime.now(UTC) + timedelta(days=91)
    assert delete_expired(objects, settings.tables, late, dry_run=False) == 1
    with pytest.raises(ChunkMissing):
        b"".join(bodies.chunks(events[-1]))
    assert not bodies.has_event(events[-1])
