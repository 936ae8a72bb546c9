"""A cache for functions of short texts. Texts of a peer may have a megabyte, and a cache must not keep thousands of those."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

T = TypeVar("T")

MAX_CHARS = 1024
"""Arguments that are longer than this together are not kept."""


def cache_short(maxsize: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a function of strings: the results of the `maxsize` latest short arguments are kept, as by `lru_cache`."""

    def decorate(call: Callable[..., T]) -> Callable[..., T]:
        cached = lru_cache(maxsize)(call)

        @wraps(call)
        def short(*given: str) -> T:
            return cached(*given) if sum(map(len, given)) <= MAX_CHARS else call(*given)

        return short

    return decorate
