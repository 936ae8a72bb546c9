"""A command whose answer names it, so that the verdict is exact. Pure."""

from collections.abc import Callable

from fogline.commands.command import Reply
from fogline_edge.profiles.broker_commands.exchange import InDoubt, Publication, Verdict
from fogline_edge.profiles.profile import BrokerMessage


class AnswerExchange:
    """A `CommandExchange` that is decided by the answer to this command. `answer`: the answer that a message is, or None."""

    def __init__(self, publication: Publication, answer: Callable[[BrokerMessage], Reply | None]) -> None:
        self.publication = publication
        self._answer = answer

    def received(self, message: BrokerMessage) -> Verdict | None:
        """See `CommandExchange.received`."""
        return None if message.retained else self._answer(message)

    def time_is_up(self) -> Verdict:
        """See `CommandExchange.time_is_up`."""
        return InDoubt("no answer names the command")
