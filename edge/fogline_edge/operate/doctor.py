"""`fogline-edge doctor`: checks everything that a gateway needs, beside the running gateway or without one."""

import asyncio
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec

from fogline.amqp.client import AmqpClient
from fogline.amqp.login_check import try_login
from fogline.errors import Misconfigured
from fogline.events.large_body import MAX_INLINE_BYTES
from fogline.gateway.hello import PRODUCT
from fogline.gateway.ledger import RuleOutcome
from fogline.message import Property
from fogline.process.checkup import (
    Check,
    Finding,
    Grade,
    check_bridge,
    check_certificate,
    check_clock,
    check_room,
    check_versions,
    examine,
    megabytes,
)
from fogline.process.files.bridge_address import parse_bridge
from fogline.process.files.tls_files import client_context
from fogline.tracing.collector import check_collector
from fogline_edge.adapters.mqtt_client.state import BrokerState
from fogline_edge.ble_settings import BleSettings
from fogline_edge.body_settings import largest_body
from fogline_edge.credentials.credential_file import read_state
from fogline_edge.machine.health import read_machine
from fogline_edge.machine.process_end import EndCause
from fogline_edge.machine.run_record import read_run
from fogline_edge.operate.settings_check import check
from fogline_edge.operate.status import UnfinishedBody, read_oldest, read_status, read_unfinished
from fogline_edge.operate.via_check import check_via
from fogline_edge.outbox.file.copy_file import read_copy
from fogline_edge.outbox.file.data_folder import FILE
from fogline_edge.settings import EdgeSettings, load
from fogline_edge.uplink.way import uplink_proxy, uplink_security

CARD_CYCLES = 300
"""How often a cheap card bears to be written as a whole. docs/alerts.md has the same number."""
LIFE_YEARS = 3.0
CHECK_S = 10.0
"""Time limit of SQLite's check of the whole file. What it does not reach is not examined."""
_HOT_C = 80.0
_MIN_UPTIME_S = 3600.0
_REFUSED = "Check tenant, gateway and [uplink.tls]. A new certificate: fogline gateway add, then fogline-edge enroll"


def diagnose(config: Path) -> Iterator[Finding]:
    """Yield all findings. Changes nothing."""
    yield from check_versions("fogline-edge", version("fogline-edge"), f"SQLite {sqlite3.sqlite_version}")
    try:
        settings = load(config)
    except Misconfigured as error:
        yield Finding(Grade.FAIL, "settings", str(error), "Correct it; docs/reference/settings.md has every key")
        yield from check_clock()
        return
    folder = Path(settings.data)
    checks: dict[str, Check] = {
        "settings": partial(_settings, settings, config),
        "clock": check_clock,
        "gateway": partial(_process, folder),
        "uplink": partial(_uplink, folder),
        "outbox": partial(_outbox, settings),
        "bodies": partial(_bodies, settings),
        "disk": partial(check_room, folder, "disk", _growth(settings)),
        "wear": partial(_wear, folder),
        "power": partial(_power, folder),
        "credentials": partial(_credentials, folder),
    }
    if settings.uplink.tls is not None and settings.uplink.tls.certificate is not None:
        remedy = "Run: fogline-edge renew; after its end: fogline-edge enroll with a new token"
        checks["TLS"] = partial(check_certificate, settings.uplink.tls.certificate, "TLS", remedy)
    for table, path in _listener_certificates(settings):
        remedy = "Replace it; one of Fogline's authority: fogline-edge renew"
        checks[table] = partial(check_certificate, path, table, remedy)
    if settings.uplink.via is not None:
        checks[f"{settings.uplink.via.kind} {settings.uplink.via.url}"] = partial(check_via, settings)
    for bridge in () if settings.uplink.via is not None else settings.uplink.bridges:
        checks[f"bridge {bridge}"] = partial(_bridge, settings, bridge)
    if settings.tracing is not None:
        checks["tracing"] = partial(check_collector, settings.tracing)
    for client in settings.mqtt_clients:
        checks[f"broker {client.name}"] = partial(_broker, folder, client.name)
    if settings.ble is not None:
        checks["bluetooth"] = partial(_bluetooth, settings.ble, folder)
    yield from examine(checks)


def _settings(settings: EdgeSettings, config: Path) -> Iterator[Finding]:
    check(settings)
    yield Finding(Grade.OK, "settings", f"{config}: gateway {settings.gateway} of {settings.tenant}")


