"""A form from the JSON Schema of a command's arguments, and the arguments from a form that was filled in. Pure.

The form is for the common case: an object of numbers, texts, choices and truth values. What it cannot show is typed as JSON.
The bridge checks the arguments by the schema (`fogline_cloud.devices.argument_check`); this module only reads them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fogline.address import shown
from fogline_cloud.api.problems import Problem

MAX_FIELDS = 100
"""Properties of a schema beyond which the arguments are typed as JSON."""
WHOLE = "arguments"
"""The field that has all arguments as JSON."""
_YES_NO = (("true", "yes"), ("false", "no"))
_INPUTS = {"integer": "number", "number": "number", "string": "text"}


class ArgumentField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a form. `key`: its name there, which no schema chooses; `name`: the argument, "" for all of them.

    `kind`: `text`, `number`, `choice` or `json`. `choices`: value, which is JSON, and text. `least` and `most`: bounds of a
    number.
    """

    key: str
    name: str
    kind: str
    label: str
    about: str = ""
    required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    step: str = "any"
    least: str = ""
    most: str = ""
    preset: str = ""


def fields_of(schema: Any) -> list[ArgumentField]:
    """Return the fields for a schema; `None`: there is no schema, and any JSON may be typed."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties or len(properties) > MAX_FIELDS:
        return [ArgumentField(key=WHOLE, name="", kind="json", label="Arguments (JSON)")]
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    return [_field(f"a{number}", name, each, name in names) for number, (name, each) in enumerate(properties.items())]


def arguments_of(fields: list[ArgumentField], form: Mapping[str, str]) -> bytes:
    """Return the arguments as JSON, b"" for none. Raises `Problem` (400), which names the field."""
    if fields and fields[0].key == WHOLE:
        text = form.get(WHOLE, "").strip()
        return msgspec.json.encode(_json(fields[0], text)) if text else b""
    return msgspec.json.encode(dict(_values(fields, form)))


def _values(fields: list[ArgumentField], form: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for field in fields:
        text = form.get(field.key, "")
        if field.kind != "text":
            text = text.strip()
        if not text and (field.kind != "text" or not field.required):
            continue  # the schema says whether it may be left out
        yield field.name, text if field.kind == "text" else _json(field, text)


def _json(field: ArgumentField, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        wanted = "a number" if field.kind == "number" else "JSON"
        raise Problem(400, f"{field.label[:100]}: {shown(text)} is not {wanted}") from None


def _field(key: str, name: str, schema: Any, required: bool) -> ArgumentField:  # noqa: FBT001 - of this module only
    given = schema if isinstance(schema, dict) else {}
    title, about, preset = given.get("title"), given.get("description"), given.get("default")
    kind, choices = _kind(given)
    return ArgumentField(
        key=key,
        name=name,
        kind=kind,
        label=title if isinstance(title, str) and title else name,
        about=about if isinstance(about, str) else "",
        required=required,
        choices=choices,
        step="1" if given.get("type") == "integer" else "any",
        least=_bound(given.get("minimum")),
        most=_bound(given.get("maximum")),
        preset="" if preset is None else preset if kind == "text" and isinstance(preset, str) else _text(preset),
    )


def _kind(schema: dict[str, Any]) -> tuple[str, tuple[tuple[str, str], ...]]:
    values, kind = schema.get("enum"), schema.get("type")
    if isinstance(values, list) and 0 < len(values) <= MAX_FIELDS:
        return "choice", tuple((_text(each), each if isinstance(each, str) else _text(each)) for each in values)
    if kind == "boolean":
        return "choice", _YES_NO
    return _INPUTS.get(kind, "json") if isinstance(kind, str) else "json", ()


def _bound(value: Any) -> str:
    return _text(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
