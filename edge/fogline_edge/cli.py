"""`fogline-edge`: the gateway's command."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fogline.errors import Misconfigured, Poison
from fogline.gateway.enrolment import decode_token
from fogline.installed import settings_folder
from fogline.process import checkup
from fogline.process.checkup import certificate_problem
from fogline.process.console import command_line
from fogline.process.console.command_line import Parser, ShowVersion, add_limit, add_watch
from fogline.process.console.completion import add_completion
from fogline.process.console.journal import name_gateway
from fogline.process.console.listing import show_rows
from fogline.process.console.terminal import show, tell
from fogline.process.files.owner import become_owner
from fogline.process.files.tls_files import require_tls
from fogline.process.one_cpu import stay_on_one_cpu
from fogline_edge.gateway import run_gateway
from fogline_edge.history.history_command import add_history
from fogline_edge.machine.run_record import RunState, lines_of_run
from fogline_edge.operate.first_settings import FILE, ask, next_steps, require_none, write_first
from fogline_edge.operate.settings_check import check, require_bluetooth
from fogline_edge.operate.status import read_events, read_status, show_rest
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer.quarantine import EventKey
from fogline_edge.profiles.ble_files import built_in_profiles, find_profiles
from fogline_edge.rule_trial.commands import add_rules
from fogline_edge.rule_trial.explain import add_explain
from fogline_edge.settings import EdgeSettings, ProxySettings, load

EXAMPLE = """\
examples:
  fogline-edge init                                     ask three questions, and write edge.toml
  fogline-edge enroll - --bridge fog.example:5671       get a certificate, and settings that run
  fogline-edge check --config edge.toml      check the settings
  fogline-edge run --config edge.toml        serve devices until Ctrl-C
  fogline-edge status --config edge.toml     show how much is stored, sent and accepted
  fogline-edge doctor --config edge.toml     check everything, with a remedy for each fault
  fogline-edge explain --device press-7 --channel plant/7/state reading.json
                                             show what the rules of the settings do with an event
  fogline-edge diag --config edge.toml       pack logs, settings and state into an archive without secrets
  fogline-edge outbox --config edge.toml     show the waiting events, oldest first
  fogline-edge outbox --quarantine --resend  resend the events that the bridge rejected
  fogline-edge backup gw-1.backup            write the gateway with its keys into one file; it may run meanwhile
  fogline-edge restore gw-1.backup           make the gateway of a backup on another machine
  fogline-edge reset --yes-wipe-everything   revoke the certificate, delete data, keys and settings
  fogline-edge ble scan                      show the Bluetooth devices in range, and their profiles
"""
BLE_EXAMPLE = """\
examples:
  fogline-edge ble scan                            show a live table, until Ctrl-C
  fogline-edge ble scan --seconds 20 --json        print JSON after 20 seconds
  fogline-edge ble scan --profile lock.toml        use a profile of your own
