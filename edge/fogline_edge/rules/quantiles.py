"""Quantiles of the numbers of a window, within 1 % (DDSketch, by the library `ddsketch`).

A window keeps how many numbers fell into each bin of the library's mapping. So its state is a few numbers that a file can hold,
and any two states add up. The library's sketch computes the quantiles from the bins.
"""

from functools import cache
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ddsketch.mapping import LogarithmicMapping

ACCURACY = 0.01
MAX_BINS = 256
"""Bins of one sign: numbers that differ by a factor of 160. Beyond, the numbers next to zero share a bin and lose accuracy."""


class Bins(msgspec.Struct, array_like=True):
    """Numbers by bin: those above zero, below zero, and zeros."""

    above: dict[int, int] = msgspec.field(default_factory=dict)
    below: dict[int, int] = msgspec.field(default_factory=dict)
    zeros: int = 0

    def add(self, value: float) -> None:
        """Add a number."""
        mapping = _mapping()
        if abs(value) <= mapping.min_possible:
            self.zeros += 1
            return
        bins, key = self.above if value > 0 else self.below, mapping.key(abs(value))
        bins[key] = bins.get(key, 0) + 1
        if len(bins) > MAX_BINS:
            lowest, second = sorted(bins)[:2]
            bins[second] += bins.pop(lowest)

    def quantile(self, share: float) -> float | None:
        """Return the number below which `share` of the numbers are; None without numbers."""
        from ddsketch import DDSketch  # noqa: PLC0415 - costs 3 MB, and few gateways compute quantiles

        sketch, mapping = DDSketch(ACCURACY), _mapping()
        for key, count in self.above.items():
            sketch.add(mapping.value(key), count)
        for key, count in self.below.items():
            sketch.add(-mapping.value(key), count)
        if self.zeros:
            sketch.add(0.0, self.zeros)
        found = sketch.get_quantile_value(share)
        return None if found is None else float(found)


@cache
def _mapping() -> "LogarithmicMapping":
    from ddsketch.mapping import LogarithmicMapping  # noqa: PLC0415 - see `quantile`

    return LogarithmicMapping(ACCURACY)
