"""The message that tells an operator the id of its command before the command has a verdict. Pure.

A bridge makes the id (`fogline_cloud.commands.command_id`), so an operator cannot know it. A command with the property
`tell_id` gets a message on its reply address as soon as a bridge has read it: the correlation id of the command, property
`command_id`, and no `status`, which every reply has.
"""

from fogline.address import CommandResponse
from fogline.message import Message, unpack_id
from fogline_cloud.commands.record import CommandRecord

TELL_ID = "tell_id"
"""Property of a command whose operator wants to know the id."""
PROPOSED = "proposed"
"""Property of the notice: true if the command waits for the approval of a second operator."""


def id_notice(record: CommandRecord, *, proposed: bool) -> Message:
    """Return the message for the operator of a command. `proposed`: a second operator has to approve it."""
    return Message(
        to=str(CommandResponse(record.tenant, record.reply_to)),
        subject=record.name,
        correlation_id=unpack_id(record.correlation),
        properties={"command_id": record.id, "device_id": record.device, "tenant_id": record.tenant, PROPOSED: proposed},
    )


def is_notice_of_id(message: Message) -> bool:
    """Return True for a message of `id_notice`."""
    return "command_id" in message.properties and "status" not in message.properties
