"""Runs decoders over their inputs, and counts what became of them."""

import itertools
import json
import os
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fogline.errors import Poison
from fuzz.forms import Case, Decoder

SEED = "FOGLINE_FUZZ_SEED"
REPORT = "FOGLINE_FUZZ_REPORT"
"""A folder: the counts by decoder, field and kind are written there as JSON."""
LEAST_REACHED = 0.6
_SHOWN = 12


def seed() -> int:
    """The seed of this run: `FOGLINE_FUZZ_SEED`, or 1."""
    return int(os.environ.get(SEED, "1"))


def cases(decoder: Decoder, count: int) -> Iterator[Case]:
    """`count` inputs: every replacement once, then pairs of them at random; of too many, a sample by the seed."""
    random = Random(f"{decoder.name} {seed()}")
    singles = [make for form in decoder.forms for make in form.singles()]
    yield from (make() for make in (singles if len(singles) < count else random.sample(singles, count)))
    if len(singles) >= count:
        return
    each = -(-2 * (count - len(singles)) // len(decoder.forms))
    pairs = (form.pairs(random, decoder.layer_names, each) for form in decoder.forms)
    yield from itertools.islice(itertools.chain.from_iterable(pairs), count - len(singles))


@dataclass
class Tally:
    """Results of one decoder's inputs."""

    name: str
    inputs: int = 0
    reached: int = 0
    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def line(self) -> str:
        """One line for a person."""
        fields = len({(form, path) for form, path, _ in self.counts if "+" not in path})
        kinds = len({kind for _, _, kind in self.counts if "+" not in kind})
        share = 100 * self.reached // max(1, self.inputs)
        return (
            f"{self.name}: {self.inputs:,} inputs of {fields} fields and {kinds} kinds, {share} % reached the layer that"
            f" they aim at, {self.taken:,} were taken, {len(self.failures)} failed"
        )

    def check(self) -> None:
        """Fail with the inputs that broke the decoder, so that they can be replayed."""
        shown = "\n".join(self.failures[:_SHOWN])
        assert not self.failures, f"seed {seed()}: {len(self.failures)} inputs of {self.name} failed:\n{shown}"
        share = self.reached / max(1, self.inputs)
        assert share >= LEAST_REACHED, f"only {share:.0%} of the inputs of {self.name} reach the layer that they aim at"

    def write(self) -> None:
        """The counts as JSON, if a folder for them is named."""
        if folder := os.environ.get(REPORT):
            by_field: dict[str, dict[str, int]] = {}
            for (form, path, kind), count in sorted(self.counts.items()):
                by_field.setdefault(f"{form} {path}", {})[kind] = count
            told = {
                "decoder": self.name,
                "seed": seed(),
                "inputs": self.inputs,
                "reached": self.reached,
                "taken": self.taken,
                "refused": dict(self.refused),
                "failed": self.failures,
                "fields": by_field,
            }
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{self.name.replace('/', '-')}.json").write_text(json.dumps(told, indent=1))


def run(decoder: Decoder, count: int) -> Tally:
    """Give a decoder its inputs. Raises `AssertionError` only if it refuses its own valid ones."""
    tally = Tally(decoder.name)
    for form in decoder.forms:
        expect_valid(decoder, form.valid())
    for case in cases(decoder, count):
        judge(decoder, case, tally)
    for form in decoder.forms:
        expect_valid(decoder, form.valid())
    tally.write()
    return tally


def expect_valid(decoder: Decoder, case: Case) -> None:
    """Check that a decoder accepts its valid input."""
    value = case.data
    for layer in decoder.layers:
        try:
            value = layer.read(value)
        except Poison as error:
            raise AssertionError(f"{decoder.name}: layer {layer.name} refuses a valid {case.form}: {error}") from error


def judge(decoder: Decoder, case: Case, tally: Tally) -> None:
    """Give a decoder one input."""
    tally.inputs += 1
    pair = "+" in case.kind
    tally.counts[case.form, "two at random" if pair else case.field, "two at random" if pair else case.kind] += 1
    aim = decoder.layer_names.index(case.aim)
    value, passed = case.data, 0
    try:
        for layer in decoder.layers:
            value = layer.read(value)
            passed += 1
        tally.taken += 1
    except Poison as error:
        tally.refused[error.reason] += 1
    except BaseException as error:  # noqa: BLE001 - the finding itself
        tally.failures.append(described(decoder, case, decoder.layers[passed].name, error))
    tally.reached += passed >= aim


def described(decoder: Decoder, case: Case, layer: str, error: BaseException) -> str:
    """A failure in words, with the input."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{decoder.name} {case.form} {case.field or '(all)'} {case.kind}: layer {layer} raised {type(error).__name__}:"
        f" {str(error)[:100]} at {Path(where.filename).name}:{where.lineno}; input {shown(case.data)}"
    )


def shown(data: Any) -> str:
    """An input as hex, in full up to 400 bytes."""
    if isinstance(data, bytes):
        return data.hex() if len(data) <= 400 else f"{data[:200].hex()}... ({len(data)} bytes)"
    return repr(data)[:800]


def summed(tallies: Sequence[Tally]) -> str:
    """All of them in one line."""
    return f"{sum(each.inputs for each in tallies):,} inputs over {len(tallies)} decoders"
