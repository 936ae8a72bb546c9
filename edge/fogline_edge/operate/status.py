"""Reads the state of an outbox from its file, beside the running gateway and without disturbing it."""

import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fogline.dead_letter import DEAD_TYPE
from fogline.errors import Misconfigured, Poison
from fogline.events.codec import decode_event
from fogline.events.event import Event, Lane, parse_rfc3339
from fogline.events.large_body import UNFINISHED, begun_s, decode_note
from fogline.gateway.ledger import total_by_rule
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show
from fogline_edge.adapters.ble.state import STATE_KEY, BleState, decode_state, lines_of
from fogline_edge.adapters.mqtt_client.state import BrokerState, read_clients
from fogline_edge.credentials.credential_file import CredentialState, read_state
from fogline_edge.history.history_file import history_state
from fogline_edge.machine.health import free_bytes
from fogline_edge.machine.run_record import read_run
from fogline_edge.outbox.file.copy_file import read_copy
from fogline_edge.outbox.file.data_folder import FILE
from fogline_edge.outbox.file.full_record import read_full, state_of
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.outbox.rows.streams import decode_rules
from fogline_edge.outbox.writer.reactor import problems_of

_STREAMS = """
SELECT stream, lane, open, head + unsaved AS head, settled, head + unsaved - settled AS backlog,
       acknowledged + unsaved AS acknowledged, stored + unsaved AS stored, duplicate, dead, sent, settled_events, quarantined,
       filtered, dropped, rules, reason
FROM (SELECT *, ifnull((SELECT max(place) FROM event WHERE place > (number << 40) + head AND place < (number + 1) << 40)
                       - (number << 40) - head, 0) AS unsaved FROM stream)
ORDER BY number
"""
"""A stream's row is written every so often; the rows of events above its saved head are acknowledged and stored."""
_OLDEST = """
SELECT lane, body
FROM stream CROSS JOIN event
ON place = (SELECT min(place) FROM event WHERE place > (number << 40) + settled AND place < (number + 1) << 40)
"""
_KEPT = "SELECT key, value FROM kept WHERE key > ? AND key < ?"
COUNTERS = ("acknowledged", "stored", "duplicate", "dead", "sent", "settled_events", "quarantined", "filtered", "dropped")


@contextlib.contextmanager
def _open_read_only(folder: Path) -> Iterator[sqlite3.Connection]:
    path = folder / FILE
    if not path.exists():
        raise Misconfigured(f"there is no outbox in {folder}: no gateway has run with these settings")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection
    except sqlite3.Error as error:
        period = read_full(folder)
        full = f"; {state_of(period, folder).sentence}" if period is not None and period.lasted_s is None else ""
        raise Misconfigured(f"the outbox {path} cannot be read: {error}{full}") from None


def read_status(folder: Path) -> dict[str, Any]:
    """Return the counts per stream and in total, the file's size, the last time without room, the copy, and adapters' states.

    Raises `Misconfigured`.
    """
    with _open_read_only(folder) as connection:
        streams = [{**dict(row), "rules": decode_rules(row["rules"])} for row in connection.execute(_STREAMS)]
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        (gateway,) = connection.execute("SELECT value FROM meta WHERE key = 'gateway'").fetchone()
        kept = [tuple(row) for row in connection.execute(SQL["kept_by_rules"])]
        clients = connection.execute(_KEPT, ["mqtt-client/", "mqtt-client0"]).fetchall()
        bodies = _unfinished(connection)
        ble = connection.execute("SELECT value FROM kept WHERE key = ?", [STATE_KEY]).fetchone()
    totals = {name: sum(stream[name] for stream in streams) for name in (*COUNTERS, "backlog")}
    status = {
        "gateway": gateway,
        "bytes": pages * page_bytes,
        "used_bytes": (pages - free_pages) * page_bytes,
        **totals,
        "rule_problems": problems_of(kept),
        "history": _history(folder),
        "rules": total_by_rule(stream["rules"] for stream in streams),
        "run": msgspec.to_builtins(read_run(folder)),
        "full": _full(folder),
        "copy": msgspec.to_builtins(read_copy(folder)),
        "mqtt_clients": {name: msgspec.to_builtins(state) for name, state in read_clients(map(tuple, clients))},
        "credentials": None if (keys := read_state(folder)) is None else keys._asdict(),
        "unfinished_bodies": Counter(each.device for each in bodies),
        "streams": streams,
    }
    return status if ble is None else {**status, "ble": msgspec.to_builtins(decode_state(ble[0]))}


