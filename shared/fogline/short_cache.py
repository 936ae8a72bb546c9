"""A cache for functions of short texts. It keeps no long ones, because a text of a peer may have a megabyte."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

T = TypeVar("T")

MAX_CHARS = 1024
"""Limit of the characters of all arguments of a cached call."""


def cache_short(maxsize: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a function of strings with an `lru_cache` for calls with short arguments."""

    def decorate(call: Callable[..., T]) -> Callable[..., T]:
        cached = lru_cache(maxsize)(call)

        @wraps(call)
        def short(*given: str) -> T:
            return cached(*given) if sum(map(len, given)) <= MAX_CHARS else call(*given)

        return short

    return decorate
