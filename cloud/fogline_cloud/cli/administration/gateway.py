"""`fogline gateway`: let gateways enrol, and list them."""

import argparse
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from fogline.address import is_identifier
from fogline.errors import Misconfigured
from fogline.process.console.terminal import show
from fogline.process.files.owner import become_owner
from fogline_cloud.authority.ca_folder import CaFolder
from fogline_cloud.authority.certificates import check_hosts, now_utc
from fogline_cloud.cli.administration.gateway_list import add_list
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline gateway add gw-1               print a token; on the gateway: fogline-edge enroll - --bridge HOST:PORT
  fogline gateway add gw-1 --host gw-1.local   devices reach the gateway there, by MQTT over TLS
  fogline gateway add gw-1 --minutes 60
  fogline gateway list                   the gateways of this machine's bridge, with what waits in their outboxes
  fogline gateway list --metrics 127.0.0.1:9465 --metrics 127.0.0.1:9475

The token is a password that works once. The bridge needs `enrolment = true` and the folder of the authority.
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "gateway", "let gateways enrol, and list them", description=__doc__, **raw)
    adding = add_command(commands, "add", run_add, "print a token by which a gateway enrols, once", **raw)
    adding.add_argument("name", help="the name of the gateway")
    hosts = "name or address at which devices reach the gateway by TLS; may be repeated"
    adding.add_argument("--host", action="append", default=[], help=hosts)
    add_list(commands, raw)
    adding.add_argument("--minutes", type=float, default=15.0, help="how long the token is valid (default: 15)")


def run_add(arguments: argparse.Namespace) -> int:
    """Make a token and print it."""
    become_owner(arguments.config.parent)
    settings = load(arguments.config, kafka=False)
    if not is_identifier(arguments.name):
        raise Misconfigured(f"gateway {arguments.name!r}: expected up to 64 letters, digits, and . _ : -")
    if not arguments.minutes > 0:
        raise Misconfigured(f"--minutes {arguments.minutes}: expected more than 0")
    check_hosts(arguments.host)
    folder = CaFolder.open(Path(settings.ca.folder))
    ca = folder.authority.certificate.public_bytes(Encoding.DER)
    try:
        token = folder.tokens.make(settings.tenant, arguments.name, ca, now_utc(), arguments.minutes, hosts=arguments.host)
    except OSError as error:
        raise Misconfigured(f"{folder.path}: cannot write the token: {error.strerror}") from None
    word = token.encode()
    show(json.dumps({"gateway": arguments.name, "token": word}) if arguments.json else word)
    return 0
