"""`fogline doctor`: check everything that bridges, flow and operators need on this machine."""

import argparse
import asyncio
import http.client
import subprocess
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cryptography import x509

from fogline.amqp.client import AmqpClient
from fogline.amqp.login_check import try_login
from fogline.errors import Misconfigured
from fogline.installed import find_jars, find_java
from fogline.process import checkup
from fogline.process.checkup import Check, Finding, Grade
from fogline.process.files.settings_file import split_endpoint
from fogline.process.files.tls_files import client_context
from fogline.tracing.collector import check_collector
from fogline_cloud.authority.own_certificate import own_certificate_problems
from fogline_cloud.cli.common import add_command
from fogline_cloud.cli.operators.operator_link import refused
from fogline_cloud.commands.client.operator_security import operator_security
from fogline_cloud.credentials.vault import read_vault
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings, load
from fogline_cloud.shard import topic_admin
from fogline_cloud.store.options import LOG_STORE, uses_store

_HTTP_S = 5.0
_CRL_WARN_SHARE = 1 / 3
"""Share of its time below which a list of revoked certificates is said to end soon."""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the command."""
    about = "check settings, Kafka, bridge, certificates, disk and clock; exit status 1 if something fails"
    add_command(groups, "doctor", run_doctor, about, epilog="example: fogline doctor --config cloud.toml")


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print the findings as they come."""
    return checkup.show(_diagnose(arguments.config), as_json=arguments.json)


def _diagnose(config: Path) -> Iterator[Finding]:
    yield from checkup.check_versions("fogline-cloud", version("fogline-cloud"))
    try:
        settings = load(config, kafka=False)
    except Misconfigured as error:
        yield Finding(Grade.FAIL, "settings", str(error), "Correct it; docs/reference/settings.md has every key")
        return
    yield Finding(Grade.OK, "settings", f"{config}: tenant {settings.tenant}, {settings.shards} shards")
    yield from checkup.examine(_checks(settings))


def _checks(settings: CloudSettings) -> dict[str, Check]:
    checks: dict[str, Check] = {
        "clock": checkup.check_clock,
        "Kafka": partial(_kafka, settings),
        "bridge": partial(_bridge, settings),
        "certificate": partial(_own_certificate, settings),
        "store": partial(_store, settings),
        "bodies": partial(_bodies, settings),
        "credentials": partial(_credentials, settings),
    }
    if find_spec("pyspark") is not None:
        checks["Java"] = _java
    for where, tls in (("bridge.tls", settings.bridge.tls), ("operator.tls", settings.operator.tls)):
        if tls is not None and tls.certificate is not None:
            checks[where] = partial(checkup.check_certificate, tls.certificate, "TLS", "Make a new one: fogline ca issue")
    if settings.bridge.crl is not None:
        checks["CRL"] = partial(_revoked, settings.bridge.crl)
    if settings.tracing is not None:
        checks["tracing"] = partial(check_collector, settings.tracing)
    for name, address in (("bridge", settings.bridge.metrics), ("flow", settings.flow.metrics), ("api", settings.api.metrics)):
        if address is not None:
            checks[f"{name} health"] = partial(_health, name, address)
    for what, place in (("tables", settings.flow.tables), ("checkpoint", settings.flow.checkpoint)):
        if place and "://" not in place:
            checks[what] = partial(checkup.check_room, Path(place), what)
    return checks


def _credentials(settings: CloudSettings) -> Iterator[Finding]:
    if (path := settings.devices.credentials_key) is None:
        return
    try:
        read_vault(settings.tenant, path)
    except Misconfigured as error:
        yield Finding(Grade.FAIL, "credentials", str(error), "All bridges of the tenant need the same file")
    else:
        yield Finding(Grade.OK, "credentials", f"{path} can seal and open the keys of devices")


def _own_certificate(settings: CloudSettings) -> Iterator[Finding]:
    for each in own_certificate_problems(settings):
        yield Finding(Grade.FAIL, "certificate", each)


def _kafka(settings: CloudSettings) -> Iterator[Finding]:
    if not settings.kafka.get("bootstrap.servers"):
        yield Finding(Grade.OK, "Kafka", "not in these settings: bridge, API and flow need it, operators do not")
        return
    clients = KafkaClients(settings.kafka)
    problems = topic_admin.check_topics(clients, settings)
    for each in problems:
        yield Finding(Grade.FAIL, "Kafka", each)
    if problems:
        return
    yield Finding(Grade.OK, "Kafka", f"{settings.kafka['bootstrap.servers']} has the topics of {settings.tenant}")
    if weak := topic_admin.check_replication(clients, settings):
        remedy = "Events can be lost with one broker: have three, and replicas for these topics"
        yield Finding(Grade.WARN, "Kafka", f"{weak[0]}; {len(weak)} topics in all", remedy)


