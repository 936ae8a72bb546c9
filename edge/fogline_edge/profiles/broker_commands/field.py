"""A value that a device shows on a topic of its own, as the echo of a command. Pure."""

from collections.abc import Callable
from typing import Any

from fogline.commands.command import Reply
from fogline_edge.profiles.broker_commands.echo import Evidence, Report
from fogline_edge.profiles.broker_commands.exchange import Verdict
from fogline_edge.profiles.broker_commands.values import content_type_of, shows
from fogline_edge.profiles.profile import BrokerMessage

_FAILED = 500


class FieldRules:
    """The `EchoRules` of a command whose echo has one value. `read`: the value of an echo's payload; None if there is none.

    `wanted`: the value that proves, or `ANY`. `acknowledges`: the device publishes on the topic only to confirm commands, so
    that a value need not be new. `last`: the last known payload. `error`: the topic of errors.
    """

    def __init__(
        self,
        echo: str | None,
        wanted: Any,
        read: Callable[[bytes], Any],
        *,
        acknowledges: bool = False,
        last: bytes = b"",
        error: str | None = None,
    ) -> None:
        self._echo = echo
        self._wanted = wanted
        self._read = read
        self._error = error
        self._last: Any = read(last) if last else None
        self._has_changed = acknowledges

    def before(self, message: BrokerMessage) -> None:
        """See `EchoRules.before`."""
        if message.topic == self._echo:
            self._last = self._read(message.payload)

    def error(self, message: BrokerMessage) -> Verdict | None:
        """See `EchoRules.error`."""
        if message.topic != self._error or not message.payload:
            return None
        return Reply(_FAILED, message.payload, content_type_of(message.payload))

    def report(self, message: BrokerMessage) -> Report | None:
        """See `EchoRules.report`."""
        if message.topic != self._echo:
            return None
        former, self._last = self._last, self._read(message.payload)
        if self._last is None:
            return None
        is_wanted = shows(self._wanted, self._last)
        self._has_changed |= is_wanted and former is not None and not shows(self._wanted, former)
        proof = Evidence.PROOF if self._has_changed else Evidence.AGREES
        return Report(proof if is_wanted else Evidence.DENIES, message.payload, content_type_of(message.payload))
