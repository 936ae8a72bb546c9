"""Line to a Kafka broker that loses or delays the end of transactions: a TCP proxy that knows requests and responses.

The broker must advertise this line's port (`advertised.listeners`), or clients will bypass it. The line passes all
requests on unchanged except EndTxn (key 26 of Kafka's protocol).
"""

import contextlib
import enum
import socket
import struct
import threading
from types import TracebackType
from typing import Self

_END_TXN = 26
_LIMIT_S = 30.0


class Tear(enum.Enum):
    """Fault of one EndTxn."""

    REQUEST_LOST = "the request is lost"
    RESPONSE_LOST = "the answer is lost"
    RESPONSE_LATE = "the answer comes late"


class KafkaLine:
    """Listens on `port`, forwards to `target`, which may be set later. A context manager, with threads of its own.

    `torn` counts the EndTxn requests that a fault was applied to.
    """

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.torn = 0
        self._next: Tear | None = None
        self._newest = b""
        self._late: list[tuple[socket.socket, bytes]] = []
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="kafka-line", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for end in self._ends:
            _close(end)

    def tear(self, how: Tear) -> None:
        """Apply a fault to the next EndTxn, and only to that."""
        with self._lock:
            self._next = how

    def deliver_late(self) -> None:
        """Pass the delayed responses on to the clients that are still connected."""
        with self._lock:
            late, self._late = self._late, []
        for end, frame in late:
            with contextlib.suppress(OSError):
                end.sendall(frame)

    def deliver_copy(self) -> int:
        """Send the newest EndTxn to the broker again, as a copy that the network had delayed.

        Returns the broker's error code, 0 if the broker obeyed.
        """
        with socket.create_connection(("127.0.0.1", self.target), _LIMIT_S) as end:
            end.sendall(self._newest)
            response = _frame(end)
        assert response is not None
        code: int = struct.unpack_from(">h", response, 12)[0]  # size, correlation id, throttle time (version 0 to 2)
        return code

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target), _LIMIT_S)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._ends += [near, far]
                torn: dict[int, Tear] = {}
                for work in (self._pass_requests, self._pass_responses):
                    threading.Thread(target=work, args=(near, far, torn), name="kafka-line", daemon=True).start()

    def _pass_requests(self, near: socket.socket, far: socket.socket, torn: dict[int, Tear]) -> None:
        with contextlib.suppress(OSError):
            while (frame := _frame(near)) is not None:
                key, _, correlation = struct.unpack_from(">hhi", frame, 4)
                how = self._take(frame) if key == _END_TXN else None
                if how is Tear.REQUEST_LOST:
                    continue
                if how is not None:
                    torn[correlation] = how
                far.sendall(frame)
        _close(far)

    def _take(self, frame: bytes) -> Tear | None:
        with self._lock:
            how, self._next = self._next, None
            self._newest = frame
            self.torn += how is not None
        return how

    def _pass_responses(self, near: socket.socket, far: socket.socket, torn: dict[int, Tear]) -> None:
        with contextlib.suppress(OSError):
            while (frame := _frame(far)) is not None:
                how = torn.pop(struct.unpack_from(">i", frame, 4)[0], None)
                if how is Tear.RESPONSE_LATE:
                    with self._lock:
                        self._late.append((near, frame))
                elif how is None:
                    near.sendall(frame)
        _close(near)


def _frame(end: socket.socket) -> bytes | None:
    """Read one request or response, with its size before it. Returns `None` at the end of the connection."""
    size = _exactly(end, 4)
    body = _exactly(end, struct.unpack(">i", size)[0]) if size else None
    return size + body if size and body is not None else None


def _exactly(end: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = end.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
