"""The bridge that operators' commands use, the connection to it, and what its refusals mean for the user."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fogline.errors import Misconfigured
from fogline.process.settings_file import split_endpoint
from fogline_cloud.commands.client import Operator
from fogline_cloud.commands.operator_security import operator_security
from fogline_cloud.settings import CloudSettings

CONNECT_S = 10.0
"""Time in which a bridge must answer. A bridge that refuses ends the wait at once."""
_REMEDIES = {  # by a word of the refusal
    "password": "Check operator.user and operator.password_file, and the user at the bridge: fogline user list",
    "tenant": "Check `tenant`",
    "certificate": "Check [operator.tls]",
    "authority": "Check [operator.tls]",
    "TLS": "Check [operator.tls], and the port of operator.bridge",
    "may not": "See bridge.access at the bridge (docs/access.md)",
    "not known": "See bridge.access at the bridge (docs/access.md)",
}


def add_bridge(parser: argparse.ArgumentParser) -> None:
    """Add the option `--bridge`."""
    about = "host:port of the bridge (default: operator.bridge, else bridge.listen of the settings)"
    parser.add_argument("--bridge", help=about)


def bridge_of(arguments: argparse.Namespace, settings: CloudSettings) -> tuple[str, int]:
    """Return host and port of the bridge that the arguments or the settings name. Raises `Misconfigured`."""
    where = arguments.bridge or settings.operator.bridge or settings.bridge.listen
    return split_endpoint(where, "--bridge" if arguments.bridge else "operator.bridge")


@asynccontextmanager
async def connected(arguments: argparse.Namespace, settings: CloudSettings, name: str = "") -> AsyncIterator[Operator]:
    """Connect an operator as the arguments and the settings say. `name` is its container id. Raises `Misconfigured`."""
    host, port = bridge_of(arguments, settings)
    security = operator_security(settings.operator, host)
    async with Operator(host, port, settings.tenant, name=name, security=security) as operator:
        try:
            async with asyncio.timeout(CONNECT_S):
                await operator.attached()
        except TimeoutError:
            why = operator.why or "no connection"
            raise Misconfigured(f"no bridge answers at {host}:{port}: {why}. Check --bridge or operator.bridge") from None
        except Misconfigured as error:
            raise refused(host, port, str(error)) from None
        yield operator


def refused(host: str, port: int, why: str) -> Misconfigured:
    """Return the error for a bridge that refuses the operator, with the setting that helps. `why`: its words."""
    remedy = next((text for word, text in _REMEDIES.items() if word in why), "See the log of the bridge")
    return Misconfigured(f"the bridge at {host}:{port} refuses the connection: {why}. {remedy}")
