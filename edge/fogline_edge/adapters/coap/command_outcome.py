"""What the outcome of a Confirmable response means for the command in it."""

from fogline_edge.adapters.coap.message_layer import Confirmation
from fogline_edge.adapters.port import CommandPort


def report(commands: CommandPort, command_id: str, outcome: Confirmation) -> None:
    """Report what became of a command. A device that reset the only copy no longer waits for it, and has not read it.

    For example, it ended its request before a gateway that was just restarted got the last retransmission of it.
    """
    match outcome:
        case Confirmation.ACKNOWLEDGED:
            commands.taken(command_id)
        case Confirmation.RESET:
            commands.not_sent(command_id)
        case Confirmation.UNKNOWN:
            commands.lost(command_id)
