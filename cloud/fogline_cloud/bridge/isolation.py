"""Keeps one bad input from ending a shard."""

import contextlib
import logging
from collections.abc import Iterator

from fogline.errors import FoglineError, Poison

_log = logging.getLogger("fogline.shard")


@contextlib.contextmanager
def isolated(what: str) -> Iterator[None]:
    """Raise `Poison` in place of any error that is not a `FoglineError`. `what` names the input in the log and the error.

    Only for code that changes nothing: the caller refuses the input and goes on.
    """
    try:
        yield
    except FoglineError:
        raise
    except Exception as error:
        _log.exception("%s is refused after an unexpected error", what)
        raise Poison("malformed", f"{what} cannot be processed: {type(error).__name__}: {error}") from error
