"""Forms of JSON documents. The encoder is our own: it writes what `json` would refuse to write."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from fuzz.forms import MISSING, Choice, Field, Form
from fuzz.values import INTEGERS, TEXTS


def quoted(raw: bytes) -> bytes:
    """A string with its bytes as they are; only what would end it is escaped."""
    return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def nested(depth: int, begin: bytes = b"[", end: bytes = b"]", core: bytes = b"") -> bytes:
    return begin * depth + core + end * depth


CHOICES: list[Choice] = [
    ("type/null", b"null"),
    ("type/true", b"true"),
    ("type/false", b"false"),
    ("type/number", b"1.5"),
    ("type/string", b'"x"'),
    ("type/list", b"[]"),
    ("type/list of null", b"[null]"),
    ("type/list of list", b"[[]]"),
    ("type/map", b"{}"),
    ("type/map of map", b'{"a":{"b":{}}}'),
    *((kind, str(value).encode()) for kind, value in INTEGERS.items()),
    ("value/500 digits", b"1" + b"0" * 500),
    ("value/5000 digits", b"9" * 5000),
    ("value/1e400", b"1e400"),
    ("value/-1e400", b"-1e400"),
    ("value/tiny", b"1e-400"),
    ("value/-0.0", b"-0.0"),
    ("value/NaN", b"NaN"),
    ("value/Infinity", b"Infinity"),
    ("value/leading zero", b"007"),
    ("value/lone surrogate", b'"\\ud800"'),
    ("value/swapped surrogates", b'"\\udc00\\ud800"'),
    ("value/escaped nul", b'"a\\u0000b"'),
    ("value/bad escape", b'"\\x41"'),
    ("value/cut string", b'"abc'),
    ("value/nothing", b""),
    ("value/comment", b"/* 1 */ 1"),
    ("length/10000 elements", b"[" + b",".join([b"0"] * 10_000) + b"]"),
    ("length/1000 members", b"{" + b",".join(b'"%d":0' % n for n in range(1000)) + b"}"),
    ("depth/64", nested(64)),
    ("depth/65", nested(65)),
    ("depth/2000", nested(2000)),
    ("depth/2000 open", b"[" * 2000),
    ("depth/100000", nested(100_000)),
    ("depth/2000 maps", nested(2000, b'{"a":', b"}", b"1")),
    *((f"string {kind}", quoted(value)) for kind, value in TEXTS.items()),
]


def render(tree: Any, replaced: Mapping[str, Any], path: str = "") -> bytes:
    """The document as bytes."""
    if path in replaced:
        return bytes(replaced[path])
    if isinstance(tree, dict):
        members = [(key, f"{path}/{key}", value) for key, value in tree.items()]
        kept = [(key, at, value) for key, at, value in members if replaced.get(at) is not MISSING]
        return b"{" + b",".join(quoted(key.encode()) + b":" + render(value, replaced, at) for key, at, value in kept) + b"}"
    if isinstance(tree, list):
        return b"[" + b",".join(render(value, replaced, f"{path}/{n}") for n, value in enumerate(tree)) + b"]"
    return json.dumps(tree).encode()


def fields(tree: Any, aim: str, path: str = "") -> list[Field]:
    """The document itself and everything in it."""
    found = [Field(path, aim, CHOICES)] if path else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            at = f"{path}/{key}"
            inner = fields(value, aim, at)
            own, plain = inner[0], json.dumps(value).encode()
            again = plain + b"," + quoted(key.encode()) + b":" + plain
            extra: list[Choice] = [
                ("presence/missing", MISSING),
                ("presence/twice", again),
                ("presence/beside an unknown one", plain + b',"x-unknown":' + nested(2000)),
                ("presence/beside one that is no text", plain + b',"\xff\\ud800":1'),
                ("value/trailing", plain + b" x"),
            ]
            found += [own._replace(choices=[*own.choices, *extra]), *inner[1:]]
    elif isinstance(tree, list):
        for n, value in enumerate(tree):
            found += fields(value, aim, f"{path}/{n}")
    return found


def json_form(name: str, tree: Any, aim: str, wrap: Callable[[bytes], Any] = bytes) -> Form:
    """A form of one document; `wrap` puts it where it travels."""
    whole = Field("", aim, [*CHOICES, *(("bytes " + kind, value) for kind, value in TEXTS.items())])
    return Form(name, [whole, *fields(tree, aim)], lambda replaced: wrap(render(tree, replaced)))
