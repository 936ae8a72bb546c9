"""Lands recorded events in tables of their own, as the flow does: with its parsers and limits, in micro-batches. No Kafka."""

from collections.abc import Sequence
from datetime import UTC, datetime
from zlib import crc32

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from fogline.events.event import Event, parse_rfc3339
from fogline_cloud.flows.driver.plan import plan_of
from fogline_cloud.flows.tables.batch import File, MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import TableFolder, tables_in
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import ARROW, EVENTS, HEADERS_TYPE, KAFKA_RECORD, READINGS, Column, arrow_schema, in_file
from fogline_cloud.flows.worker.tasks import StagedFiles, WorkerTask, stage_records
from fogline_cloud.kafka.records import record_of
from fogline_cloud.settings import CloudSettings

_TOPIC = "recorded"
_RUN = "00000000-0000-0000-0000-000000000000"


class TrialLanding:
    """Tables `events` and `readings` of a test, in the folder `[flow] tables` of these settings."""

    def __init__(self, settings: CloudSettings) -> None:
        tables = tables_in(settings.flow.tables, {})
        self._owner = Owner(settings.tenant, settings.flow.name, _RUN, 1)
        self._task = WorkerTask(plan=plan_of(settings), events=tables.events, readings=tables.readings, kafka={})
        self._logs = [self._made("events", tables.events, EVENTS), self._made("readings", tables.readings, READINGS)]
        self._tenant = settings.tenant
        self._batches = 0
        self._landed = 0
        self._latest = datetime.min.replace(tzinfo=UTC)

    def land(self, events: Sequence[Event]) -> None:
        """Land events as one micro-batch, which Kafka got when the latest event so far was recorded.

        Must be called in the main thread, because the parsers' time limit needs it.
        """
        batch = MicroBatch(self._owner.name, _RUN, self._batches)
        (reply,) = stage_records(self._task, batch, [self._records(events)])
        staged = msgspec.json.decode(reply.column("reply")[0].as_py(), type=StagedFiles)
        files: tuple[list[File], list[File]] = (staged.files, staged.readings)
        for log, each in zip(self._logs, files, strict=True):
            log.append(each, batch, self._owner)
        self._batches += 1

    def _made(self, name: str, folder: TableFolder, columns: tuple[Column, ...]) -> DeltaLog:
        schema = arrow_schema(in_file(columns)).append(pa.field("day", pa.date32()))
        feed = {"delta.enableChangeDataFeed": "true"}
        DeltaTable.create(folder.uri, schema, partition_by=["day"], configuration=feed)
        log = DeltaLog(name, folder)
        log.take_over(self._owner, {})
        return log

    def _records(self, events: Sequence[Event]) -> pa.RecordBatch:
        self._latest = max(self._latest, *(_moment(each.recordedtime) for each in events))
        first = self._landed
        self._landed += len(events)
        made = [record_of(self._numbered(each, first + at)) for at, each in enumerate(events)]
        headers = [[{"key": name, "value": value} for name, value in each.headers] for each in made]
        columns = [
            pa.repeat(_TOPIC, len(made)),
            pa.array([0] * len(made), pa.int32()),
            pa.array(range(first, self._landed), pa.int64()),
            pa.array([self._latest] * len(made), ARROW["TIMESTAMP"]),
            pa.array([each.value for each in made], pa.binary()),
            pa.array(headers, ARROW[HEADERS_TYPE]),
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(KAFKA_RECORD))

    def _numbered(self, event: Event, offset: int) -> Event:
        """Return the event with an id that no other one of this test has, and its place in its gateway's stream."""
        more = {"stream": f"{crc32(event.gateway.encode()):016x}", "sequence": offset + 1} if event.gateway else {}
        return msgspec.structs.replace(event, id=f"{offset + 1}", tenant=self._tenant, **more)


def _moment(text: str) -> datetime:
    return datetime.fromtimestamp(parse_rfc3339(text) / 1_000_000_000, UTC)
