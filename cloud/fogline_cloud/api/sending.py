"""Sends a message of an HTTP request to the bridge, again while that is safe, and turns a refusal into a problem."""

import asyncio

from fogline.address import CommandAddress, CommandResponse
from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.amqp.wire import encode
from fogline.connection_clock import monotonic_ms
from fogline.errors import Unreachable
from fogline.events.codec import MAX_MESSAGE_BYTES
from fogline.message import Message
from fogline_cloud.api.problems import Problem, not_at_present
from fogline_cloud.api.user_session import REPLY_ID, UserSession
from fogline_cloud.commands.client.refusals import NOT_CONNECTED, status_of
from fogline_cloud.commands.client.verdict import CancelVerdict, cancel_verdict

SEND_S = 10.0
"""The time that the bridge has to take a message, all attempts included."""
RETRY_S = 0.25
CANCEL_S = 10.0
"""The time that a bridge waits for the gateway to decide about a request to cancel."""
_QUOTA_RETRY_S = 60.0


async def send(session: UserSession, message: Message, *, again: bool, waits: bool) -> None:
    """Send until the bridge has accepted it. Raises `Problem` if it has not. Its time to live begins with this call.

    `again`: the message may be sent again if the bridge may have it, because it has an id. `waits`: a released one too; else
    it is a direct command, and its device is not connected.
    """
    data = encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise Problem(413, f"a message may have {MAX_MESSAGE_BYTES} bytes; this one has {len(data)}")
    why = "no bridge takes it at present"
    ends_ms = None if message.ttl_ms is None else monotonic_ms() + message.ttl_ms
    try:
        async with asyncio.timeout(SEND_S):
            while True:
                outcome = await _outcome(session, message, ends_ms)
                if outcome is not None and outcome.state is DeliveryState.ACCEPTED:
                    return
                if outcome is not None and outcome.state is DeliveryState.REJECTED:
                    raise _refusal(outcome)
                if outcome is not None and outcome.state is DeliveryState.RELEASED and not waits:
                    raise not_at_present(NOT_CONNECTED)
                if session.is_closed or not (again or (outcome is not None and outcome.state is DeliveryState.RELEASED)):
                    why = session.why or "a bridge may have taken it, and the answer is lost"
                    break
                await asyncio.sleep(RETRY_S)
                if ends_ms is not None and monotonic_ms() >= ends_ms:
                    why = "its time to live is over, and no bridge has confirmed it"
                    break
    except TimeoutError:
        pass
    raise not_at_present(f"{why}; send it again with the same Idempotency-Key" if again else why)


async def cancel(session: UserSession, tenant: str, command_id: str) -> bool:
    """Cancel a command. Returns True if it is cancelled, False if its gateway has not decided yet. Raises `Problem`."""
    outcome = await _decided(session, tenant, {"cancel": command_id}, "no bridge can cancel it at present")
    return outcome.state is DeliveryState.ACCEPTED


async def cancel_message(session: UserSession, tenant: str, message_id: str) -> CancelVerdict:
    """Cancel the command that the user has sent in the message with this id. Raises `Problem` (503): ask again."""
    message = Message(
        to=str(CommandAddress(tenant, "")),
        correlation_id=message_id,
        reply_to=str(CommandResponse(tenant, REPLY_ID)),
        properties={"cancel": True},
    )
    outcome = await _answer(session, message)
    if outcome is None or outcome.state not in (DeliveryState.ACCEPTED, DeliveryState.REJECTED):
        raise not_at_present("no bridge can cancel it at present")
    return cancel_verdict(outcome)


async def approve(session: UserSession, tenant: str, command_id: str) -> None:
    """Approve a command of another operator. Raises `Problem`."""
    why = "no bridge can approve it at present"
    if (await _decided(session, tenant, {"approve": command_id}, why)).state is not DeliveryState.ACCEPTED:
        raise not_at_present(why)


async def _decided(session: UserSession, tenant: str, request: dict[str, str], why: str) -> Outcome:
    """Return the outcome of a request about a command. Raises `Problem`, also if it is refused; `why`: nobody takes it."""
    outcome = await _answer(session, Message(to=str(CommandAddress(tenant, "")), properties=request))
    if outcome is None or outcome.state is DeliveryState.RELEASED:
        raise not_at_present(why)
    if outcome.state is DeliveryState.REJECTED:
        raise _refusal(outcome)
    return outcome


async def _answer(session: UserSession, message: Message) -> Outcome | None:
    """Return the outcome of a request about a command, or what there is of it in time."""
    outcome = None
    try:
        async with asyncio.timeout(SEND_S + CANCEL_S):
            while (outcome := await _outcome(session, message)) is None or outcome.state is DeliveryState.RELEASED:
                if session.is_closed:
                    break
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        return None
    return outcome


async def _outcome(session: UserSession, message: Message, ends_ms: int | None = None) -> Outcome | None:
    try:
        return await session.send(message, ends_ms)
    except Unreachable:
        return None


def _refusal(outcome: Outcome) -> Problem:
    status = status_of(outcome)
    return Problem(status, outcome.description or outcome.condition, retry_after_s=_QUOTA_RETRY_S if status == 429 else None)
