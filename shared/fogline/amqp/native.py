"""Converts proton's values: delivery states, error conditions, maps and texts."""

from collections.abc import Callable, Mapping
from typing import Any

import proton

from fogline.amqp.outcome import DECODE_ERROR, UNKNOWN, Condition, DeliveryState, Outcome
from fogline.message import Property

STATES = {
    proton.Delivery.ACCEPTED: DeliveryState.ACCEPTED,
    proton.Delivery.REJECTED: DeliveryState.REJECTED,
    proton.Delivery.RELEASED: DeliveryState.RELEASED,
    proton.Delivery.MODIFIED: DeliveryState.MODIFIED,
}
NATIVE = {state: native for native, state in STATES.items()}
SELECTOR = "apache.org:selector-filter:string"
"""The type of filter that selects messages by their properties."""
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
"""Every type of error that proton's binding raises on a peer's value that it cannot convert."""


def plain(properties: object) -> dict[str, Property]:
    """Return the plain values of a peer's map, which may be absent. Raises one of `UNREADABLE`."""
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise TypeError(f"properties must be a map, not {type(properties).__name__}")
    kinds = bool | int | float | str | bytes
    found = {text_of(str(name)): value for name, value in properties.items() if isinstance(value, kinds)}
    return {name: text_of(value) if isinstance(value, str) else value for name, value in found.items()}


_SELECTOR_CODE = 0x0000468C_00000004


def filters_of(terminus: Any) -> dict[str, str]:
    """Return the filters of a source, by the name of their type (AMQP 1.0 part 3, 3.5.8). Raises one of `UNREADABLE`."""
    data = terminus.filter
    data.rewind()
    found = data.get_object() if data.next() else None
    filters: dict[str, str] = {}
    for name, value in dict(found or {}).items():
        descriptor = getattr(value, "descriptor", name)
        kind = SELECTOR if isinstance(descriptor, int) and int(descriptor) == _SELECTOR_CODE else str(descriptor)
        filters[kind] = text_of(str(getattr(value, "value", value)))
    return filters


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
    """Return the peer's outcome of a delivery that this side sent."""
    state = STATES.get(native.remote_state)
    if state is None:
        return UNKNOWN
    condition = native.remote.condition if state is DeliveryState.REJECTED else None
    return Outcome(state, str(condition.name), str(condition.description or "")) if condition else Outcome(state)