def _java() -> Iterator[Finding]:
    try:
        done = subprocess.run([find_java(), "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (Misconfigured, OSError, subprocess.TimeoutExpired) as error:
        yield Finding(Grade.WARN, "Java", str(error), "Only the flow needs it")
        return
    yield Finding(Grade.OK, "Java", (done.stderr or done.stdout).partition("\n")[0])


def _bridge(settings: CloudSettings) -> Iterator[Finding]:
    key = "operator.bridge" if settings.operator.bridge else "bridge.listen"
    endpoint = settings.operator.bridge or settings.bridge.advertised or settings.bridge.listen
    own = settings.operator.tls
    if own is None and settings.bridge.tls is not None:
        yield Finding(
            Grade.WARN, "bridge", f"{endpoint} is not tried", "Set [operator.tls] ca, so that its certificate is checked"
        )
        return
    found = list(checkup.check_bridge(endpoint, key, None if own is None else client_context(own, "operator.tls")))
    yield from found
    if any(each.grade is Grade.FAIL for each in found):
        return
    host, port = split_endpoint(endpoint, key)
    security = operator_security(settings.operator, host)

    async def visit() -> str:
        client = AmqpClient(f"doctor-{uuid.uuid4().hex[:12]}", {"tenant": settings.tenant}, security)
        return await try_login(host, port, client)

    if why := asyncio.run(visit()):
        yield Finding(Grade.FAIL, "login", str(refused(host, port, why)))
    else:
        yield Finding(Grade.OK, "login", f"{endpoint} lets this operator in")


def _store(settings: CloudSettings) -> Iterator[Finding]:
    if not uses_store(settings):
        return
    from fogline_cloud.store.probe import check_store  # noqa: PLC0415 - only where tables are in a store

    if find_spec("pyspark") is not None:
        find_jars("s3")
    for key, value in settings.flow.spark.items():
        if key.startswith("spark.delta.logStore.") and value != LOG_STORE:
            remedy = "Delete it, unless you know that this class never overwrites a commit of another program"
            yield Finding(Grade.WARN, "store", f'[flow.spark] "{key}" = {value} is not {LOG_STORE}', remedy)
    check_store(settings)
    where = settings.store.endpoint or "Amazon S3"
    keys = settings.store.key_file or "keys of the environment"
    yield Finding(Grade.OK, "store", f"{where} takes {keys}, has the bucket, and knows put-if-absent")


def _bodies(settings: CloudSettings) -> Iterator[Finding]:
    """Tell whether large bodies can be written, and whether they are deleted after their time."""
    if not settings.flow.tables or find_spec("obstore") is None:
        return
    from fogline_cloud.maintenance.body_check import overdue, why_not_writable  # noqa: PLC0415 - needs the store's library

    place = f"{settings.flow.tables.rstrip('/')}/bodies"
    if "://" not in place and not Path(place).exists():
        yield Finding(Grade.OK, "bodies", f"none yet in {place}")
        return
    if why := why_not_writable(settings):
        remedy = "The flow takes no large body until it can write there: check owner, room and the rights of its keys"
        yield Finding(Grade.FAIL, "bodies", why, remedy)
        return
    yield Finding(Grade.OK, "bodies", f"{place} can be written")
    late = overdue(settings, datetime.now(UTC))
    if not any(late):
        yield Finding(Grade.OK, "bodies", "none is kept longer than tables.body_days and tables.ended_body_hours")
        return
    text = f"{sum(late):,} large bodies should be deleted: {late.expired:,} older than tables.body_days, {late.ended:,} ended"
    remedy = "Run: fogline table maintain. A flow runs it, too, unless tables.maintain_every_min is 0; its log says if it fails"
    yield Finding(Grade.WARN, "bodies", text, remedy)


def _revoked(path: str) -> Iterator[Finding]:
    remedy = "Run: fogline ca crl, on the authority's machine. Bridges refuse new connections when the list has ended"
    try:
        found = x509.load_pem_x509_crl(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        yield Finding(Grade.FAIL, "CRL", f"{path} holds no readable list: {error}", remedy)
        return
    if (end := found.next_update_utc) is not None:
        warn_days = (end - found.last_update_utc).total_seconds() / 86_400 * _CRL_WARN_SHARE  # it is signed anew every so often
        yield checkup.graded_end(end, "CRL", f"list of revoked certificates {path}", remedy, warn_days)


def _health(name: str, address: str) -> Iterator[Finding]:
    host, port = split_endpoint(address, f"{name}.metrics")
    connection = http.client.HTTPConnection(host, port, timeout=_HTTP_S)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        text = response.read(1000).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        yield Finding(Grade.WARN, name, f"{address} serves no health: {error}", f"Does it run here? fogline {name} run")
        return
    finally:
        connection.close()
    if response.status == http.HTTPStatus.OK:
        yield Finding(Grade.OK, name, "it is healthy")
    else:
        yield Finding(Grade.FAIL, name, text, "Its log says more")