def _listener_certificates(settings: EdgeSettings) -> Iterator[tuple[str, str]]:
    """Yield the table of each listener that speaks TLS, and the file of its certificate."""
    if settings.mqtt is not None and settings.mqtt.tls is not None:
        yield "mqtt.tls", settings.mqtt.tls.certificate
    if settings.http is not None and settings.http.tls is not None:
        yield "http.tls", settings.http.tls.certificate


def _bridge(settings: EdgeSettings, bridge: str) -> Iterator[Finding]:
    tls = settings.uplink.tls
    context = None if tls is None else client_context(tls, "uplink.tls")
    found = list(check_bridge(bridge, "uplink.bridge", context, uplink_proxy(settings.uplink)))
    yield from found
    if running_pid(Path(settings.data)) is None and all(each.grade is not Grade.FAIL for each in found):
        yield _login(settings, bridge)  # a second connection would end that of a running gateway


def _login(settings: EdgeSettings, bridge: str) -> Finding:
    """Return whether the bridge lets this gateway in."""
    address = parse_bridge(bridge, "uplink.bridge", tls=settings.uplink.tls is not None)
    properties: dict[str, Property] = {"tenant": settings.tenant, "product": PRODUCT, "version": version("fogline-edge")}

    async def visit() -> str:
        client = AmqpClient(settings.gateway, properties, uplink_security(settings.uplink, address))
        return await try_login(address.host, address.port, client, uplink_proxy(settings.uplink))

    if why := asyncio.run(visit()):
        return Finding(Grade.FAIL, "login", f"{bridge} does not let gateway {settings.gateway} in: {why}", _REFUSED)
    return Finding(Grade.OK, "login", f"{bridge} lets gateway {settings.gateway} in")


def _uplink(folder: Path) -> Iterator[Finding]:
    """Tell whether the running gateway is connected, as it notes it."""
    run = read_run(folder)
    if running_pid(folder) is None or run is None or run.uplink is None:
        return
    remedy = "" if run.uplink.connected else "Its events wait in the outbox. See the lines on DNS, bridge and TLS"
    yield Finding(Grade.OK if run.uplink.connected else Grade.FAIL, "uplink", run.uplink.sentence, remedy)


def _broker(folder: Path, name: str) -> Iterator[Finding]:
    """Tell whether the running gateway's client of a broker is connected, as it notes it. A second client would disturb it."""
    state = read_status(folder)["mqtt_clients"].get(name) if running_pid(folder) is not None else None
    if state is None:
        return
    client = msgspec.convert(state, BrokerState)
    remedy = "" if client.connected else f"Check [[mqtt_clients]] {name}, and whether the broker runs (docs/mqtt-brokers.md)"
    yield Finding(Grade.OK if client.connected else Grade.FAIL, f"broker {name}", client.sentence, remedy)


def _credentials(folder: Path) -> Iterator[Finding]:
    """Tell whether the gateway has the keys of its devices."""
    if (state := read_state(folder)) is None:
        return
    if state.complete:
        yield Finding(Grade.OK, "credentials", f"{state.keys:,} keys of {state.devices:,} devices")
        return
    text = "the keys of devices are lost, so CoAP messages without protection are refused"
    yield Finding(Grade.FAIL, "credentials", text, "Connect it to a bridge with devices.credentials_key, which sends them")


def _growth(settings: EdgeSettings) -> int:
    """Return the bytes by which the outbox may still grow."""
    file = Path(settings.data) / FILE
    return max(0, settings.outbox.max_bytes - (file.stat().st_size if file.exists() else 0))


def running_pid(folder: Path) -> int | None:
    """Return the process that holds the folder's lock. It does not try the lock, so a gateway that starts is not disturbed."""
    try:
        found = (folder / "lock").stat()
        locks = Path("/proc/locks").read_text("ascii")
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    holder = re.search(rf"FLOCK\s+\S+\s+WRITE\s+(-?\d+)\s+{place}\b", locks)
    return int(holder[1]) if holder else None


def _process(folder: Path) -> Iterator[Finding]:
    pid = running_pid(folder)
    if pid is None:
        yield Finding(Grade.WARN, "gateway", "it does not run", "Start it: fogline-edge run")
    else:
        yield Finding(Grade.OK, "gateway", f"it runs, process {pid}")
    run = read_run(folder)
    if run is not None and run.ends and (last := run.ends[-1]).cause is not EndCause.STOPPED:
        text = f"the run before: {last.text}" + (f", at {last.at}" if last.at else "")
        yield Finding(Grade.WARN, "gateway", text, "See docs/operations.md, Why a gateway was started again")
    if read_copy(folder).replaced:
        remedy = "See docs/install-gateway.md, To another machine"
        yield Finding(Grade.FAIL, "gateway", "one that was restored from its backup later has replaced it", remedy)


