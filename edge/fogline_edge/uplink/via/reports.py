"""The signed reports of one gateway to its bridge: outcomes of what the bridge has sent, statistics and beacons."""

import asyncio
from collections.abc import Callable

from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.amqp.sending import Sender
from fogline.gateway.message_signature import SignedKind
from fogline.gateway.settlement import MAX_OUTCOMES, NumberedOutcome, SignedOutcomes, encode_settlement, numbered
from fogline.gateway.signed_session import SignedOutput
from fogline.message import Message


class SignedReports:
    """Sends reports, once there is a link. `end` is called with the reason if the bridge takes none. Used on the loop."""

    def __init__(self, output: SignedOutput, end: Callable[[str], None]) -> None:
        self.link: Sender | None = None
        """The link to the bridge that owns the gateway's shard."""
        self._output, self._end = output, end
        self._outcomes: list[NumberedOutcome] = []
        self._is_due = False

    @property
    def closed(self) -> bool:
        """True if there is no link."""
        return self.link is None or self.link.closed

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        """Send a report, such as statistics. The outcome is the router's or the broker's."""
        assert self.link is not None, "a report needs its link"
        sent = self.link.send(self._output.sign(SignedKind.REPORT, message)[1])
        sent.add_done_callback(self._passed_on)
        return sent

    def settle(self, number: int, outcome: Outcome) -> None:
        """Send the outcome of a message of the bridge, together with others that come at the same moment."""
        self._outcomes.append(numbered(number, outcome))
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.send_outcomes)

    def send_outcomes(self, closed: str = "") -> None:
        """Send the outcomes that are due, be there some or not. `closed`: why this is the last report, "" if it is not."""
        self._is_due = False
        while not self.closed:
            outcomes, self._outcomes = self._outcomes[:MAX_OUTCOMES], self._outcomes[MAX_OUTCOMES:]
            self.send(encode_settlement(SignedOutcomes(outcomes=outcomes, closed=closed)))
            if not self._outcomes:
                return

    def _passed_on(self, passed: "asyncio.Future[Outcome]") -> None:
        """End the connection if a report is refused: the bridge that has the shard now knows of no hello."""
        if not passed.cancelled() and passed.exception() is None and passed.result().state is DeliveryState.REJECTED:
            self._end(f"a report is refused: {passed.result().description}")
