"""Checks a command by the JSON Schemas (draft 2020-12) of the commands that its device takes. Pure.

No schema is ever loaded from elsewhere. Keywords whose check may take very long for a crafted argument are refused. A library
that fails at a pair of schema and argument, in whatever way, refuses this command and no other.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry as SchemaRegistry

from fogline.address import printable, shown
from fogline.amqp.outcome import INVALID_FIELD, NOT_IMPLEMENTED, Outcome, rejected
from fogline.commands.history import HISTORY
from fogline.documents.json_document import read_document
from fogline.documents.json_payload import is_json_type
from fogline.errors import Poison
from fogline_cloud.devices.device_table import DeviceEntry

MAX_CHECKED_BYTES = 32 * 1024
"""Limit of the arguments of a command that is checked."""
_SLOW = {"pattern", "patternProperties", "uniqueItems"}
_VALUES = {"enum", "const", "default", "examples"}
_CACHED = 4096
_MAX_WHY = 200


def refusal_of(
    device: DeviceEntry, types: Mapping[str, str], name: str, content_type: str | None, data: bytes
) -> Outcome | None:
    """Return the outcome for a command that the device does not take, or `None`. `types`: the commands by type of device."""
    if name == HISTORY:  # its gateway executes it, and checks its arguments
        return None
    text = (device.record.commands if device.record is not None else "") or types.get(device.type, "")
    if not text:
        return None
    try:
        validators = _validators(text)
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise for schemas that are wrong in a way nobody thought of
        return rejected(INVALID_FIELD, f"the commands of device {device.name} are not readable: {_cause(error)}")
    if name not in validators:
        known = ", ".join(validators) or "no command"
        return rejected(NOT_IMPLEMENTED, f"device {device.name} takes {printable(known)[:_MAX_WHY]}, not {shown(name)}")
    why = _problem(validators[name], content_type, data)
    return rejected(INVALID_FIELD, f"command {name} of device {device.name}: {why}") if why else None


def check_schema(name: str, schema: object) -> None:
    """Check the schema of a command's arguments. Raises `Poison('malformed')`, which names the command."""
    if not isinstance(schema, dict | bool):
        raise Poison("malformed", f"commands.{name}: a JSON Schema is an object")
    try:
        Draft202012Validator.check_schema(schema)
        problem = _foreign(schema)
    except SchemaError as error:
        problem = f"{error.json_path}: {error.message}"
    except RecursionError:
        problem = "it is nested too deeply"
    except Exception as error:  # noqa: BLE001 - whatever the library raises for a schema that nobody thought of
        problem = f"it cannot be checked: {_cause(error)}"
    if problem:
        raise Poison("malformed", f"commands.{name} is not a JSON Schema for Fogline: {printable(problem)[:_MAX_WHY]}")


def _foreign(schema: object) -> str:
    """Return the first part of a schema that is refused, or ""."""
    if isinstance(schema, list):
        return next(filter(None, map(_foreign, schema)), "")
    if not isinstance(schema, dict):
        return ""
    for key, value in schema.items():
        if key in _SLOW and (isinstance(value, str) or value is True or (key == "patternProperties" and value)):
            return f"{key} is not supported: its check may take very long"
        if key in {"$ref", "$dynamicRef"} and isinstance(value, str) and not value.startswith("#"):
            return f"{key} {value}: only references within the schema (#/...) are followed"
    nested = (value for key, value in schema.items() if key not in _VALUES)
    return next(filter(None, map(_foreign, nested)), "")


@lru_cache(_CACHED)
def _validators(text: str) -> dict[str, Draft202012Validator]:
    empty: Any = SchemaRegistry()  # one that loads nothing; jsonschema's default loads references over HTTP
    return {name: Draft202012Validator(schema, registry=empty) for name, schema in msgspec.json.decode(text).items()}


def _problem(validator: Draft202012Validator, content_type: str | None, data: bytes) -> str:
    if len(data) > MAX_CHECKED_BYTES:
        return f"its arguments may have {MAX_CHECKED_BYTES} bytes"
    if data and content_type is not None and not is_json_type(content_type):
        return f"its arguments must be application/json, not {shown(content_type)}"
    try:
        arguments = read_document(data, object, "its JSON") if data else {}
        error = next(validator.iter_errors(arguments), None)
        return "" if error is None else _reason(error)
    except Poison as poison:
        return str(poison)
    except Exception as failure:  # noqa: BLE001 - a keyword, a reference or a number that the library cannot handle
        return f"its schema cannot be applied: {_cause(failure)}"


def _cause(error: Exception) -> str:
    return printable(str(error) or type(error).__name__)[:_MAX_WHY]


def _reason(error: ValidationError) -> str:
    field = error.json_path.removeprefix("$").removeprefix(".")
    reason = printable(str(error.message))[:_MAX_WHY]
    return f"argument {printable(field)[:_MAX_WHY]}: {reason}" if field else f"arguments: {reason}"
