"""A command whose device shows its new state, as a program publishes it. Pure.

Reports that were published before the command prove nothing. They may still arrive after it: a broker delivers what it has
queued while the gateway was away. So a report counts only after the broker has delivered the command itself back to the
gateway, which is subscribed to its topic: a broker delivers in order.

A report is proof only if it shows something that the device did not show before. If the device was in the wanted state
already, or nothing is known of it, then any report of another attribute looks like an echo. Such a report decides only when
the time for the answer has passed, in which the program would have reported an error; the reply has status `ASSUMED`.
"""

from enum import Enum, auto
from typing import Protocol

import msgspec

from fogline.commands.command import Reply
from fogline_edge.profiles.broker_commands.exchange import ASSUMED, PROVEN, InDoubt, Publication, Verdict
from fogline_edge.profiles.profile import BrokerMessage


class Evidence(Enum):
    """What a report says about a command."""

    PROOF = auto()  # it shows the wanted state, and the device showed another one before
    AGREES = auto()  # it shows the wanted state, as perhaps before the command
    DENIES = auto()  # it shows another state


class Report(msgspec.Struct, frozen=True):
    """A report about what a command has set. `body`: the state."""

    evidence: Evidence
    body: bytes
    content_type: str


class EchoRules(Protocol):
    """Reads the messages of a program for one command. It is asked in the order of the messages."""

    def before(self, message: BrokerMessage) -> None:
        """Take a message that is older than the command."""

    def error(self, message: BrokerMessage) -> Verdict | None:
        """Return the verdict of a message that says that the command has failed."""

    def report(self, message: BrokerMessage) -> Report | None:
        """Return what a message says about the attributes that the command has set; None if it is about something else."""


class EchoExchange:
    """A `CommandExchange` that is decided by the reports of the device, and by errors of the program."""

    def __init__(self, publication: Publication, rules: EchoRules) -> None:
        self.publication = publication
        self._rules = rules
        self._is_delivered = False
        self._is_late = False
        self._agreed: Reply | None = None

    def received(self, message: BrokerMessage) -> Verdict | None:
        """See `CommandExchange.received`."""
        if message.retained:
            return None
        if not self._is_delivered:
            own = self.publication
            self._is_delivered = (message.topic, message.payload) == (own.topic, own.payload)
            self._rules.before(message)
            return None
        return self._rules.error(message) or self._of_report(self._rules.report(message))

    def time_is_up(self) -> Verdict:
        """See `CommandExchange.time_is_up`."""
        self._is_late = True
        if self._agreed is not None:
            return self._agreed
        if not self._is_delivered:
            return InDoubt("the broker has not delivered the command back to the gateway: may it read that topic?")
        return InDoubt("no report of the device shows what the command has set")

    def _of_report(self, report: Report | None) -> Verdict | None:
        if report is None:
            return None
        proven = report.evidence is Evidence.PROOF
        reply = Reply(PROVEN if proven else ASSUMED, report.body, report.content_type)
        self._agreed = None if report.evidence is Evidence.DENIES else reply
        return self._agreed if proven or self._is_late else None
