"""Says in words what is wrong with a document that could not be decoded. Pure.

The words name the field, what is expected there with all limits, and the field that a misspelt one may stand for.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect


class Words(NamedTuple):
    """What a form of documents calls its parts. `place`: how an error names a table. `with_null`: the form has `null`."""

    member: str
    table: str
    place: str
    with_null: bool


JSON = Words("field", "an object", "`{}`", with_null=True)
TOML = Words("key", "a table", "[{}]", with_null=False)
_SYNTAX = {"Input data was truncated": "it ends too early", "JSON is malformed": "it is not JSON"}
_type_info = lru_cache(inspect.type_info)
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def explained(error: Exception, shape: Any, words: Words = JSON) -> str:
    """Return what an error of msgspec, UTF-8 or recursion means for a document that should have been a `shape`."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    what, _, place = str(error).partition(" - at `")
    path = place.rpartition("$")[2].rstrip("`").lstrip(".").replace("[...]", "[]")
    steps = re.findall(r"[^.\[\]]+|\[\d*\]", path)
    node = _at(_type_info(shape), steps) if isinstance(error, msgspec.ValidationError) else None
    if found := re.match(r"Object (contains unknown|missing required) field `(.*)`", what):
        table = f" in {words.place.format(path)}" if path else ""
        if found[1] == "missing required":
            return f"missing {words.member} `{found[2]}`{table}"
        return f"unknown {words.member} `{found[2]}`{table}{_meant(found[2], node)}"
    if node is not None and what.startswith(("Expected ", "Invalid ")):
        if place.startswith("key") and isinstance(node, inspect.DictType):
            node = node.key_type
        what = f"expected {_wanted(node, words)}{_given(what)}"
    else:
        what = next((what.replace(theirs, ours) for theirs, ours in _SYNTAX.items() if what.startswith(theirs)), what)
    return f"{words.member} `{path}`: {what}" if path else what


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the known name that an unknown one may stand for, as an addition to the error; "" if there is none."""
    meant = get_close_matches(name, known, 1)
    return f"; did you mean {meant[0]}?" if meant else ""


def _at(node: inspect.Type, steps: list[str]) -> inspect.Type | None:
    """Return the type at a path of documents of a type."""
    if not steps:
        return node
    if isinstance(node, inspect.UnionType):
        return next((found for each in node.types if (found := _at(each, steps)) is not None), None)
    if isinstance(node, inspect.StructType):
        field = next((each for each in node.fields if each.encode_name == steps[0]), None)
        return None if field is None else _at(field.type, steps[1:])
    if isinstance(node, inspect.DictType):
        return _at(node.value_type, steps[1:])
    if isinstance(node, inspect.CollectionType):
        return _at(node.item_type, steps[1:])
    return None


def _meant(name: str, node: inspect.Type | None) -> str:
    structs = (each for each in _alternatives(node) if isinstance(each, inspect.StructType))
    return did_you_mean(name, [field.encode_name for each in structs for field in each.fields])


def _alternatives(node: inspect.Type | None) -> Iterator[inspect.Type]:
    if isinstance(node, inspect.UnionType):
        yield from node.types
    elif node is not None:
        yield node


def _given(what: str) -> str:
    """Return what the document has instead, if the decoder says it."""
    found = re.search(r"value (?P<value>'.*'|\S+)$", what)
    return f", not {found['value']}" if found else ""


def _wanted(node: inspect.Type, words: Words) -> str:
    """Return what is expected at a place, with its limits."""
    alternatives = [text for each in _alternatives(node) if (text := _text(each, words))]
    return " or ".join(dict.fromkeys(alternatives)) or "nothing"


def _text(node: inspect.Type, words: Words) -> str:  # noqa: C901, PLR0911 - one for each kind of value
    match node:
        case inspect.NoneType():
            return "`null`" if words.with_null else ""
        case inspect.BoolType():
            return "`true` or `false`"
        case inspect.IntType() | inspect.FloatType():
            limits = [f"{text} {limit}" for name, text in _BOUNDS.items() if (limit := getattr(node, name)) is not None]
            return ("an integer" if isinstance(node, inspect.IntType) else "a number") + _of(limits)
        case inspect.StrType():
            return f"text of the form {node.pattern}" if node.pattern else f"text{_of(_lengths(node, 'characters'))}"
        case inspect.BytesType():
            return f"base64{_of(_lengths(node, 'bytes'))}"
        case inspect.LiteralType():
            return _choice([str(each) for each in node.values])
        case inspect.EnumType():
            return _choice([str(each.value) for each in node.cls])
        case inspect.StructType():
            return words.table
        case inspect.DictType():
            return words.table + _of(_lengths(node, f"{words.member}s"))
        case inspect.CollectionType():
            return f"a list{_of(_lengths(node, 'entries'))}"
    return "" if isinstance(node, inspect.Type) and type(node).__name__ == "UnsetType" else "another value"


def _choice(values: list[str]) -> str:
    return f"one of {', '.join(values)}" if len(values) > 1 else values[0]


def _lengths(node: Any, unit: str) -> list[str]:
    limits = {"at least": node.min_length, "at most": node.max_length}
    return [f"{text} {limit} {unit}" for text, limit in limits.items() if limit]


def _of(limits: list[str]) -> str:
    return f" of {' and '.join(limits)}" if limits else ""
