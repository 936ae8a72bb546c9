"""What an operator hears of a command, and of a request to cancel one, in the bridge's messages. Pure."""

from dataclasses import dataclass

from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.commands.cancel import TOO_LATE
from fogline.commands.command import CommandState, Status
from fogline.message import Message
from fogline_cloud.commands.client.refusals import status_of


@dataclass(frozen=True, slots=True)
class CommandVerdict:
    """The end of a command. `state` is terminal, or ACCEPTED for a one-way command that the bridge has taken.

    `status` is the device's own, or one of ours (`fogline.commands.command.Status`). `data` and `content_type` are the device's
    reply. `why` gives the reason in words if the command failed without the device. `provisional`: the gateway has
    not reported a verdict in time, so the device may have run the command.
    """

    state: CommandState
    status: int
    command_id: str = ""
    data: bytes = b""
    content_type: str | None = None
    provisional: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class CancelVerdict:
    """The answer to a request to cancel. `state`: the end of the command, `None` if the request was refused.

    CANCELLED means that the device has not seen the command and never will. With any other state it was too late. `status` is
    200, 404 (no such command), 403 (no grant), 409 (too late) or 429 (over the quota); `why` gives the reason in words.
    """

    state: CommandState | None
    status: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalVerdict:
    """The answer to an approval.

    `status`: 200, 403 (no grant, or the same operator), 404 (no such command), 409 (it does not wait for one) or 429 (over the
    quota); `why` gives the reason in words.
    """

    status: int
    why: str = ""


def approval_verdict(outcome: Outcome) -> ApprovalVerdict:
    """Return what an outcome of an approval says, ACCEPTED or REJECTED."""
    if outcome.state is DeliveryState.ACCEPTED:
        return ApprovalVerdict(200)
    return ApprovalVerdict(status_of(outcome), outcome.description or outcome.condition)


def cancel_verdict(outcome: Outcome) -> CancelVerdict:
    """Return what an outcome of a request to cancel says, ACCEPTED or REJECTED."""
    if outcome.state is DeliveryState.ACCEPTED:
        return CancelVerdict(CommandState.CANCELLED, 200)
    if outcome.condition == TOO_LATE:
        state = next((each for each in CommandState if each == outcome.description.partition(":")[0]), None)
        return CancelVerdict(state, int(Status.CONFLICT), outcome.description)
    return CancelVerdict(None, status_of(outcome), outcome.description or outcome.condition)


def verdict_of(message: Message) -> CommandVerdict:
    """Read the verdict in a reply message. Raises `ValueError` if the message is not a reply to a command."""
    properties = message.properties
    state, _, provisional = str(properties.get("state", "")).partition(" ")
    status = properties.get("status")
    if not isinstance(status, int):
        raise ValueError("a reply has no status")  # noqa: TRY004 - the message is wrong, not the program
    is_reason = not 200 <= status < 300 and message.content_type == "text/plain"
    return CommandVerdict(
        state=CommandState(state),
        status=status,
        command_id=str(properties.get("command_id", "")),
        data=message.body,
        content_type=message.content_type,
        provisional=bool(provisional),
        why=message.body.decode("utf-8", "replace") if is_reason else "",
    )
