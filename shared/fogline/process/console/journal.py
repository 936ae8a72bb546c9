"""Log records with fields in systemd's journal, which `journalctl FOGLINE_DEVICE=lamp-1` finds. Elsewhere, lines on stderr.

systemd names the journal's stream in `JOURNAL_STREAM` (systemd.exec(5)). If that is our stderr, each record goes to the journal
in its native protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL), one datagram for a record. A record has a field if it was
logged with it: `_log.warning("...", extra={"device": "lamp-1"})`.
"""

import logging
import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from fogline.process.console.terminal import escaped

JOURNAL = "/run/systemd/journal/socket"
FIELDS = ("tenant", "gateway", "device", "lane", "reason")
"""The names in `extra` that become fields: `FOGLINE_TENANT`, ..."""
MAX_MESSAGE_BYTES = 64 * 1024
MAX_FIELD_BYTES = 1024
"""What is longer is cut. A datagram of the kernel's default size holds all fields together (net.core.wmem_default)."""
LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def log_handler(identifier: str, path: str = JOURNAL) -> logging.Handler:
    """Return the handler of this process's log: the journal if stderr leads there, else stderr."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(EscapingFormatter(LINE_FORMAT))
    return JournalHandler(identifier, lines, path) if _stderr_is_the_journal() else lines


def name_gateway(tenant: str, gateway: str) -> None:
    """Give every record of this process the fields of its gateway."""
    for each in logging.getLogger().handlers:
        if isinstance(each, JournalHandler):
            each.common = {"tenant": tenant, "gateway": gateway}


def _stderr_is_the_journal() -> bool:
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class EscapingFormatter(logging.Formatter):
    """Escapes what does not print: text of a device or a peer must not control a terminal, nor forge a line of the log.

    For lines on stderr. The journal keeps messages apart by itself.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of `logging`
        """See `logging.Formatter`."""
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name of `logging`
        """See `logging.Formatter`. A traceback keeps its lines."""
        return "\n".join(map(escaped, super().formatException(ei).split("\n")))


class JournalHandler(logging.Handler):
    """Sends each record to the journal's socket at `path`. `identifier`: the name of the program.

    `otherwise` gets the records that the journal does not take at once, so that a journal that hangs holds up no event loop.
    `common`: fields of the records that lack them.
    """

    def __init__(self, identifier: str, otherwise: logging.Handler, path: str = JOURNAL) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # else `logging.basicConfig` sets one with level and name
        self.common: Mapping[str, str] = {}
        self._identifier = identifier
        self._otherwise = otherwise
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        try:
            self._socket.sendto(self._datagram(record), self._path)
        except OSError:
            self._otherwise.handle(record)
        except Exception:  # noqa: BLE001 - arguments that do not fit their message, as in every handler of `logging`
            self.handleError(record)

    def close(self) -> None:
        """See `logging.Handler`."""
        self._socket.close()
        super().close()

    def _datagram(self, record: logging.LogRecord) -> bytes:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG)
        fields: dict[str, object] = {
            "PRIORITY": priority,
            "SYSLOG_IDENTIFIER": self._identifier,
            "LOGGER": record.name,
            "THREAD_NAME": record.threadName,
            "CODE_FILE": record.pathname,
            "CODE_LINE": record.lineno,
            "CODE_FUNC": record.funcName,
        }
        for name in FIELDS:
            if (value := getattr(record, name, self.common.get(name))) is not None:
                fields[f"FOGLINE_{name.upper()}"] = value
        short = [_field(name, _cut(_utf8(str(value)), MAX_FIELD_BYTES)) for name, value in fields.items()]
        return b"".join([_field("MESSAGE", _cut(_utf8(self.format(record)), MAX_MESSAGE_BYTES)), *short])


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _cut(data: bytes, most: int) -> bytes:
    """Return the data, or its start and the number of bytes that it had."""
    if len(data) <= most:
        return data
    return data[:most].decode("utf-8", "ignore").encode() + f" [cut: {len(data)} bytes]".encode()


def _field(name: str, value: bytes) -> bytes:
    """Return one field. A value with line breaks has its length before it, so that no value can add a field."""
    if b"\n" in value:
        return name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
    return name.encode() + b"=" + value + b"\n"
