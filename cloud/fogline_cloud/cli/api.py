"""`fogline api`: serve commands and events over HTTP."""

import argparse
import asyncio
from typing import Any

from fogline.process.console.command_line import announce
from fogline.process.files.tls_files import require_tls
from fogline_cloud.api.api import run_api
from fogline_cloud.cli.common import add_command, add_group
from fogline_cloud.console.console import console_routes
from fogline_cloud.console.rendering import ROOT
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline api run --config cloud.toml
  curl -u alice https://fog.example:8443/v1/devices/lamp-1/commands?wait=30s --json '{"name": "switch", "data": {"on": true}}'
  curl -u alice https://fog.example:8443/v1/events/stream
"""


def register(groups: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    commands = add_group(groups, "api", "serve commands and events over HTTP", **raw)
    run = add_command(commands, "run", run_run, "serve HTTP until Ctrl-C (docs/clients-http.md)", as_json=False, **raw)
    run.add_argument("--insecure-dev", action="store_true", help="serve without TLS: on loopback, for development only")


def run_run(arguments: argparse.Namespace) -> int:
    """Serve HTTP until SIGINT or SIGTERM."""
    settings = load(arguments.config)
    require_tls(settings.api.tls, "api.tls", insecure_dev=arguments.insecure_dev)
    scheme = "http" if settings.api.tls is None else "https"

    def ready(host: str, port: int) -> None:
        url = f"{scheme}://{host}:{port}"
        announce(ready="api", url=url, console=f"{url}{ROOT}")

    asyncio.run(run_api(settings, ready, console_routes))
    return 0
