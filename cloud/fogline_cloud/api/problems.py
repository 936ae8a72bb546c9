"""Problems that a client gets (RFC 9457): a status and one sentence. Pure."""

import math
from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from fogline.errors import Poison

PROBLEM_JSON = "application/problem+json"
RETRY_S = 1.0
"""When a client may try again what was not possible at present."""
_STATUS = {"too-big": 413, "not-authorised": 403, "quota": 429}


class Problem(Exception):
    """A request that cannot be done. The text is `detail`. `retry_after_s`: when the client may try again, if it may."""

    def __init__(
        self, status: int, detail: str, *, retry_after_s: float | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after_s)))

    def body(self) -> bytes:
        """Return the body of the response."""
        try:
            title = HTTPStatus(self.status).phrase
        except ValueError:
            title = "Error"
        return msgspec.json.encode({"type": "about:blank", "title": title, "status": self.status, "detail": str(self)})


def not_at_present(detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    """Return the problem of a request that may be sent again."""
    return Problem(503, detail, retry_after_s=RETRY_S, headers=headers)


def of_poison(error: Poison) -> Problem:
    """Return the problem of an input that cannot be read."""
    return Problem(_STATUS.get(error.reason, 400), str(error))
