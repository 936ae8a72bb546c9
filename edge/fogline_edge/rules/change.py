"""Values of fields that report-on-change compares, and the change that makes them news. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fogline_edge.rules.payload import MISSING

MAX_NUMBER = 1e300
"""A larger number has no place in a sum or a difference of floats. It is compared like text."""
ROUNDING = 1e-12
"""What a difference of decimal numbers may miss, as a share of the numbers: 20.2 - 20.1 is less than 0.1."""
MAX_TEXT = 64
"""Longest text of a value that is kept as it is. Of a longer one, the digest is kept."""


@dataclass(frozen=True, slots=True)
class Band:
    """The change of a number that is news: by `least`, or by `percent` of the last event's number; without both, any.

    `dead`: numbers from its first to its last are the same.
    """

    least: float | None = None
    percent: float | None = None
    dead: tuple[float, float] | None = None

    def is_exceeded(self, last: float, now: float) -> bool:
        """Return True if a number has changed enough since the last event."""
        if last == now or (self.dead is not None and all(self.dead[0] <= each <= self.dead[1] for each in (last, now))):
            return False
        change = abs(now - last) + ROUNDING * max(abs(last), abs(now))
        if self.least is None and self.percent is None:
            return True
        by_least = self.least is not None and change >= self.least
        return by_least or (self.percent is not None and change >= abs(last) * self.percent / 100)

    def sentence(self) -> str:
        """Return the change that is news, in words."""
        parts = [f"by {self.least:g}"] if self.least is not None else []
        if self.percent is not None:
            parts.append(f"by {self.percent:g} %")
        band = f" outside {self.dead[0]:g} to {self.dead[1]:g}" if self.dead is not None else ""
        return f"{' or '.join(parts) or 'at all'}{band}"


def is_number(value: Any) -> bool:
    """Return True for a number that can be added to others: neither a boolean, nor NaN, nor beyond `MAX_NUMBER`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_NUMBER <= value <= MAX_NUMBER


def comparable(value: Any) -> Any:
    """Return a number as it is, and a small value that stands for any other. `MISSING` stays."""
    if value is MISSING or is_number(value):
        return value
    try:
        text = repr(value).encode("utf-8", "surrogatepass")
    except RecursionError:
        return object()  # equal to nothing: in doubt, the event is stored
    return text if len(text) <= MAX_TEXT else hashlib.blake2b(text, digest_size=16).digest()


def has_changed(band: Band, last: Sequence[Any], now: Sequence[Any]) -> bool:
    """Return True if one of the values, as `comparable` gives them, has changed."""
    return any(
        band.is_exceeded(former, value) if is_number(former) and is_number(value) else former != value
        for former, value in zip(last, now, strict=True)
    )
