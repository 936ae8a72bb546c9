"""`fogline access`: check and explain the file of permissions, `access.toml`."""

import argparse
import json
from typing import Any

from fogline.address import CommandAddress, CommandResponse, parse_address
from fogline.errors import Misconfigured, Poison
from fogline.process.console.terminal import show
from fogline_cloud.access.access_file import read_permissions
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.settings import CloudSettings, load

EXAMPLE = """\
examples:
  fogline access check
  fogline access may client alice send command/acme/lamp-1 --command switch
  fogline access may client weather send telemetry/acme/station-7
  fogline access may gateway gw-1 speak-for lock-7
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "access", "check who may do what", description=__doc__, **raw)
    add_command(commands, "check", run_check, "check the file", **raw)
    may = add_command(commands, "may", run_may, "say if a peer may do something; exit status 1 if it may not", **raw)
    may.add_argument("kind", choices=["gateway", "device", "client"], help="the kind of the peer")
    may.add_argument("name", help="the name of its certificate, or its user name")
    may.add_argument("action", choices=["send", "receive", "speak-for"], help="what it wants to do")
    may.add_argument("subject", help="the AMQP address; with speak-for, the device")
    may.add_argument("--command", default="", help="the name of the command (default: any)")


def run_check(arguments: argparse.Namespace) -> int:
    """Read the file."""
    path = _path(load(arguments.config, kafka=False))
    read_permissions(path)
    show(json.dumps({"ok": True, "file": path}) if arguments.json else f"{path}: no problems found")
    return 0


def run_may(arguments: argparse.Namespace) -> int:
    """Print the decision. Return 1 if it is no."""
    settings = load(arguments.config, kafka=False)
    access = read_permissions(_path(settings))
    names = settings.bridge.gateways
    policy = Policy(settings.tenant, settings.shards, frozenset(names) if names is not None else None, lambda: access)
    if arguments.action == "speak-for":
        allowed = policy.may_speak_for(arguments.name, arguments.subject)
    else:
        principal = Principal(PrincipalKind(arguments.kind), settings.tenant, arguments.name, "certificate")
        try:
            subject = parse_address(arguments.subject)
        except Poison as error:
            raise Misconfigured(str(error)) from None
        if arguments.command and not isinstance(subject, CommandAddress | CommandResponse):
            raise Misconfigured("--command is for command/... only")
        allowed = policy.may(principal, Action(arguments.action), subject, arguments.command)
    answer = f"{arguments.kind} {arguments.name} {'may' if allowed else 'may not'} {arguments.action} {arguments.subject}"
    show(json.dumps({"allowed": allowed}) if arguments.json else answer)
    return 0 if allowed else 1


def _path(settings: CloudSettings) -> str:
    if settings.bridge.access is None:
        raise Misconfigured("bridge.access is not set: every client that logs in may do everything")
    return settings.bridge.access
