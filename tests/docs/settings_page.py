"""Writes docs/reference/settings.md from the settings' types: a row for each key, with its default, values and meaning.

The meaning is the string literal that follows a field in the class, as in Sphinx's attribute docstrings. `make docs` runs
this module.
"""

import ast
import inspect
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

import fogline_cloud.canonical_settings
import fogline_cloud.settings
import fogline_edge.rule_settings
import fogline_edge.settings
import fogline_edge.settings_types

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

_HEAD = """\
# Settings

A settings file is TOML. An unknown key or a wrong value is an error that names the file and the key. `fogline-edge check` and
`fogline bridge check` check a file. Files and folders with a relative name are beside the
settings file. If you name a link to a settings file, they are beside the link. This page is generated from the types by
`make docs`.
"""

_ROOTS = {
    "Gateway: `edge.toml`": fogline_edge.settings.EdgeSettings,
    "Cloud side: `cloud.toml`": fogline_cloud.settings.CloudSettings,
}


class Row(NamedTuple):
    """One key of a settings file."""

    key: str
    default: str
    values: str
    meaning: str


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for title, root in _ROOTS.items():
        parts.append(f"## {title}\n")
        for name, kind in tables("", root):
            heading = f"### `{name}`\n\n" if name else ""
            parts.append(f"{heading}{summary(kind)}\n\n| key | default | values | meaning |\n|---|---|---|---|")
            parts.append("".join(f"| `{row.key}` | {row.default} | {row.values} | {row.meaning} |\n" for row in rows(kind)))
    return "\n".join(parts)


def tables(name: str, kind: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield the TOML tables of a settings type, itself first, in the order of their keys."""
    yield name, kind
    for field, inner, origin in _inner_tables(kind):
        path = f"{name.strip('[]')}.{field}".lstrip(".")
        yield from tables({list: f"[[{path}]]", dict: f"[{path}.NAME]"}.get(origin, f"[{path}]"), inner)


def rows(kind: type[msgspec.Struct]) -> Iterator[Row]:
    """Yield the keys of one TOML table."""
    meanings = field_meanings(kind)
    inner = {field for field, _, _ in _inner_tables(kind)}
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        if field.name not in inner:
            yield Row(field.name, _default(field), _values(hints[field.name]), meanings[field.name])


def field_meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstring of each field that has one, on one line; those of base classes too."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[: kind.__mro__.index(msgspec.Struct)]):
        body = ast.parse(inspect.getsource(base)).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, following in zip(body.body, [*body.body[1:], None], strict=True):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                found[ast.unparse(node.target)] = " ".join(str(following.value.value).split()).replace("|", "\\|")
    return found


def summary(kind: type[msgspec.Struct]) -> str:
    """Return a type's docstring on one line."""
    return " ".join((kind.__doc__ or "").split())


def _inner_tables(kind: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct], Any]]:
    for name, hint in typing.get_type_hints(kind).items():
        for each in _leaves(hint):
            if isinstance(each, type) and issubclass(each, msgspec.Struct):
                yield name, each, typing.get_origin(hint)


def _leaves(hint: Any) -> Iterator[Any]:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union, list, dict):
        for each in arguments:
            yield from _leaves(each)
    else:
        yield hint


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if value is None:
        return ""
    return f"`{msgspec.json.encode(value).decode()}`"


def _values(hint: Any) -> str:
    """Return the values that a key takes, in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _bounded(*arguments)
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_values(each) for each in arguments if each is not type(None))
    if origin is tuple:
        return f"list of {len(arguments)} {_values(arguments[0])}s"
    if origin in (list, dict):
        return f"{'list of' if origin is list else 'table:'} {' = '.join(_values(each) for each in arguments)}"
    return _NAMES.get(hint) or ", ".join(f"`{each.value}`" for each in hint)


def _bounded(hint: Any, meta: msgspec.Meta) -> str:
    if meta.pattern is not None:
        return _PATTERNS[meta.pattern]
    bounds = [f"{word} {getattr(meta, name)}" for name, word in _BOUNDS.items() if getattr(meta, name) is not None]
    return " ".join([_values(hint), *bounds])


_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "at least", "max_length": "at most"}
_NAMES = {Any: "any value", str: "text", int: "integer", float: "number", bool: "`true`, `false`"}
_PATTERNS = {
    fogline_edge.settings_types.IDENTIFIER_PATTERN: "identifier",
    fogline_cloud.settings.SERVER_PATTERN: "URL of a server",
    fogline_cloud.canonical_settings.NAME_PATTERN: "1 to 32 of `a` to `z`, `0` to `9` and `-`",
    fogline_edge.settings_types.BLE_ADDRESS_PATTERN: "Bluetooth address",
    fogline_edge.rule_settings.AGGREGATE_PATTERN: "aggregate",
    fogline_edge.settings_types.ORIGIN_PATTERN: "`http://` or `https://`, host, and port if it is another one",
    fogline_edge.settings_types.URL_PATH_PATTERN: "path that begins with `/`",
}

if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