def show_rest(status: dict[str, Any]) -> None:
    """Print what a status has beside its streams."""
    if status["rules"]:
        counted = [(rule, outcome, f"{events:,}") for rule, each in status["rules"].items() for outcome, events in each.items()]
        show_rows(("rule", "outcome", "events"), counted, "")
    for rule, problem in status["rule_problems"].items():
        show(f"rule {rule}: the last event without a value of its condition: {problem}")
    for name, client in status["mqtt_clients"].items():
        show(f"MQTT client {name}: {msgspec.convert(client, BrokerState).sentence}")
    for device, count in status["unfinished_bodies"].items():
        show(f"device {device}: {count} large bodies that have not come whole")
    if "ble" in status:
        for line in lines_of(msgspec.convert(status["ble"], BleState)):
            show(line)
    if (keys := status["credentials"]) is not None:
        show(CredentialState(**keys).sentence)


def _history(folder: Path) -> dict[str, Any] | None:
    try:
        return history_state(folder)
    except Misconfigured as error:  # all else is still to be seen
        return {"problem": str(error)}


def _full(folder: Path) -> dict[str, Any] | None:
    period = read_full(folder)
    if period is None:
        return None
    state = state_of(period, folder)
    present = {"free_bytes": free_bytes(folder), "sentence": state.sentence, **state._asdict()}
    return {**msgspec.to_builtins(period), **present}


class UnfinishedBody(NamedTuple):
    """A large body that has neither event nor end. `device`: `-` if its note cannot be read.

    `begun_s`: in seconds since 1970, by the gateway's clock.
    """

    device: str
    begun_s: int


def read_unfinished(folder: Path) -> list[UnfinishedBody]:
    """Return the large bodies that have neither event nor end. Raises `Misconfigured`."""
    with _open_read_only(folder) as connection:
        return _unfinished(connection)


def _unfinished(connection: sqlite3.Connection) -> list[UnfinishedBody]:
    found = []
    for key, value in connection.execute(_KEPT, [UNFINISHED, "body0"]):
        with contextlib.suppress(Poison):
            body, note = decode_note(key, value)
            found.append(UnfinishedBody("-" if note is None else note.device, begun_s(body)))
    return found


def read_oldest(folder: Path) -> dict[Lane, float]:
    """Return the age of the oldest unsettled event of each lane that has one, in seconds. Raises `Misconfigured`."""
    with _open_read_only(folder) as connection:
        rows = connection.execute(_OLDEST).fetchall()
    now_ns, ages = time.time_ns(), dict[Lane, float]()
    for row in rows:
        try:
            recorded = decode_event(unpack_body(row["body"])).recordedtime
        except Poison:
            continue
        lane, age_s = Lane(row["lane"]), (now_ns - parse_rfc3339(recorded)) / 1e9
        ages[lane] = max(ages.get(lane, 0.0), age_s)
    return ages


def read_since(folder: Path, since_s: float) -> list[Event]:
    """Return the events of devices in the outbox that came after a time, in seconds since 1970, in their order.

    Raises `Misconfigured`. The bridge has not accepted them yet, or their rows are not deleted yet.
    """
    with _open_read_only(folder) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM event ORDER BY place")]
    events = []
    for body in bodies:
        with contextlib.suppress(Poison):
            event = decode_event(unpack_body(body))
            if event.adapter != "fogline" and event.type != DEAD_TYPE and parse_rfc3339(event.recordedtime) >= since_s * 1e9:
                events.append(event)
    return sorted(events, key=lambda each: each.recordedtime)


def read_events(folder: Path, table: str, limit: int) -> list[dict[str, Any]]:
    """Return the oldest rows of table `event` or `quarantine`, each with its event as text. Raises `Misconfigured`.

    `recorded` (RFC 3339) and `device` are `-` if the event cannot be read.
    """
    with _open_read_only(folder) as connection:
        query = f"SELECT stream, sequence, body FROM {table} ORDER BY stream, sequence LIMIT ?"  # noqa: S608 - our own names
        return [_readable(dict(row)) for row in connection.execute(query, [limit])]


def find_event(folder: Path, event_id: str) -> Event:
    """Return the event of the outbox with this id: the newest, if a rule gave it to several. Raises `Misconfigured`."""
    with _open_read_only(folder) as connection:
        for (stored,) in connection.execute("SELECT body FROM event ORDER BY place DESC"):
            try:
                body = unpack_body(stored)
                if event_id.encode() in body and (event := decode_event(body)).id == event_id:
                    return event
            except Poison:
                continue
    raise Misconfigured(f"no event of the outbox has the id {event_id}: the bridge may have accepted it, or it was not stored")


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    body = unpack_body(row["body"])
    try:
        event = decode_event(body)
    except Poison:
        found = {"recorded": "-", "device": "-"}
    else:
        found = {"recorded": f"{event.recordedtime[:19]}Z", "device": event.device}
    return {**row, **found, "body": body.decode("utf-8", "replace")}
