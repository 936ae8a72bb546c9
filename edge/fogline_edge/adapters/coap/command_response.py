"""Commands as CoAP responses: their options, and the limits of what a device takes. Pure."""

from fogline.address import device_name
from fogline.commands.command import Command
from fogline_edge.adapters.coap.paths import RESPONSES
from fogline_edge.adapters.coap.requests import Request
from fogline_edge.adapters.coap.wire import MAX_PIECE_BYTES, Option, Options, number_of, uint


def command_options(command: Command, tenant: str) -> Options:
    """Return the options: Location-Query `hono-command={name}`, and the path of the reply if one is wanted."""
    path = (RESPONSES, tenant, device_name(command.device), command.id) if command.reply else ()
    content_format = number_of(command.content_type)
    return (
        *((int(Option.LOCATION_PATH), each.encode()) for each in path),
        *(((int(Option.CONTENT_FORMAT), uint(content_format)),) if content_format is not None else ()),
        (Option.LOCATION_QUERY, f"hono-command={command.name}".encode()),
    )


def why_unfit(command: Command, request: Request) -> str | None:
    """Return why a command cannot be a response to this request; `None` if it can."""
    most = min(MAX_PIECE_BYTES, request.block2.size if request.block2 else MAX_PIECE_BYTES)
    if len(command.data) > most:
        return f"a command in a CoAP response has at most {most} bytes"
    if request.accept is not None and number_of(command.content_type) != request.accept:
        return f"the device accepts content format {request.accept} only"
    return None