"""
_RAW = argparse.RawDescriptionHelpFormatter
_COLUMNS = ("lane", "stream", "stored", "duplicate", "filtered", "dead", "sent", "settled", "backlog", "dropped", "quarantined")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = Parser(prog="fogline-edge", description=__doc__, epilog=EXAMPLE, formatter_class=_RAW)
    parser.add_argument("--version", action=ShowVersion, distribution="fogline-edge")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name, run, text in (
        ("run", run_run, "serve devices until Ctrl-C"),
        ("check", run_check, "check the settings"),
        ("renew", run_renew, "renew the certificate of a gateway that was enrolled"),
        ("status", run_status, "show how much is stored, sent and accepted"),
        ("outbox", run_outbox, "show the waiting events, oldest first"),
        ("doctor", run_doctor, "check everything; a line each, with the remedy; exit status 1 if something fails"),
        ("diag", run_diag, "pack logs, settings without secrets, statistics and the outbox's health into an archive"),
        ("backup", run_backup, "write outbox, settings, keys and certificate into one file, also while the gateway runs"),
        ("reset", run_reset, "revoke the certificate, and delete data, keys, certificates and settings"),
    ):
        command = commands.add_parser(name, help=text, epilog=f"example: fogline-edge {name} --config edge.toml")
        which = "the settings file (default: edge.toml, here or in /etc/fogline)"
        command.add_argument("--config", type=Path, default=settings_folder(FILE) / FILE, help=which)
        command.set_defaults(run=run)
        if name == "run":
            command.add_argument(
                "--insecure-dev", action="store_true", help="connect without TLS: on loopback, for development only"
            )
            bound = "end in order above this memory, for a service manager that starts it again (default: 0, no bound)"
            command.add_argument("--max-memory-mib", type=int, default=0, metavar="MIB", help=bound)
        if name == "diag":
            command.add_argument("--out", type=Path, default=Path(), help="folder of the archive (default: this one)")
        if name == "backup":
            command.add_argument("file", type=Path, help="the file to write; it holds keys, and only its owner may read it")
        if name == "reset":
            command.add_argument("--yes-wipe-everything", action="store_true", help="without it, nothing is done")
        if name != "run":
            command.add_argument("--json", action="store_true", help="print JSON")
        if name == "status":
            add_watch(command)
        if name == "outbox":
            add_limit(command, 20, "the oldest")
            command.add_argument("--quarantine", action="store_true", help="show the events that the bridge rejected for good")
            act = command.add_mutually_exclusive_group()
            act.add_argument("--delete", action="store_true", help="delete the listed events (stop the gateway first)")
            act.add_argument("--resend", action="store_true", help="resend the listed events (stop the gateway first)")
    add_history(commands, settings_folder(FILE) / FILE)
    _add_init(commands)
    _add_enroll(commands)
    _add_restore(commands)
    add_explain(commands)
    _add_ble(commands)
    add_rules(commands)
    add_completion(commands, parser.prog, build_parser)
    return parser


def _add_init(commands: Any) -> None:
    example = "example: fogline-edge init --tenant acme --gateway gw-1 --bridge fog.example:5671"
    init = commands.add_parser("init", help="ask three questions, and write settings with comments", epilog=example)
    init.add_argument("--tenant", help="owner of the devices; asked for if it is missing, as are the next two")
    init.add_argument("--gateway", help="name of this gateway, unique within the tenant")
    init.add_argument("--bridge", help="address of the bridge, host:port")
    text = "folder of the settings (default: this one; /etc/fogline with the Debian package)"
    init.add_argument("--out", type=Path, default=settings_folder(FILE), help=text)
    init.add_argument("--json", action="store_true", help="print JSON")
    init.set_defaults(run=run_init)


def _add_enroll(commands: Any) -> None:
    example = "example: fogline-edge enroll - --bridge fog.example:5671"
    enrolling = commands.add_parser("enroll", help="get a certificate, and write settings that run", epilog=example)
    text = "token of `fogline gateway add`, which `ps` shows; - (the default): it is a line of the standard input"
    enrolling.add_argument("token", nargs="?", default="-", help=text)
    enrolling.add_argument("--bridge", required=True, help="address of the bridge, host:port")
    text = "proxy on the way to the bridge, socks5://user@host:port or http://user@host:port; the settings name it too"
    enrolling.add_argument("--proxy", metavar="URL", help=text)
    enrolling.add_argument("--proxy-password-file", type=Path, metavar="FILE", help="file whose first line is its password")
    text = "folder of the settings (default: this one; /etc/fogline with the Debian package)"
    enrolling.add_argument("--out", type=Path, default=settings_folder(FILE), help=text)
    enrolling.add_argument("--json", action="store_true", help="print JSON")
    enrolling.set_defaults(run=run_enroll)


def _add_restore(commands: Any) -> None:
    example = "example: sudo fogline-edge restore gw-1.backup"
    restoring = commands.add_parser("restore", help="make the gateway of a backup; overwrites nothing", epilog=example)
    restoring.add_argument("file", type=Path, help="a file of `fogline-edge backup`")
    text = "folder of the settings (default: this one; /etc/fogline with the Debian package)"
    restoring.add_argument("--out", type=Path, default=settings_folder(FILE), help=text)
    restoring.add_argument("--json", action="store_true", help="print JSON")
    restoring.set_defaults(run=run_restore)


def _add_ble(commands: Any) -> None:
    ble = commands.add_parser("ble", help="Bluetooth LE devices", epilog=BLE_EXAMPLE, formatter_class=_RAW)
    actions = ble.add_subparsers(title="commands", metavar="COMMAND", required=True)
    found = actions.add_parser(
        "scan", help="list the devices in range, and the settings to add for them", epilog=BLE_EXAMPLE, formatter_class=_RAW
    )
    found.add_argument("--seconds", type=float, help="duration (default: until Ctrl-C; 10 if the output is no terminal)")
    found.add_argument("--adapter", help="name (hci1) or address of the adapter (default: the first)")
    found.add_argument("--profile", type=Path, action="append", default=[], help="a profile of your own; may be repeated")
    found.add_argument("--json", action="store_true", help="print JSON at the end")
    found.set_defaults(run=run_ble_scan)


def run_ble_scan(arguments: argparse.Namespace) -> int:
    """Scan until Ctrl-C."""
    require_bluetooth()
    from fogline_edge.adapters.ble.scan import scan  # noqa: PLC0415 - bleak is installed on Linux only

    profiles = [*find_profiles([str(each) for each in arguments.profile], "--profile"), *built_in_profiles().values()]
    seconds = arguments.seconds or (None if sys.stdout.isatty() else 10.0)
    asyncio.run(scan(profiles, seconds, arguments.adapter, as_json=arguments.json))
    return 0


def run_run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    settings = load(arguments.config)
    require_tls(settings.uplink.tls, "uplink.tls", insecure_dev=arguments.insecure_dev)
    name_gateway(settings.tenant, settings.gateway)
    if settings.one_cpu:
        stay_on_one_cpu()
    announce = partial(command_line.announce, ready="gateway", name=settings.gateway)
    bound = arguments.max_memory_mib
    asyncio.run(run_gateway(settings, lambda addresses: announce(**addresses), arguments.config, bound))
    return 0


def run_init(arguments: argparse.Namespace) -> int:
    """Write the first settings."""
    become_owner(arguments.out)
    path = arguments.out / FILE
    require_none(path)
    first = ask({"tenant": arguments.tenant, "gateway": arguments.gateway, "bridge": arguments.bridge})
    write_first(path, first, tls=first.with_tls)
    steps = next_steps(first, arguments.out)
    if arguments.json:
        show(json.dumps({"settings": str(path), **first._asdict(), "next": steps}))
    else:
        for line in (f"wrote {path}. Next:", *(f"  {step}" for step in steps)):
            show(line)
    return 0


def run_enroll(arguments: argparse.Namespace) -> int:
    """Get the gateway's first certificate."""
    from fogline_edge.operate.enrolment import enroll  # noqa: PLC0415 - takes 6 MB, which a gateway that runs does not need

    try:
        word = arguments.token
        token = decode_token(_typed_token() if word == "-" else word)
    except Poison as error:
        raise Misconfigured(str(error)) from None
    become_owner(arguments.out)
    file = arguments.proxy_password_file
    proxy = None if arguments.proxy is None else ProxySettings(url=arguments.proxy, password_file=file and str(file.absolute()))
    settings = enroll(token, arguments.bridge, arguments.out, proxy)
    text = f"gateway {token.gateway} of {token.tenant} is enrolled. Run: fogline-edge run --config {settings}"
    facts = {"gateway": token.gateway, "tenant": token.tenant, "settings": str(settings)}
    show(json.dumps(facts) if arguments.json else text)
    return 0


