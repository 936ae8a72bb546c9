"""One command at the broker, and its verdict. Pure.

A broker says that it has a command, not what its device did. So a profile decides by the messages that follow: an answer
that names the command, a state that the device shows, or an error of the program that speaks to the device.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from fogline.commands.command import Command, Reply
from fogline_edge.profiles.broker_commands.directory import Directory
from fogline_edge.profiles.profile import BrokerMessage, Filter

PROVEN = 200
"""Status of a reply that the device's new state proves."""
ASSUMED = 202
"""Status of a reply whose state the device showed before the command too: nothing denies it, and nothing proves it."""


class Publication(msgspec.Struct, frozen=True):
    """A message to publish, at QoS 1 and not retained."""

    topic: str
    payload: bytes


class InDoubt(msgspec.Struct, frozen=True):
    """The device may have run the command. `why`: the reason, for the log."""

    why: str


Verdict = Reply | InDoubt


class NamedAnswer(msgspec.Struct, frozen=True):
    """An answer that names its device and its command, so that it decides one of a former run of the gateway too."""

    device: str
    command_id: str
    reply: Reply


class CommandExchange(Protocol):
    """One command from its publication to its verdict."""

    @property
    def publication(self) -> Publication:
        """The message that carries the command."""

    def received(self, message: BrokerMessage) -> Verdict | None:
        """Take a message that arrived after the publication. Returns the verdict if it decides the command.

        Messages may also follow `time_is_up`, and an `InDoubt`: a late reply replaces a doubt.
        """

    def time_is_up(self) -> Verdict:
        """Return the verdict of a command that no message has decided in its time."""


class BrokerCommandProfile(Protocol):
    """The commands that one program's devices take."""

    @property
    def directory(self) -> Directory:
        """The devices, as far as they are known."""

    @property
    def filters(self) -> Iterable[Filter]:
        """Filters that commands need beside those of the events."""

    def note(self, message: BrokerMessage) -> None:
        """Take a message of the program, before the open exchanges get it: it may change `directory`."""

    def answer(self, message: BrokerMessage) -> NamedAnswer | None:
        """Return the answer that a message is, if it names its command and is for this gateway."""

    def begin(self, command: Command) -> CommandExchange:
        """Return the exchange of a command to a reachable device.

        Raises `Poison` if the program or its device cannot take it. The text is for the operator.
        """