def _outbox(settings: EdgeSettings) -> Iterator[Finding]:
    folder = Path(settings.data)
    if not (folder / FILE).exists():
        yield Finding(Grade.OK, "outbox", f"none yet in {folder}: the gateway makes it at its first start")
        return
    yield _integrity(folder / FILE)
    status, oldest = read_status(folder), max(read_oldest(folder).values(), default=0.0)
    if (full := status["full"]) is not None:
        yield Finding(Grade.FAIL if full["remedy"] else Grade.OK, "outbox", full["reason"], full["remedy"].capitalize())
    share = status["used_bytes"] / settings.outbox.max_bytes
    waits = f", the oldest for {oldest:,.0f} s" if status["backlog"] else ""
    text = f"{status['backlog']:,} events wait{waits}; {share:.0%} of outbox.max_bytes are used"
    if share >= 0.9:
        remedy = "It is full. Find out why the bridge does not take events (docs/operations.md)"
        yield Finding(Grade.FAIL, "outbox", text, remedy)
    elif share >= 0.8:
        yield Finding(Grade.WARN, "outbox", text, "At 90 % devices have to wait, or the oldest events are dropped")
    else:
        yield Finding(Grade.OK, "outbox", text)
    for name, remedy in (
        ("quarantined", "See: fogline-edge outbox --quarantine"),
        ("dropped", "Gap records name them; docs/operations.md has the reasons"),
    ):
        if status[name]:
            yield Finding(Grade.WARN, "outbox", f"{status[name]:,} events {name}", remedy)
    for rule, outcomes in status["rules"].items():
        yield _rule(rule, outcomes)


def _bodies(settings: EdgeSettings) -> Iterator[Finding]:
    """Tell how large a body may be, and whether large bodies come and end as they should."""
    folder, limits = Path(settings.data), settings.bodies
    most = largest_body(limits, settings.outbox.max_bytes)
    if most < limits.max_bytes:
        text = f"bodies of more than {megabytes(most)} are refused: they must fit into a quarter of outbox.max_bytes"
        yield Finding(Grade.WARN, "bodies", text, "Raise outbox.max_bytes, or lower bodies.max_bytes")
    found = read_unfinished(folder) if (folder / FILE).exists() else []
    runs = running_pid(folder) is not None
    late = [each for each in found if runs and time.time() - each.begun_s > limits.max_time_s + limits.idle_timeout_s]
    if late:
        text = f"{_of_devices(late)} have neither event nor end after {limits.max_time_s:,.0f} s"
        yield Finding(Grade.WARN, "bodies", text, "Their ends wait for room: see the lines on outbox")
    if runs and len(found) >= limits.max_uploads:
        text = f"all {limits.max_uploads} places of bodies.max_uploads are taken: {_of_devices(found)}; others have to wait"
        yield Finding(Grade.WARN, "bodies", text, "Raise bodies.max_uploads, or lower bodies.idle_timeout_s")
    if not runs and found:
        text = f"{_of_devices(found)} had not come whole when the gateway ended"
        yield Finding(Grade.OK, "bodies", f"{text}: it ends them at its next start")
    if not most:
        yield Finding(Grade.OK, "bodies", f"none of more than {MAX_INLINE_BYTES:,} bytes is taken: bodies.max_bytes is 0")
        return
    private = ", ".join(each.name for each in settings.rules.private)
    refused = f"; rules of private fields refuse them: {private}" if private else ""
    yield Finding(Grade.OK, "bodies", f"they may have {megabytes(most)}; {len(found) if runs else 0} come now{refused}")


def _of_devices(bodies: Sequence[UnfinishedBody]) -> str:
    counts = Counter(sorted(each.device for each in bodies))
    devices = ", ".join(f"{count} of {device}" for device, count in counts.most_common(5))
    return f"{len(bodies)} large bodies ({devices}{', ...' if len(counts) > 5 else ''})"


def _rule(rule: str, outcomes: dict[str, int]) -> Finding:
    """Return what a rule did with events so far."""
    text = f"rule {rule}: " + ", ".join(f"{events:,} {outcome}" for outcome, events in sorted(outcomes.items()))
    if doubtful := outcomes.keys() & {RuleOutcome.UNIDENTIFIED, RuleOutcome.CONFLICT, RuleOutcome.IN_DOUBT}:
        remedy = f"docs/rules.md says what {' and '.join(sorted(doubtful))} means; fogline-edge explain shows what rules do"
        return Finding(Grade.WARN, "rules", text, remedy)
    return Finding(Grade.OK, "rules", text)


