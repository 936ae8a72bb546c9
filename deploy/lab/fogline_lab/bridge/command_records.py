"""Records of commands and replies to them, for tests of the bridge."""

from fogline.commands.command import CommandState, Reply
from fogline.events.event import Event
from fogline_cloud.commands.record import CommandRecord, ended
from fogline_lab.events import make_event


def make_record(command_id: str = "C1", **other: object) -> CommandRecord:
    """Make the record of an accepted command for `lamp-1`; any attribute may be given."""
    attributes: dict[str, object] = {
        "id": command_id,
        "tenant": "acme",
        "gateway": "gw-1",
        "device": "lamp-1",
        "name": "switch",
        "state": CommandState.ACCEPTED,
        "operator": "client acme/me (asserted)",
        "accepted_ms": 1,
        "expires_ms": 1000,
        "changed_ms": 1,
        "digest": "00",
        "reply_to": "me",
        "correlation": "string:1",
    }
    return CommandRecord(**{**attributes, **other})  # type: ignore[arg-type]


def make_ended_record(state: CommandState, *, provisional: bool = False, status: int = 200) -> CommandRecord:
    """Make the record of a command with a verdict, 500 ms after 1970."""
    return ended(make_record(), state, Reply(status, b"ok", "text/plain"), 500, provisional=provisional)


def make_reply_event(**other: object) -> Event:
    """Make a gateway's reply to command `C1`; any attribute may be given."""
    attributes: dict[str, object] = {
        "commandid": "C1",
        "commandstate": "SUCCEEDED",
        "status": 200,
        "correlationid": "string:1",
        "subject": "command/switch",
        "data": b"done",
        "content_type": "text/plain",
    }
    return make_event(**{**attributes, **other})  # type: ignore[arg-type]
