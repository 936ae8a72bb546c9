"""`fogline audit`: show the decisions of the bridges, and prove that none was deleted or changed since."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fogline.address import printable
from fogline.documents.document_error import explained
from fogline.errors import Misconfigured, Poison, Unreachable
from fogline.process.console.command_line import add_limit
from fogline.process.console.listing import show_rows, utc
from fogline.process.console.terminal import show, tell
from fogline_cloud.audit.chain import AuditLink, ChainCheck
from fogline_cloud.audit.record import AuditRecord, decode_audit
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.settings import CloudSettings, load
from fogline_cloud.shard.recovery import read_checkpoint

EXAMPLE = """\
examples:
  fogline audit show --about gw-1                   who was refused, connected, cut off; commands and their ends
  fogline audit verify                              check that no record is missing or was changed
  fogline audit verify --noted audit-links.json     compares with the links of the last time too, and notes the new ones

exit status: 0 done, 1 a record is missing or was changed, 2 the input or the settings are wrong, 130 Ctrl-C
"""
_Links = dict[str, AuditLink]


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "audit", "show and verify the bridges' decisions", description=__doc__, **raw)
    show = add_command(commands, "show", run_show, "print the records, oldest first", **raw)
    show.add_argument("--about", default="", help="only records with this text: a name, a device, a command id")
    add_limit(show, 1000, "the newest")
    verify = add_command(commands, "verify", run_verify, "check the chain of each shard", **raw)
    verify.add_argument("--noted", type=Path, help="file with the links of the last time; kept on another machine")


def run_show(arguments: argparse.Namespace) -> int:
    """Print the records."""
    settings = load(arguments.config)
    found = [record for record in _records(settings) if arguments.about in msgspec.json.encode(record).decode()]
    found.sort(key=lambda each: each.time_ms)
    shown = found[-arguments.limit :]
    if arguments.json:
        for record in shown:
            show(msgspec.json.encode(record).decode())
        return 0
    empty = f"no decision is about {arguments.about}" if arguments.about else "the bridges have decided nothing yet"
    show_rows(("time", "decision", "who", "about", "why"), [row_of(each) for each in shown], empty, len(found) - len(shown))
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """Print what is wrong. Return 1 if anything is."""
    settings = load(arguments.config)
    clients = KafkaClients(settings.kafka)
    noted = _noted(arguments.noted)
    checks = []
    beyond = _beyond(clients, settings)
    stray = [f"{each.topic}[{each.partition}] at offset {each.offset}: no bridge writes there" for each in beyond]
    for shard in range(settings.shards):
        links = [*_written(clients, settings.tenant, shard), noted.get(str(shard), AuditLink())]
        checks.append(check := ChainCheck(f"{topics.audit(settings.tenant)}[{shard}]", links))
        for stored in _stored(clients, settings.tenant, [shard]):
            check.add(stored.offset, stored.value)
        check.finish()
    problems = [each for check in checks for each in check.problems] + stray
    total = sum(check.end.number - check.first + 1 for check in checks if check.first)
    ends = {str(shard): check.end for shard, check in enumerate(checks)}
    if arguments.noted is not None and not problems:
        _write_noted(arguments.noted, ends)
    if arguments.json:
        show(json.dumps({"ok": not problems, "records": total, "links": msgspec.to_builtins(ends), "problems": problems}))
    elif not problems:
        show(f"{total} records in {settings.shards} chains: none is missing, none was changed")
    for each in problems:
        tell(f"{each}")
    return 1 if problems else 0


def _written(clients: KafkaClients, tenant: str, shard: int) -> list[AuditLink]:
    """Return the end of a shard's chain by its checkpoint, if this user of Kafka may read that."""
    try:
        return [read_checkpoint(clients, tenant, shard, stable=True).audit_end]
    except Unreachable as error:
        tell(f"the end of the chain is not compared with the checkpoint: {error}")
        return []


def _beyond(clients: KafkaClients, settings: CloudSettings) -> Iterator[CommittedRecord]:
    """Return the records of partitions that are no shard's: somebody has added them to the topic."""
    count = clients.topics().get(topics.audit(settings.tenant), 0)
    return _stored(clients, settings.tenant, range(settings.shards, count))


def _records(settings: CloudSettings) -> Iterator[AuditRecord]:
    for stored in _stored(KafkaClients(settings.kafka), settings.tenant, range(settings.shards)):
        try:
            yield decode_audit(stored.value)
        except Poison as error:
            tell(f"{stored.topic}[{stored.partition}] at offset {stored.offset}: not readable: {error}")


def _stored(clients: KafkaClients, tenant: str, shards: "range | list[int]") -> Iterator[CommittedRecord]:
    starts = {(topics.audit(tenant), shard): None for shard in shards}
    return (each for each in read_committed(clients, starts, stable=True) if each.value)


def _noted(path: Path | None) -> _Links:
    if path is None or not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Links)
    except (OSError, msgspec.MsgspecError) as error:
        raise Misconfigured(f"--noted {path}: cannot read the links: {explained(error, _Links)}") from None


def _write_noted(path: Path, links: _Links) -> None:
    try:
        path.write_bytes(msgspec.json.encode(links))
    except OSError as error:
        raise Misconfigured(f"--noted {path}: cannot write: {error.strerror}") from None


def row_of(record: AuditRecord) -> tuple[str, ...]:
    """Return a record for a person: its time, the decision, who asked, what it is about, and why."""
    facts = (("device", record.device), ("gateway", record.gateway), ("command", record.command), ("", record.name))
    details = " ".join(f"{name} {value}".strip() for name, value in facts if value)
    row = utc(record.time_ms / 1000), record.decision, record.who or "-", details, record.why
    return tuple(map(printable, row))
