"""Inputs for decoders: a valid structure, with one field at a time replaced by each wrong type, length, depth and value.

A `Form` is the valid structure. Its `Field`s know what may stand in their place, already encoded, so that also what no
library would write can be sent. `aim` is the layer of the decoder that reads the field: an input counts as *reached* if
every layer before that one has accepted it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, NamedTuple

Choice = tuple[str, Any]
"""Kind (`type/null`, `length/empty`, `depth/2000`, `value/nan`, ...) and the encoded replacement."""


class Field(NamedTuple):
    """One field of a form: its path, the layer that reads it, and the replacements."""

    path: str
    aim: str
    choices: Sequence[Choice]


class Case(NamedTuple):
    """One input. `field` and `kind` name the replacement; two of them are joined by `+`."""

    form: str
    field: str
    kind: str
    aim: str
    data: Any


@dataclass(frozen=True)
class Form:
    """A valid structure. `render` encodes it with some fields replaced (by path)."""

    name: str
    fields: Sequence[Field]
    render: Callable[[Mapping[str, Any]], Any]

    def valid(self) -> Case:
        """The input with nothing replaced."""
        return Case(self.name, "-", "valid", "", self.render({}))

    def singles(self) -> Iterator[Callable[[], Case]]:
        """Every field with every replacement, one at a time, still to be encoded."""
        for field in self.fields:
            for choice in field.choices:
                yield partial(self._single, field, *choice)

    def _single(self, field: Field, kind: str, value: Any) -> Case:
        return Case(self.name, field.path, kind, field.aim, self.render({field.path: value}))

    def pairs(self, random: Random, layers: Sequence[str], count: int) -> Iterator[Case]:
        """`count` inputs with two fields replaced at random; the earlier layer of both is aimed at."""
        for _ in range(count if len(self.fields) > 1 else 0):
            two = random.sample(self.fields, 2)
            (kind, value), (other_kind, other) = (random.choice(each.choices) for each in two)
            first, second = two
            if first.path.startswith(second.path) or second.path.startswith(first.path):
                continue
            aim = min(first.aim, second.aim, key=layers.index)
            data = self.render({first.path: value, second.path: other})
            yield Case(self.name, f"{first.path} + {second.path}", f"{kind} + {other_kind}", aim, data)


class Layer(NamedTuple):
    """One step of a decoder: takes what the step before returned; raises `Poison` or returns."""

    name: str
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class Decoder:
    """A border of the project: its layers, outermost first, and the forms of what comes there."""

    name: str
    layers: Sequence[Layer]
    forms: Sequence[Form]

    @property
    def layer_names(self) -> list[str]:
        """The names of the layers, outermost first."""
        return [each.name for each in self.layers]


MISSING = object()
"""In place of a member's value: the member is left out."""