def _typed_token() -> str:
    if sys.stdin.isatty():
        sys.stderr.write("token: ")
        sys.stderr.flush()
    return sys.stdin.readline()


def run_renew(arguments: argparse.Namespace) -> int:
    """Get a new certificate."""
    from fogline_edge.operate.enrolment import renew  # noqa: PLC0415 - see `run_enroll`

    become_owner(arguments.config.parent)
    settings = load(arguments.config)
    renew(settings)
    text = "the certificate was renewed; the gateway shows it with its next connection"
    show(json.dumps({"gateway": settings.gateway, "renewed": True}) if arguments.json else text)
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Check the settings. Raises `Misconfigured`."""
    settings = load(arguments.config)
    check(settings, arguments.config)
    tls = settings.uplink.tls
    if tls is not None and tls.certificate and (why := certificate_problem(tls.certificate, "uplink.tls.certificate")):
        raise Misconfigured(f"{why}. Run: fogline-edge renew; after its end: fogline-edge enroll with a new token")
    facts = {"settings": str(arguments.config), "gateway": settings.gateway, "tenant": settings.tenant, "data": settings.data}
    text = f"{arguments.config} is valid: gateway {settings.gateway} of {settings.tenant}, outbox in {settings.data}"
    show(json.dumps(facts) if arguments.json else text)
    return 0


def run_status(arguments: argparse.Namespace) -> int:
    """Print the counts."""
    status = read_status(Path(load(arguments.config).data))
    if arguments.json:
        show(json.dumps(status))
        return 0
    show(f"gateway {status['gateway']}, {status['bytes']:,} bytes")
    if status["run"]:
        for line in lines_of_run(msgspec.convert(status["run"], RunState)):
            show(line)
    if status["full"]:
        show(status["full"]["sentence"])
    if (copy := status["copy"])["restored"]:
        show(f"it was restored from a backup of {copy['restored']}")
    if copy["replaced"]:
        show("it was replaced by a gateway that was restored from its backup later: it only delivers what it has")
    rows = [[each[name] for name in _COLUMNS] for each in status["streams"]]
    show_rows(_COLUMNS, rows, "no device has sent an event yet")
    show_rest(status)
    return 0


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print the findings as they come."""
    from fogline_edge.operate.doctor import diagnose  # noqa: PLC0415 - not needed to run

    return checkup.show(diagnose(arguments.config), as_json=arguments.json)


