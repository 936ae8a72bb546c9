"""Who may approve a command that needs two operators (`[[approval]]` of access.toml). Pure."""

from fogline.amqp.outcome import NOT_ALLOWED, UNAUTHORIZED, Outcome, rejected
from fogline.commands.command import CONFLICT, CommandState
from fogline_cloud.access.principal import ASSERTED, Principal
from fogline_cloud.commands.record import CommandRecord

_UNPROVEN = f"({ASSERTED})"


def proposal_refusal(record: CommandRecord) -> Outcome | None:
    """Return the outcome for a new command that needs an approval and cannot wait for one; `None` if it can."""
    needs = f"command {record.name} needs the approval of a second operator"
    if not record.durable:
        return rejected(NOT_ALLOWED, f"{needs}: send it durable, with a time to live")
    if record.operator.endswith(_UNPROVEN):
        return rejected(UNAUTHORIZED, f"{needs}, and here nothing proves who an operator is")
    return None


def approval_refusal(record: CommandRecord, by: Principal) -> Outcome | None:
    """Return the outcome if `by`, who may send the command, cannot approve it; `None` if that is possible.

    The same name is the same person, whether a password or a certificate has proven it.
    """
    if record.state is not CommandState.PROPOSED:
        return rejected(CONFLICT, f"command {record.id} does not wait for an approval: it is {record.state}")
    if by.proof == ASSERTED:
        return rejected(UNAUTHORIZED, "nothing proves who you are: log in with a certificate or a password")
    if record.operator.rpartition(" (")[0] == by.who:
        return rejected(UNAUTHORIZED, f"another operator must approve command {record.id}: {by.who} has sent it")
    return None
