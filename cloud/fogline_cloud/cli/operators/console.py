"""`fogline console`: the address of the operator's page."""

import argparse
import json
import socket
import webbrowser
from typing import Any

from fogline.process.console.terminal import show, tell
from fogline.process.files.settings_file import split_endpoint
from fogline_cloud.api_settings import ApiSettings
from fogline_cloud.cli.common import add_command
from fogline_cloud.console.rendering import ROOT
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline console --config cloud.toml           print the address of the operator's page
  fogline console --open                        and open it in the browser

exit status: 0 done, 1 no browser can be opened, 2 the input or the settings are wrong, 130 Ctrl-C
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the command."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    command = add_command(groups, "console", run_console, "print the address of the operator's page", **raw)
    command.add_argument("--open", action="store_true", help="open it in the browser")


def run_console(arguments: argparse.Namespace) -> int:
    """Print the address. Return 1 if no browser can be opened."""
    address = address_of(load(arguments.config, kafka=False).api)
    show(json.dumps({"console": address}) if arguments.json else address)
    if arguments.open and not webbrowser.open(address):
        tell("no browser can be opened here: open the address yourself")
        return 1
    return 0


def address_of(settings: ApiSettings) -> str:
    """Return the address of the page of the API with these settings. A wildcard address stands for this machine."""
    host, port = split_endpoint(settings.listen, "api.listen")
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = socket.getfqdn()
    name = f"[{host}]" if ":" in host else host
    return f"{'http' if settings.tls is None else 'https'}://{name}:{port}{ROOT}"
