"""Conditions in CEL, the Common Expression Language (https://cel.dev): what they may use, and their evaluation.

A condition is bounded when the settings are read: its length, and no macro but `has`, so that its time is in proportion to its
length. A payload is bounded when it is evaluated: only the values that the condition names are converted, `MAX_VALUES` at most
(docs/decisions/0058).
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Final, NamedTuple

from fogline.errors import FoglineError, Misconfigured

MAX_VALUES = 500
"""Values, nested ones included, that one condition may take from payloads."""
MAX_NESTED = 16
"""Levels of a value."""
MAX_TEXT_BYTES = 16 * 1024
"""Characters of all texts together that one condition may take from payloads."""
LARGEST = 10**300
"""Whole numbers from here on are absent: they are no doubles."""
FUNCTIONS = frozenset(
    ("has", "size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "timestamp", "duration")
)
NAMES = ("event", "last", "time")
_TOKEN = re.compile(
    r"""(?P<text>[rRbB]{0,2}(?:\"\"\"|'''|"|')) | (?P<name>[A-Za-z_]\w*) | (?P<number>\d[\w.]*) | (?P<blank>\s+)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_END = {quote: re.compile(rf"(?:[^\\]|\\.)*?{quote}", re.DOTALL) for quote in ('"', "'", '"""', "'''")}
_RAW_END = {quote: re.compile(rf".*?{quote}", re.DOTALL) for quote in _END}

_ABSENT: Final = object()

Tree = dict[str, "Tree | None"]
"""The values that a condition reads, by name; None for a value as a whole."""


class EvaluationError(FoglineError):
    """A condition has no value: a field is absent, or has another type."""


class _Token(NamedTuple):
    """A token of a condition, with the blanks before it. `value`: of a text without a backslash, what is between its quotes."""

    kind: str
    text: str
    value: str = ""
    blanks: str = ""


class _Read(NamedTuple):
    """A value that a condition reads, by the name that stands for it in the compiled text."""

    name: str
    path: tuple[str, ...]


class RuleCondition:
    """A compiled condition. Raises `Misconfigured`, which names `key`. Used on one thread.

    `reads`: the values that it reads below `event`, `last` and `time`. A name stands for each of them in the text that is
    compiled, because the library takes 10 times as long for a value that is nested in others.
    """

    def __init__(self, key: str, source: str) -> None:
        self.source = source
        tokens = list(_tokens(key, source))
        _check_calls(key, source, tokens)
        self._values: list[_Read] = []
        self._asked: list[_Read] = []
        text = "".join(self._named(tokens))
        library = _library()
        try:
            library.compile(source)
            self._program = library.compile(text)
        except ValueError as error:
            raise Misconfigured(f"{key} = {source!r}: this is not CEL: {_first_line(error)}") from None
        self._new_context = library.Context
        self.reads: Tree = {}
        for read in (*self._values, *self._asked):
            _add(self.reads, read.path)
        unknown = sorted(set(self._program.variables()) - {each.name for each in (*self._values, *self._asked)})
        if unknown or not self.reads:
            what = f"{unknown[0]} is not known" if unknown else "it reads nothing"
            raise Misconfigured(f"{key} = {source!r}: {what}; use {EXAMPLE}")

    def holds(self, values: dict[str, Any]) -> bool:
        """Return True if the condition holds. Raises `EvaluationError`. `values`: of `event`, `last` and `time`."""
        bound, named = _Bound(), dict[str, Any]()
        for read in self._values:
            value = _at(values, read.path)
            if value is not _ABSENT:
                named[read.name] = value if type(value) is float or read.path[0] == "time" else _taken(value, None, bound, 0)
        for read in self._asked:
            named[read.name] = _at(values, read.path) is not _ABSENT
        try:
            found = self._program.execute(self._new_context(named))
        except Exception as error:  # noqa: BLE001 - the library raises errors of many types for the values of a payload
            raise EvaluationError(self._why(error, named)) from None
        if found is True or found is False:
            return found
        raise EvaluationError(f"the condition is {type(found).__name__}, neither true nor false")

    def _why(self, error: Exception, named: dict[str, Any]) -> str:
        if isinstance(error, KeyError):
            return f"there is no {str(error.args[0])[:80]}"
        text = _first_line(error)
        for read in self._values:
            if read.name not in named and f"'{read.name}'" in text:
                return f"there is no {'.'.join(read.path)}"
        return text

    def _named(self, tokens: list[_Token]) -> Iterator[str]:
        """Yield the text of the condition with a name for each value. `has` of a value is a name by itself."""
        here = 0
        while here < len(tokens):
            if _is(tokens, here, "has", "(") and (path := _path_at(tokens, here + 2)) and _is(tokens, here + 2 + path[1], ")"):
                yield f" {_name_of(self._asked, '_h', path[0])} "
                here += 3 + path[1]
            elif (path := _path_at(tokens, here)) is not None:
                yield f" {_name_of(self._values, '_v', path[0])} "
                here += path[1]
            else:
                yield tokens[here].blanks + tokens[here].text
                here += 1


EXAMPLE = "`event`, `last` and `time`, such as event.value.temperature > 26.0 && time.hour >= 6"


class _Bound:
    """What may still be taken from payloads in one evaluation."""

    def __init__(self) -> None:
        self.values = MAX_VALUES
        self.text = MAX_TEXT_BYTES

    def take(self, text: int = 0) -> None:
        self.values -= 1
        self.text -= text
        if self.values < 0 or self.text < 0:
            raise EvaluationError(f"it reads more than {MAX_VALUES} values, or {MAX_TEXT_BYTES} characters, of a payload")


def pick(value: Any, tree: Tree | None) -> Any:
    """Return the part of a value that conditions read: numbers as doubles, as CEL has JSON. Raises `EvaluationError`."""
    return _taken(value, tree, _Bound(), 0)


def merge(tree: Tree, other: Tree) -> None:
    """Add the values of another tree to a tree."""
    for path in _leaves(other):
        _add(tree, path)


def _taken(value: Any, tree: Tree | None, bound: _Bound, level: int) -> Any:
    if tree is not None and isinstance(value, dict):
        return {key: _taken(value[key], below, bound, level + 1) for key, below in tree.items() if key in value}
    if level > MAX_NESTED:
        raise EvaluationError(f"a value that it reads has more than {MAX_NESTED} levels")
    bound.take(len(value) if isinstance(value, str | bytes) else 0)
    match value:
        case dict():
            return {key: _taken(each, None, bound, level + 1) for key, each in value.items() if isinstance(key, str)}
        case list():
            return [_taken(each, None, bound, level + 1) for each in value]
        case int() if not isinstance(value, bool):
            return float(value) if abs(value) < LARGEST else None
    return value if isinstance(value, str | bytes | float | bool) else None


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if type(value) is not dict or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _tokens(key: str, source: str) -> Iterator[_Token]:
    place, blanks = 0, ""
    while (found := _TOKEN.match(source, place)) is not None:
        kind, place = str(found.lastgroup), found.end()
        if kind == "blank":
            blanks = " "
            continue
        if kind != "text":
            yield _Token(kind, found[0], blanks=blanks)
            blanks = ""
            continue
        quote = found[0].lstrip("rRbB")
        ends = (_RAW_END if set(found[0]) & set("rR") else _END)[quote].match(source, place)
        if ends is None:
            raise Misconfigured(f"{key} = {source!r}: this is not CEL: a text has no end")
        yield _Token(kind, found[0] + ends[0], "" if "\\" in ends[0] else ends[0][: -len(quote)], blanks)
        place, blanks = ends.end(), ""


def _check_calls(key: str, source: str, tokens: list[_Token]) -> None:
    """Raise `Misconfigured` for a function whose time is not in proportion to the length of the condition."""
    for token, after, argument in zip(tokens, tokens[1:], [*tokens[2:], _Token("other", "")], strict=False):
        if token.kind != "name" or after.text != "(" or token.text == "in":
            continue
        if token.text not in FUNCTIONS:
            raise Misconfigured(f"{key} = {source!r}: {token.text}() cannot be used; there are {', '.join(sorted(FUNCTIONS))}")
        if token.text == "matches" and (argument.kind != "text" or "{" in argument.text):
            what = "the pattern of matches() must be a text without {"
            raise Misconfigured(f"{key} = {source!r}: {what}, such as matches('^on')")


def _is(tokens: list[_Token], place: int, *texts: str) -> bool:
    return [each.text for each in tokens[place : place + len(texts)]] == list(texts)


def _path_at(tokens: list[_Token], place: int) -> tuple[tuple[str, ...], int] | None:
    """Return the value that begins at a token, as the names on the way to it, and how many tokens it has."""
    if place >= len(tokens) or tokens[place].text not in NAMES or (place and tokens[place - 1].text == "."):
        return None
    path, here = [tokens[place].text], place + 1
    while here + 1 < len(tokens):
        name = tokens[here + 1]
        if _is(tokens, here, ".") and name.kind == "name" and not _is(tokens, here + 2, "("):
            path.append(name.text)
            here += 2
        elif _is(tokens, here, "[") and name.kind == "text" and name.value and _is(tokens, here + 2, "]"):
            path.append(name.value)
            here += 3
        else:
            break
    return tuple(path), here - place


def _name_of(reads: list[_Read], prefix: str, path: tuple[str, ...]) -> str:
    for each in reads:
        if each.path == path:
            return each.name
    reads.append(_Read(f"{prefix}{len(reads)}_", path))
    return reads[-1].name


def _add(tree: Tree, path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        if below is None:
            return
        tree = below
    tree[path[-1]] = None


def _leaves(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, below in tree.items():
        if below is None:
            yield (*above, name)
        else:
            yield from _leaves(below, (*above, name))


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


@cache
def _library() -> Any:
    """Return the library's compiled module without its package, whose command line takes 25 MB of memory."""
    package = find_spec("cel")
    found = PathFinder.find_spec("cel", package.submodule_search_locations) if package is not None else None
    if found is None or found.loader is None:
        raise Misconfigured("[[rules.react]] needs common-expression-language: pip install fogline-edge")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module
