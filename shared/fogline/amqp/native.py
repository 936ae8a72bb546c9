"""Proton's words as ours: states, conditions, maps, names."""

from collections.abc import Mapping
from typing import Any

import proton

from fogline.amqp.outcome import UNKNOWN, Condition, Outcome, State
from fogline.message import Property

STATES = {
    proton.Delivery.ACCEPTED: State.ACCEPTED,
    proton.Delivery.REJECTED: State.REJECTED,
    proton.Delivery.RELEASED: State.RELEASED,
    proton.Delivery.MODIFIED: State.MODIFIED,
}
NATIVE = {state: native for native, state in STATES.items()}
UNREADABLE = (proton.ProtonException, ValueError, TypeError, RecursionError)
"""What proton raises on a peer's maps that are too deep, or have keys or texts that there cannot be."""


def key_of(native: Any) -> str:
    """A name is unique per direction (AMQP 1.0 part 2, section 2.6.1)."""
    return f"{'>' if native.is_sender else '<'}{native.name}"


def plain(properties: Mapping[object, object] | None) -> dict[str, Property]:
    """A peer's map, as far as its values are plain."""
    kinds = bool | int | float | str | bytes
    return {str(name): value for name, value in (properties or {}).items() if isinstance(value, kinds)}


def condition_of(native: Any) -> Condition | None:
    """An error condition; `None` if none is set."""
    return Condition(str(native.name), str(native.description or "")) if native else None


def outcome_of(native: Any) -> Outcome:
    """What the peer said of a delivery that this side sent."""
    state = STATES.get(native.remote_state)
    if state is None:
        return UNKNOWN
    condition = native.remote.condition if state is State.REJECTED else None
    return Outcome(state, str(condition.name), str(condition.description or "")) if condition else Outcome(state)
