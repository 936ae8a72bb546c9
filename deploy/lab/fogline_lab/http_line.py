"""HTTP line to an object store: a proxy that loses answers, is away, adds delay, or ignores the conditions of requests.

It passes requests on with the client's own `Host`, so that their signatures hold. It takes bodies of a known length only.
"""

import contextlib
import enum
import http.client
import itertools
import json
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fogline_lab.supervisor import ChildProcess

_LIMIT_S = 120.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}  # RFC 9110, 7.6.1
_SIGNATURE = {"authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"}


class Absence(enum.Enum):
    """Behaviour of a store that is away."""

    RESETS = "each connection is reset"
    HANGS = "requests are taken, and not answered"


class Conditions(enum.Enum):
    """Treatment of requests with `If-None-Match`."""

    KEPT = "passed on"
    IGNORED = "passed on without it, as by a store that does not know it; the store must take unsigned requests"
    REFUSED = "answered by 501"


class _LostAnswers:
    """Rule for requests whose answers are lost."""

    def __init__(self, path: str, method: str, every: int, limit: int) -> None:
        self._path = re.compile(path)
        self._method = method
        self._every = every
        self._limit = limit
        self._seen = itertools.count(1)

    def applies(self, method: str, path: str) -> bool:
        if method != self._method or not self._path.search(path) or not self._limit or next(self._seen) % self._every:
            return False
        self._limit -= 1
        return True


class HttpLine:
    """Listens on `port` and forwards to `target`, a port of loopback. A context manager.

    The proxy is a process of its own: delta-rs holds Python's lock while it waits for a store.
    """

    def __init__(self, target: int, log: Path) -> None:
        self._process = ChildProcess("the HTTP line", [sys.executable, "-m", "fogline_lab.http_line", target], log)
        self.port = 0

    @property
    def endpoint(self) -> str:
        """The URL of the line."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def lost(self) -> list[str]:
        """The paths of the requests whose answers were lost, in order."""
        return list(self._order({})["lost"])

    def lose_answers(self, path: str, *, method: str = "PUT", every: int = 1, limit: int = 1 << 60) -> None:
        """Pass requests on, but answer 500: each `every`th one whose path matches `path` (a pattern), `limit` times."""
        self._order({"lose": {"path": path, "method": method, "every": every, "limit": limit}})

    def lose_none(self) -> None:
        """Lose no more answers."""
        self._order({"lose": None})

    def delay(self, seconds: float) -> None:
        """Add a delay to each request from now on."""
        self._order({"delay_s": seconds})

    def treat(self, conditions: Conditions) -> None:
        """Treat requests with `If-None-Match` in this way from now on."""
        self._order({"conditions": conditions.name})

    @contextlib.contextmanager
    def away(self, how: Absence = Absence.RESETS) -> Iterator[None]:
        """Be away within the block, for connections that exist too. Requests that hang are reset at its end."""
        self._order({"absence": how.name})
        try:
            yield
        finally:
            self._order({"absence": None})

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        """Let the proxy obey an order. Returns its answer."""
        self._process.tell(json.dumps(order))
        return self._process.next_line()

    def __enter__(self) -> Self:
        self._process.start()
        self.port = self._process.next_line()["port"]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.join()


class _Faults:
    """Faults of the line now, in the proxy's process. `lost`: the paths of the requests whose answers were lost, in order."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay_s = 0.0
        self.conditions = Conditions.KEPT
        self.lost: list[str] = []
        self._rules: list[_LostAnswers] = []
        self._absence: Absence | None = None
        self._back = threading.Event()
        self._lock = threading.Lock()

    def obey(self, order: dict[str, Any]) -> None:
        """Do what `HttpLine` asks for."""
        match order:
            case {"lose": rule}:
                with self._lock:
                    self._rules = [*self._rules, _LostAnswers(**rule)] if rule else []
            case {"absence": name}:
                self._absence = None if name is None else Absence[name]
                (self._back.set if name is None else self._back.clear)()
            case {"delay_s": seconds}:
                self.delay_s = seconds
            case {"conditions": name}:
                self.conditions = Conditions[name]

    def absence(self) -> Absence | None:
        """Return how the store is away now. Waits until it is back if requests hang."""
        if (how := self._absence) is Absence.HANGS:
            self._back.wait(_LIMIT_S)
        return how

    def loses(self, method: str, path: str) -> bool:
        """Return True if the answer of this request is to be lost, and note it."""
        with self._lock:
            found = any(each.applies(method, path) for each in self._rules)
            if found:
                self.lost.append(path)
            return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, faults: _Faults) -> None:
        self.faults = faults
        super().__init__(("127.0.0.1", 0), _Connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error of the line."""


class _Connection(BaseHTTPRequestHandler):
    """One connection of a client, and one to the store."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._far = http.client.HTTPConnection("127.0.0.1", self.server.faults.target, timeout=_LIMIT_S)

    def finish(self) -> None:
        self._far.close()
        with contextlib.suppress(OSError):
            super().finish()

    def handle_expect_100(self) -> bool:
        if self.server.faults.absence() is not None:
            self._reset()
            return False
        return super().handle_expect_100()

    def _pass_on(self) -> None:
        faults = self.server.faults
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if faults.absence() is not None:
            self._reset()
            return
        time.sleep(faults.delay_s)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        if "if-none-match" in self.headers and self.command == "PUT":
            if faults.conditions is Conditions.REFUSED:
                self._answer(501, {}, b"<Error><Code>NotImplemented</Code></Error>")
                return
            if faults.conditions is Conditions.IGNORED:
                removed = {*_SIGNATURE, "if-none-match"}
                headers = {name: value for name, value in headers.items() if name.lower() not in removed}
        try:
            self._far.request(self.command, self.path, body or None, headers)
            response = self._far.getresponse()
            found, more = response.read(), dict(response.getheaders())
        except (OSError, http.client.HTTPException):  # the store is away
            self._reset()
            return
        if faults.absence() is not None:
            self._reset()
        elif faults.loses(self.command, self.path):
            self._answer(500, {}, b"<Error><Code>InternalError</Code><Message>the answer is lost</Message></Error>")
        else:
            self._answer(response.status, more, found)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - names that http.server calls

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers.items():
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if status not in {204, 304}:
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of http.server
        """Write no log."""


def main() -> int:
    """Run the proxy: one JSON line with its port, then an answer to each line of stdin, until stdin ends."""
    server = _Server(_Faults(int(sys.argv[1])))
    threading.Thread(target=server.serve_forever, name="http-line", daemon=True).start()
    sys.stdout.write(json.dumps({"port": server.server_address[1]}) + "\n")
    sys.stdout.flush()
    for order in sys.stdin:
        server.faults.obey(json.loads(order))
        sys.stdout.write(json.dumps({"lost": server.faults.lost}) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