def run_diag(arguments: argparse.Namespace) -> int:
    """Write the archive."""
    from fogline_edge.operate.diagnosis_archive import write_archive  # noqa: PLC0415 - not needed to run

    path = write_archive(arguments.config, arguments.out)
    show(json.dumps({"archive": str(path)}) if arguments.json else f"wrote {path}. Look into it before you send it")
    return 0


def run_backup(arguments: argparse.Namespace) -> int:
    """Write the backup."""
    from fogline_edge.operate.backup import write_backup  # noqa: PLC0415 - not needed to run

    made = write_backup(arguments.config, arguments.file)
    if arguments.json:
        show(json.dumps({"file": str(arguments.file), **made._asdict()}))
        return 0
    show(f"wrote {arguments.file}: the outbox as of {made.made}, and {', '.join(made.files)}")
    for each in made.left_out:
        tell(f"warning: {each} is not in it, because it is not in the folder of the settings")
    tell("warning: the file holds the gateway's private keys and passwords: whoever has it can speak for it")
    return 0


def run_restore(arguments: argparse.Namespace) -> int:
    """Make the gateway of a backup, with a certificate of its own if the bridge can be reached."""
    from fogline_edge.operate.backup import renew_restored, restore  # noqa: PLC0415 - not needed to run

    made = restore(arguments.file, arguments.out)
    not_renewed = renew_restored(made.settings)
    if arguments.json:
        show(json.dumps({**made._asdict(), "settings": str(made.settings), "not_renewed": not_renewed}))
        return 0
    show(f"restored gateway {made.gateway} as of {made.made}, with {made.waiting:,} events at most. Settings: {made.settings}")
    if not_renewed:
        tell(f"warning: it has the certificate of the former gateway still, because {not_renewed}")
        tell("Run `fogline-edge renew` before you reset or revoke the former gateway")
    return 0


def run_reset(arguments: argparse.Namespace) -> int:
    """Wipe the gateway, and say what could not be done."""
    from fogline_edge.operate.reset import reset  # noqa: PLC0415 - not needed to run

    if not arguments.yes_wipe_everything:
        what = "all events that wait, the keys, the certificate and the settings"
        raise Misconfigured(f"this deletes {what} of the gateway in {arguments.config}: add --yes-wipe-everything")
    become_owner(arguments.config.parent)
    return checkup.show(reset(arguments.config), as_json=arguments.json)


def run_outbox(arguments: argparse.Namespace) -> int:
    """Print rows; with `--delete` or `--resend`, remove them from the quarantine."""
    become_owner(arguments.config.parent)
    settings = load(arguments.config)
    if (arguments.delete or arguments.resend) and not arguments.quarantine:
        raise Misconfigured("--delete and --resend are for rejected events: add --quarantine")
    rows = read_events(Path(settings.data), "quarantine" if arguments.quarantine else "event", arguments.limit)
    if arguments.json:
        show(json.dumps(rows))
    else:
        empty = "the bridge has rejected no event" if arguments.quarantine else "no event waits"
        columns = ("stream", "sequence", "recorded", "device", "body")
        show_rows(columns, [[row[name] for name in columns] for row in rows], empty)
    if rows and (arguments.delete or arguments.resend):
        keys = [(row["stream"], row["sequence"]) for row in rows]
        taken = asyncio.run(empty_quarantine(settings, keys, resend=arguments.resend))
        text = "moved to the outbox: the gateway sends them when it runs" if arguments.resend else "deleted"
        tell(f"{taken} of {len(rows)} events {text}")
    return 0


async def empty_quarantine(settings: EdgeSettings, keys: Sequence[EventKey], *, resend: bool) -> int:
    """Delete rejected events, or move them back to the outbox. Raises `Misconfigured` while a gateway runs."""
    outbox = Outbox.open(settings)
    try:
        return await outbox.empty_quarantine(keys, resend=resend)
    finally:
        await outbox.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fogline-edge`."""
    return command_line.main(build_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
