"""Lists of devices and commands that a bridge sends to a client: the question, and the end of the answer. Pure.

A client attaches a link that receives from `device/{tenant}` or `command/{tenant}`, each also with `/{device}`. Properties of
the link are the question. The bridge sends a message for each record, whose body is a JSON object: devices by name, commands
with the newest first. Then it sends a message without a body, whose subject is `COMPLETE` and whose property `MORE` is the
number of records that match beyond the limit, of commands at least.
"""

from collections.abc import Mapping

import msgspec

from fogline.address import is_identifier, shown
from fogline.commands.command import CommandState
from fogline.errors import Poison
from fogline.message import Property
from fogline_cloud.devices.device_table import MAX_DEVICES

COMPLETE = "complete"
MORE = "more"
MAX_COMMANDS = 1000
"""Largest limit of a list of commands. That of a list of devices is the size of the registry."""
_MAX_WHERE = 2048
_MAX_TIME_MS = 2**53
_DEFAULT = 1000


class DeviceQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question for devices. `where`: a filter such as `type=lamp,site=b*`. `keys`: for the keys that they have instead."""

    where: str = ""
    keys: bool = False
    limit: int = _DEFAULT


class CommandQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question for commands. `since_ms`: accepted then (milliseconds since 1970) or later.

    `id`: the beginning of their ids. Only with it, the records have the devices' answers.
    """

    state: str = ""
    id: str = ""
    since_ms: int = 0
    limit: int = _DEFAULT


ListQuery = DeviceQuery | CommandQuery


def properties_of(query: ListQuery) -> dict[str, Property]:
    """Return the properties of a link that asks this."""
    found: dict[str, Property] = msgspec.to_builtins(query)
    return found


def read_device_query(properties: Mapping[str, Property]) -> DeviceQuery:
    """Return the question in the properties of a link. Raises `Poison('bad-query')`, which names the property."""
    _check_names(properties, DeviceQuery)
    keys, where = properties.get("keys", False), _text(properties, "where", _MAX_WHERE)
    if not isinstance(keys, bool) or (keys and where):
        raise Poison("bad-query", "keys: expected true or false, and no `where` beside it")
    return DeviceQuery(where=where, keys=keys, limit=_limit(properties, MAX_DEVICES))


def read_command_query(properties: Mapping[str, Property]) -> CommandQuery:
    """Return the question in the properties of a link. Raises `Poison('bad-query')`, which names the property."""
    _check_names(properties, CommandQuery)
    state, beginning = _text(properties, "state", _MAX_WHERE), _text(properties, "id", _MAX_WHERE)
    if state and state not in CommandState.__members__:
        raise Poison("bad-query", f"state {shown(state)}: expected one of {', '.join(CommandState.__members__)}")
    if beginning and not is_identifier(beginning):
        raise Poison("bad-query", f"id {shown(beginning)}: expected the id of a command, or its first characters")
    since_ms = _number(properties, "since_ms", 0, 0, _MAX_TIME_MS)
    return CommandQuery(state=state, id=beginning, since_ms=since_ms, limit=_limit(properties, MAX_COMMANDS))


def _check_names(properties: Mapping[str, Property], query: type[ListQuery]) -> None:
    names = query.__struct_fields__
    if unknown := sorted(properties.keys() - set(names)):
        raise Poison("bad-query", f"property {shown(unknown[0])} of the link is unknown: expected {', '.join(names)}")


def _text(properties: Mapping[str, Property], name: str, most: int) -> str:
    value = properties.get(name, "")
    if not isinstance(value, str) or len(value) > most:
        raise Poison("bad-query", f"{name}: expected a text of at most {most} characters")
    return value


def _limit(properties: Mapping[str, Property], most: int) -> int:
    return _number(properties, "limit", _DEFAULT, 1, most)


def _number(properties: Mapping[str, Property], name: str, default: int, least: int, most: int) -> int:
    value = properties.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Poison("bad-query", f"{name}: expected an integer from {least} to {most}")
    return int(value)
