"""A line to a Kafka broker that tears the ends of transactions: a TCP proxy that knows where requests begin and end.

Give the broker `advertised.listeners` with this line's port, or clients will go round it. Whatever is not the end of a
transaction (EndTxn, key 26 of Kafka's protocol) is passed on as it came.
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
    """What happens to one end of a transaction."""

    REQUEST_LOST = "the request is lost"
    ANSWER_LOST = "the answer is lost"
    ANSWER_LATE = "the answer comes late"


class TornLine:
    """Listens on `port`, forwards to `target`, which may be set later. A context manager; threads of its own.

    `torn`: how many ends of transactions were torn.
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
        threading.Thread(target=self._accept, name="torn-line", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for end in self._ends:
            _close(end)

    def tear(self, how: Tear) -> None:
        """Do so with the next end of a transaction, and only with that."""
        with self._lock:
            self._next = how

    def deliver_late(self) -> None:
        """Hand over the answers that were held back, to whoever is still there."""
        with self._lock:
            late, self._late = self._late, []
        for end, frame in late:
            with contextlib.suppress(OSError):
                end.sendall(frame)

    def deliver_copy(self) -> int:
        """Send the newest end of a transaction to the broker again, as a copy that the network had kept.

        Returns the broker's error code for it, 0 if it was obeyed.
        """
        with socket.create_connection(("127.0.0.1", self.target), _LIMIT_S) as end:
            end.sendall(self._newest)
            answer = _frame(end)
        assert answer is not None
        code: int = struct.unpack_from(">h", answer, 12)[0]  # size, correlation id, throttle time (version 0 to 2)
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
                for work in (self._up, self._down):
                    threading.Thread(target=work, args=(near, far, torn), name="torn-line", daemon=True).start()

    def _up(self, near: socket.socket, far: socket.socket, torn: dict[int, Tear]) -> None:
        """Requests, from the client to the broker."""
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

    def _down(self, near: socket.socket, far: socket.socket, torn: dict[int, Tear]) -> None:
        """Answers, from the broker to the client."""
        with contextlib.suppress(OSError):
            while (frame := _frame(far)) is not None:
                how = torn.pop(struct.unpack_from(">i", frame, 4)[0], None)
                if how is Tear.ANSWER_LATE:
                    with self._lock:
                        self._late.append((near, frame))
                elif how is None:
                    near.sendall(frame)
        _close(near)


def _frame(end: socket.socket) -> bytes | None:
    """One request or answer with its size before it; `None` at the end of the connection."""
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
