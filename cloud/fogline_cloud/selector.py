"""Selector filters of AMQP consumers: the part of JMS' selectors that compares properties. Pure.

`device_id = 'lamp-1' AND (ttd IS NOT NULL OR NOT orig_adapter IN ('ble', 'coap')) AND cloudEvents_subject LIKE 'plant/%'`

A name is a property; one that is no identifier is quoted (`"content-type" = 'text/plain'`). A property that a message does not
have is NULL, and a comparison with it is neither true nor false, as in SQL. Texts and numbers are never equal.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fogline.address import shown
from fogline.errors import Poison

MAX_SELECTOR = 2048
"""Longest selector, in characters."""
MAX_DEPTH = 32
"""Most levels of parentheses and NOT."""

Value = str | int | float | bool | None
Properties = Mapping[str, Value]
Condition = Callable[[Properties], bool | None]

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>\"[^\"]+\")|(?P<number>[+-]?(?:\d+\.\d*|\.?\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[A-Za-z_$][\w$.]*)|(?P<sign><>|<=|>=|[=<>(),]))",
    re.ASCII,
)
_WORDS = frozenset({"AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", "BETWEEN"})


class _Token(NamedTuple):
    kind: str
    text: str


def read_selector(text: str) -> Condition:
    """Return the condition of a selector: True, False, or None for unknown. Raises `Poison('bad-selector')`."""
    if len(text) > MAX_SELECTOR:
        raise Poison("bad-selector", f"a selector has at most {MAX_SELECTOR} characters")
    parser = _Parser(list(_tokens(text)))
    condition = parser.either(0)
    parser.end()
    return condition


def _tokens(text: str) -> Sequence[_Token]:
    found: list[_Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise Poison("bad-selector", f"the selector cannot be read at {shown(text[at:])}")
        kind, word = match.lastgroup, match[match.lastgroup]
        found.append(_Token("word", word.upper()) if kind == "word" and word.upper() in _WORDS else _Token(f"{kind} ", word))
        at = match.end()
    return found


class _Parser:
    """A parser by recursive descent. Kinds of tokens: `word` for a keyword, else the group of `_TOKEN` and a blank."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def either(self, depth: int) -> Condition:
        """Read conditions joined by OR."""
        parts = [self._both(depth)]
        while self._takes("OR"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else lambda properties: _any([part(properties) for part in parts])

    def end(self) -> None:
        """Check that nothing follows."""
        if self._at < len(self._tokens):
            raise self._unexpected("the end")

    def _both(self, depth: int) -> Condition:
        parts = [self._not(depth)]
        while self._takes("AND"):
            parts.append(self._not(depth))
        return parts[0] if len(parts) == 1 else lambda properties: _all([part(properties) for part in parts])

    def _not(self, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise Poison("bad-selector", f"a selector has at most {MAX_DEPTH} levels")
        if self._takes("NOT"):
            return _negated(self._not(depth + 1))
        if self._takes("("):
            inner = self.either(depth + 1)
            self._expect(")")
            return inner
        return self._comparison()

    def _comparison(self) -> Condition:
        left = self._operand()
        sign = self._peek().text
        if sign in _COMPARISONS:
            self._at += 1
            compare, right = _COMPARISONS[sign], self._operand()
            return lambda properties: compare(left(properties), right(properties))
        if self._takes("IS"):
            negated = self._takes("NOT")
            self._expect("NULL")
            return lambda properties: (left(properties) is None) is not negated
        negated = self._takes("NOT")
        condition = self._membership(left)
        return _negated(condition) if negated else condition

    def _membership(self, left: Callable[[Properties], Value]) -> Condition:
        if self._takes("IN"):
            self._expect("(")
            texts = {self._text()}
            while self._takes(","):
                texts.add(self._text())
            self._expect(")")
            return lambda properties: None if (value := left(properties)) is None else value in texts
        if self._takes("LIKE"):
            pattern = self._text()
            parts = _like(pattern, self._text() if self._takes("ESCAPE") else "")
            return lambda properties: _matches(left(properties), parts)
        if self._takes("BETWEEN"):
            low = self._operand()
            self._expect("AND")
            high = self._operand()
            return lambda properties: _all(
                [
                    _ordered(low(properties), left(properties), equal=True),
                    _ordered(left(properties), high(properties), equal=True),
                ]
            )
        if self._at and self._tokens[self._at - 1].kind == "text ":
            raise self._unexpected("an operator")
        return lambda properties: value if isinstance(value := left(properties), bool) else None

    def _operand(self) -> Callable[[Properties], Value]:
        kind, text = self._peek()
        self._at += 1
        match kind:
            case "text ":
                literal: Value = text[1:-1].replace("''", "'")
            case "number ":
                literal = float(text) if set(text) & set(".eE") else int(text)
            case "quoted " | "word ":
                name = text.strip('"')
                return lambda properties: properties.get(name)
            case _ if text in ("TRUE", "FALSE"):
                literal = text == "TRUE"
            case _:
                self._at -= 1
                raise self._unexpected("a property or a value")
        return lambda _: literal

    def _text(self) -> str:
        kind, text = self._peek()
        if kind != "text ":
            raise self._unexpected("a text in quotes")
        self._at += 1
        return text[1:-1].replace("''", "'")

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _Token("", "")

    def _takes(self, text: str) -> bool:
        found = self._peek() in (_Token("word", text), _Token("sign ", text))
        self._at += found
        return found

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._unexpected(text)

    def _unexpected(self, wanted: str) -> Poison:
        return Poison("bad-selector", f"the selector has {shown(self._peek().text)} where {wanted} should be")


def _negated(condition: Condition) -> Condition:
    return lambda properties: None if (found := condition(properties)) is None else not found


def _any(found: Sequence[bool | None]) -> bool | None:
    return True if True in found else None if None in found else False


def _all(found: Sequence[bool | None]) -> bool | None:
    return False if False in found else None if None in found else True


def _equal(left: Value, right: Value) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, str | bool) or isinstance(right, str | bool):
        return type(left) is type(right) and left == right
    return left == right


def _ordered(left: Value, right: Value, *, equal: bool) -> bool | None:
    """Return True if `left` is less than `right`, or equal. Texts have no order in JMS."""
    if left is None or right is None:
        return None
    if isinstance(left, str | bool) or isinstance(right, str | bool):
        return False
    return left <= right if equal else left < right


_COMPARISONS: Mapping[str, Callable[[Value, Value], bool | None]] = {
    "=": _equal,
    "<>": lambda left, right: None if (found := _equal(left, right)) is None else not found,
    "<": lambda left, right: _ordered(left, right, equal=False),
    "<=": lambda left, right: _ordered(left, right, equal=True),
    ">": lambda left, right: _ordered(right, left, equal=False),
    ">=": lambda left, right: _ordered(right, left, equal=True),
}


class _Pattern(NamedTuple):
    """A LIKE pattern as bit sets. Bit i stands for its character i, `%` not counted, or for the place in front of it."""

    characters: Mapping[str, int]  # the characters of the pattern that match a character
    any_character: int  # those that match any: `_`
    gaps: int  # the places with a `%`
    length: int


def _like(pattern: str, escape: str) -> _Pattern:
    if len(escape) > 1:
        raise Poison("bad-selector", "ESCAPE has one character")
    characters: dict[str, int] = {}
    length = any_character = gaps = 0
    rest = iter(pattern)
    for each in rest:
        own = next(rest, escape) if each == escape else ""
        if each == "%" and not own:
            gaps |= 1 << length
            continue
        if each == "_" and not own:
            any_character |= 1 << length
        else:
            characters[own or each] = characters.get(own or each, 0) | 1 << length
        length += 1
    return _Pattern(characters, any_character, gaps, length)


def _matches(value: Value, pattern: _Pattern) -> bool | None:
    """Match all ways at once (Baeza-Yates and Gonnet's shift-and): a few operations on a pattern's bits for each character."""
    if value is None:
        return None
    if not isinstance(value, str):
        return False
    characters, any_character, gaps, length = pattern
    reached = 1  # the places up to which the pattern matches what was read
    for each in value:
        reached = (reached & (characters.get(each, 0) | any_character)) << 1 | reached & gaps
        if not reached:
            return False
    return bool(reached >> length & 1)
