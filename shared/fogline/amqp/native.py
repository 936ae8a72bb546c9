"""Proton's words as ours: states, conditions, maps, names."""

from collections.abc import Callable, Mapping
from typing import Any

import proton

from fogline.amqp.outcome import DECODE_ERROR, UNKNOWN, Condition, Outcome, State
from fogline.message import Property

STATES = {
    proton.Delivery.ACCEPTED: State.ACCEPTED,
    proton.Delivery.REJECTED: State.REJECTED,
    proton.Delivery.RELEASED: State.RELEASED,
    proton.Delivery.MODIFIED: State.MODIFIED,
}
NATIVE = {state: native for native, state in STATES.items()}
UNREADABLE = (
    proton.ProtonException,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Every kind of error that proton's binding raises on a peer's value that it cannot convert. One kind for us: unreadable."""


def plain(properties: object) -> dict[str, Property]:
    """Return the plain values of a peer's map, which may be absent. Raises one of `UNREADABLE`."""
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties must be a map, not {type(properties).__name__}")
    kinds = bool | int | float | str | bytes
    found = {text_of(str(name)): value for name, value in properties.items() if isinstance(value, kinds)}
    return {name: text_of(value) if isinstance(value, str) else value for name, value in found.items()}


def text_of(value: str) -> str:
    """Return a peer's text as a plain `str`. Raises `ValueError` for half of a surrogate pair, which UTF-8 cannot hold."""
    value.encode()
    return str(value)


def condition_of(read: Callable[[], Any]) -> Condition | None:
    """Return the error condition that `read` gets from proton; `None` if none is set. Never raises."""
    try:
        native = read()
        return Condition(str(native.name), str(native.description or "")) if native else None
    except UNREADABLE as error:
        return Condition(DECODE_ERROR, f"the peer's error condition cannot be read: {error}")


def outcome_of(native: Any) -> Outcome:
    """What the peer said of a delivery that this side sent."""
    state = STATES.get(native.remote_state)
    if state is None:
        return UNKNOWN
    condition = native.remote.condition if state is State.REJECTED else None
    return Outcome(state, str(condition.name), str(condition.description or "")) if condition else Outcome(state)
