"""Removes what the tables hold about one device, day by day, while the flow goes on.

A row of `events` keeps its positions in Kafka and at the gateway, so that the ledger still balances; everything that the device
sent or that names it becomes null, and its outcome is `forgotten`. Rows of `readings`, `raw` and `fleet` are deleted,
and large bodies.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime

import msgspec
import pyarrow as pa
from deltalake import QueryBuilder, write_deltalake

from fogline.address import source_of
from fogline.errors import Poison
from fogline.events.large_body import read_dataref
from fogline_cloud.fleet.fleet_table import fleet_of
from fogline_cloud.flows.bodies.body_folder import bodies_in, body_path
from fogline_cloud.flows.tables.schema import EventOutcome, literal
from fogline_cloud.maintenance.key_files import delete_unneeded_key_files
from fogline_cloud.maintenance.maintain import existing
from fogline_cloud.maintenance.raw_rows import count_of_device, rows_of_others
from fogline_cloud.maintenance.table import HOOK, WRITER, MaintainedTable
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.object_folder import ObjectFolder

FORGOTTEN = (
    *("source", "id", "device", "type", "subject", "dedup", "time", "content_type", "adapter", "properties"),
    *("dataref", "reason", "detail", "parser", "readings", "data"),
)
"""Columns of `events` that become null."""


class ForgottenDay(msgspec.Struct, frozen=True):
    """The rows of one day of one table that were about the device."""

    table: str
    day: str
    rows: int


def forget(settings: CloudSettings, device: str, on_day: Callable[[ForgottenDay], None], *, dry_run: bool) -> int:
    """Forget a device. Returns the number of rows. Raises `Misconfigured`, or `Unreachable` if it should be tried again."""
    total = 0
    for name, folder in existing(settings).items():
        if name == "fleet":
            continue  # below
        table = MaintainedTable(name, folder)
        of_device = _DeviceRows(table, settings.tenant, device)
        if name == "events" and not dry_run:
            _delete_bodies(settings, of_device.bodies())  # first: after that, no row names them
        for day in sorted({each for each, _ in table.files()}):
            rows = of_device.count(day) if dry_run else of_device.forget(day)
            if rows:
                on_day(ForgottenDay(name, day.isoformat(), rows))
            total += rows
        if name == "events" and not dry_run:
            delete_unneeded_key_files(table, dry_run=False)  # they have the keys of the device's events
    fleet = fleet_of(settings, datetime.now(UTC).date())
    counted = fleet.count_of if dry_run else fleet.forget  # also days that `events` does not have any more
    for of_day, rows in counted(settings.tenant, device).items():
        on_day(ForgottenDay("fleet", of_day, rows))
        total += rows
    return total


def _delete_bodies(settings: CloudSettings, places: set[str]) -> None:
    bodies = ObjectFolder(settings, bodies_in(settings.flow.tables, {}).path)
    for place in sorted(places):
        bodies.delete([each.path for each in bodies.objects(f"{place}/")])


class _DeviceRows:
    """The rows of one device in one table."""

    def __init__(self, table: MaintainedTable, tenant: str, device: str) -> None:
        self._table = table
        self._tenant = tenant
        self._device = device

    def count(self, day: date) -> int:
        if self._table.name == "raw":
            return count_of_device(self._table, day, self._tenant, self._device)
        with self._table.mapped():
            self._table.table.update_incremental()
            query = f"SELECT count(*) AS n FROM rows WHERE {self._where(day)}"  # noqa: S608 - quoted
            found = QueryBuilder().register("rows", self._table.table).execute(query).read_all()
            return int(pa.table(found).column("n")[0].as_py())

    def bodies(self) -> set[str]:
        """Return the places of the device's large bodies."""
        of_device = f"tenant = {literal(self._tenant)} AND device = {literal(self._device)}"
        query = f"SELECT DISTINCT gateway, dataref FROM rows WHERE {of_device} AND dataref IS NOT NULL"  # noqa: S608 - quoted
        with self._table.mapped():
            self._table.table.update_incremental()
            found = pa.table(QueryBuilder().register("rows", self._table.table).execute(query).read_all())
        places = set()
        for row in found.to_pylist():
            with suppress(Poison):
                places.add(body_path(row["gateway"], read_dataref(row["dataref"]).id))
        return places

    def forget(self, day: date) -> int:
        # The bound on batches tells Delta that rows which the flow appends meanwhile are not concerned.
        if self._table.name == "raw":
            return self._delete_raw(day)
        if self._table.name == "readings":
            return self._table.delete(f"{self._where(day)} AND {self._bounds()}")
        return self._empty(f"{self._where(day)} AND {self._bounds()}")

    def _empty(self, where: str) -> int:
        columns = {**dict.fromkeys(FORGOTTEN, "NULL"), "outcome": literal(EventOutcome.FORGOTTEN.value)}

        def step() -> int:
            found = self._table.table.update(columns, None, where, WRITER, post_commithook_properties=HOOK)
            return int(found["num_updated_rows"])

        return self._table.retried(step)

    def _delete_raw(self, day: date) -> int:
        """Write the day again without the device's records, which only their headers name: SQL cannot look into those."""

        def step() -> int:
            rows = count_of_device(self._table, day, self._tenant, self._device)
            if rows:
                with rows_of_others(self._table, day, self._tenant, self._device) as others:
                    write_deltalake(
                        self._table.table,
                        others,
                        mode="overwrite",
                        predicate=f"day = '{day.isoformat()}' AND {self._bounds()}",
                        writer_properties=WRITER,
                        post_commithook_properties=HOOK,
                    )
            return rows

        return self._table.retried(step)

    def _bounds(self) -> str:
        """Return a condition that holds for every batch so far, as far as the files' statistics tell, and for no later one."""
        found = pa.table(self._table.table.get_add_actions(flatten=True))
        if not {"max.run", "max.batch"} <= set(found.column_names):
            return "true"
        last = found.select(["max.run", "max.batch"]).group_by("max.run").aggregate([("max.batch", "max")]).to_pylist()
        bounds = [f"(run <> {literal(row['max.run'])} OR batch <= {row['max.batch_max']})" for row in last if row["max.run"]]
        return " AND ".join(sorted(bounds)) or "true"

    def _where(self, day: date) -> str:
        source = f"source = {literal(source_of(self._tenant, self._device))}"
        of_day = f"day = '{day.isoformat()}'"
        if self._table.name == "readings":
            return f"{of_day} AND {source}"
        of_device = f"tenant = {literal(self._tenant)} AND (device = {literal(self._device)} OR {source})"
        kept = (EventOutcome.GAP, EventOutcome.STATEMENT, EventOutcome.FORGOTTEN)
        return f"{of_day} AND {of_device} AND outcome NOT IN ({', '.join(literal(each.value) for each in kept)})"