def _integrity(path: Path) -> Finding:
    deadline = time.monotonic() + CHECK_S
    try:
        connection = sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True, timeout=5.0)
        try:
            connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return Finding(Grade.OK, "outbox", f"no damage found within {CHECK_S:.0f} s in {path}")
        return _damaged(path, str(error))
    except sqlite3.DatabaseError as error:
        return _damaged(path, str(error))
    return Finding(Grade.OK, "outbox", f"{path} is sound") if found == "ok" else _damaged(path, str(found))


def _damaged(path: Path, why: str) -> Finding:
    remedy = "Restart the gateway: it saves what is readable (docs/operations.md). Then check the card"
    return Finding(Grade.FAIL, "outbox", f"{path} is damaged or cannot be read: {' '.join(why.split())}", remedy)


def _wear(folder: Path) -> Iterator[Finding]:
    machine = read_machine(folder)
    if machine.disk_life_used is not None:
        grade = Grade.WARN if machine.disk_life_used >= 0.8 else Grade.OK
        remedy = "Replace the card before it fails" if grade is Grade.WARN else ""
        yield Finding(grade, "wear", f"the disk reports that {machine.disk_life_used:.0%} of its life are used", remedy)
    uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    written, size = machine.disk_written_bytes, machine.disk_size_bytes
    if written is None or not size:
        yield Finding(Grade.OK, "wear", "unknown: the kernel has no counts for this file system")
    elif uptime_s < _MIN_UPTIME_S:
        yield Finding(Grade.OK, "wear", f"{megabytes(written)} written; the machine runs for less than an hour")
    else:
        a_day = written / uptime_s * 86_400
        years = size * CARD_CYCLES / max(a_day, 1) / 365
        text = f"all programs write {megabytes(a_day)} a day: a card of {megabytes(size)} bears that for {years:,.1f} years"
        short = years < LIFE_YEARS
        remedy = "Raise outbox.group_commit_ms, or use a card made for writing" if short else ""
        yield Finding(Grade.WARN if short else Grade.OK, "wear", text, remedy)


def _power(folder: Path) -> Iterator[Finding]:
    machine = read_machine(folder)
    if machine.undervoltage:
        remedy = "Replace the supply or its cable: undervoltage damages cards"
        yield Finding(Grade.WARN, "power", "the supply voltage is too low", remedy)
    elif machine.undervoltage is not None:
        yield Finding(Grade.OK, "power", "the supply voltage is right")
    if machine.temperature_c is not None:
        hot = machine.temperature_c > _HOT_C
        text = f"{machine.temperature_c:.0f} degrees Celsius"
        yield Finding(Grade.WARN if hot else Grade.OK, "temperature", text, "Cool it" if hot else "")


def _bluetooth(ble: BleSettings, folder: Path, sys: Path = Path("/sys")) -> Iterator[Finding]:
    adapters = sorted(each.name for each in (sys / "class/bluetooth").glob("hci*") if ":" not in each.name)
    blocked = [each for each in (sys / "class/rfkill").glob("rfkill*") if _is_blocked(each)]
    if not adapters:
        yield Finding(Grade.FAIL, "bluetooth", "there is no adapter", "Plug one in; check `lsusb` and `dmesg`")
    elif ble.adapter is not None and ble.adapter.startswith("hci") and ble.adapter not in adapters:
        yield Finding(Grade.FAIL, "bluetooth", f"there is no {ble.adapter}, only {', '.join(adapters)}", "Change ble.adapter")
    elif blocked:
        yield Finding(Grade.FAIL, "bluetooth", "the radio is blocked", "Run: rfkill unblock bluetooth")
    else:
        yield Finding(Grade.OK, "bluetooth", f"adapter {', '.join(adapters)}")
    state = read_status(folder).get("ble") if (folder / FILE).exists() else None
    if state is not None and state["problem"]:
        yield Finding(Grade.WARN, "bluetooth", f"at {state['at']}: {state['problem']}", "See docs/bluetooth.md")


def _is_blocked(switch: Path) -> bool:
    def read(name: str) -> str:
        return (switch / name).read_text("ascii").strip()

    return read("type") == "bluetooth" and "1" in (read("soft"), read("hard"))
