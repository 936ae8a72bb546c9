"""The bridge that operators' commands use, the connection to it, and what its refusals mean for the user."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fogline.address import CommandAddress, DeviceAddress, is_identifier
from fogline.amqp.outcome import Outcome
from fogline.errors import Misconfigured, Poison, Unreachable
from fogline.process.files.settings_file import split_endpoint
from fogline_cloud.commands.client.operator import Operator
from fogline_cloud.commands.client.operator_security import operator_security
from fogline_cloud.commands.command_id import ID_DIGITS
from fogline_cloud.devices.client import edit_device
from fogline_cloud.devices.device_filter import read_filter
from fogline_cloud.listing import CommandQuery, DeviceQuery
from fogline_cloud.listing_client import Listing, read_list
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
            raise _silent(host, port, operator.why or "no connection") from None
        except Misconfigured as error:
            raise refused(host, port, str(error)) from None
        yield operator


def edit_at_bridge(arguments: argparse.Namespace, settings: CloudSettings, action: str, body: bytes) -> Outcome:
    """Send a change of `arguments.device` to the bridge, and return its outcome. Raises `Misconfigured`."""
    host, port = bridge_of(arguments, settings)
    security = operator_security(settings.operator, host)
    address = DeviceAddress(settings.tenant, arguments.device)
    try:
        return asyncio.run(edit_device(f"{host}:{port}", address, action, body, security=security))
    except Misconfigured as error:
        raise refused(host, port, str(error)) from None


def devices_of(
    arguments: argparse.Namespace, settings: CloudSettings, device: str = "", *, where: Sequence[str] = (), limit: int = 1
) -> Listing:
    """Read the devices that match all filters, or `device`, from the bridge.

    Raises `Misconfigured`, and `SlowDown` if the bridge cannot answer at present.
    """
    try:
        read_filter(where)
    except Poison as error:
        raise Misconfigured(f"--{error}") from None
    query = DeviceQuery(where=",".join(where), limit=limit)
    return _read(arguments, settings, DeviceAddress(settings.tenant, device), query)


def keys_of(arguments: argparse.Namespace, settings: CloudSettings, device: str = "", *, limit: int = 1) -> Listing:
    """Read which keys devices have, or `device`, from the bridge: no secrets. Raises as `devices_of`."""
    return _read(arguments, settings, DeviceAddress(settings.tenant, device), DeviceQuery(keys=True, limit=limit))


def commands_of(arguments: argparse.Namespace, settings: CloudSettings, query: CommandQuery, device: str = "") -> Listing:
    """Read the commands that match, of `device` or of all, from the bridge. Raises as `devices_of`."""
    return _read(arguments, settings, CommandAddress(settings.tenant, device), query)


def command_of(arguments: argparse.Namespace, settings: CloudSettings, beginning: str) -> tuple[dict[str, Any], str]:
    """Return the command whose id begins so, with its answer; if there is none or several, nothing and the reason.

    Raises as `devices_of`.
    """
    if not is_identifier(beginning):
        raise Misconfigured(f"{beginning!a} is not the id of a command")
    found = commands_of(arguments, settings, CommandQuery(id=beginning, limit=1))
    if not found.records:
        return {}, f"no commands begin with {beginning}"
    if found.more:
        return {}, f"several commands begin with {beginning}: give more of the id"
    return found.records[0], ""


def whole_id(arguments: argparse.Namespace, settings: CloudSettings) -> tuple[str, str]:
    """Return the id of the command that `arguments.id` is, or begins; and why there is no such command, or "".

    Raises as `devices_of`.
    """
    if len(arguments.id) >= ID_DIGITS:
        return arguments.id, ""
    found, why = command_of(arguments, settings, arguments.id)
    return found.get("id", arguments.id), why


def _read(
    arguments: argparse.Namespace,
    settings: CloudSettings,
    address: DeviceAddress | CommandAddress,
    query: DeviceQuery | CommandQuery,
) -> Listing:
    host, port = bridge_of(arguments, settings)
    security = operator_security(settings.operator, host)
    try:
        return asyncio.run(read_list(f"{host}:{port}", address, query, security))
    except Unreachable as error:
        raise _silent(host, port, str(error)) from None
    except Poison as error:
        raise Misconfigured(str(error)) from None
    except Misconfigured as error:
        raise refused(host, port, str(error)) from None


def _silent(host: str, port: int, why: str) -> Misconfigured:
    return Misconfigured(f"no bridge answers at {host}:{port}: {why}. Check --bridge or operator.bridge")


def refused(host: str, port: int, why: str) -> Misconfigured:
    """Return the error for a bridge that refuses the operator, with the setting that helps. `why`: its words."""
    remedy = next((text for word, text in _REMEDIES.items() if word in why), "See the log of the bridge")
    return Misconfigured(f"the bridge at {host}:{port} refuses the connection: {why}. {remedy}")
