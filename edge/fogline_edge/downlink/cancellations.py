"""Takes requests to cancel commands. The journal decides (docs/decisions/0032)."""

from collections.abc import Callable
from functools import partial

from fogline.amqp.outcome import ACCEPTED, NOT_ALLOWED, Outcome, rejected
from fogline.commands.cancel import CancelRequest
from fogline.commands.command import CONFLICT, CommandState, digest
from fogline.commands.signature import TrustedKeys
from fogline_edge.downlink import journal
from fogline_edge.downlink.runner import CommandRunner
from fogline_edge.outbox.outbox import Outbox


class Cancellations:
    """The requests to cancel the commands of `runner`. Used on the loop."""

    def __init__(self, outbox: Outbox, runner: CommandRunner, keys: TrustedKeys) -> None:
        self._outbox = outbox
        self._runner = runner
        self._keys = keys

    def received(self, request: CancelRequest, settle: Callable[[Outcome], None]) -> None:
        """Have the journal decide. A command that is under way goes on, but no further attempt begins."""
        if (why := self._keys.doubt_cancel(request)) is not None:
            settle(rejected(NOT_ALLOWED, why))
            return
        task = self._runner.commands.get(request.id)
        if task is not None and digest(task.command) == request.digest:
            task.cancelled = request.why  # before the journal decides, so that no attempt begins meanwhile
        decided = partial(self._on_decided, request, settle)
        self._outbox.port.act(partial(journal.cancel, request=request), decided, urgent=True)

    def _on_decided(self, request: CancelRequest, settle: Callable[[Outcome], None], state: CommandState | None) -> None:
        if state is None:
            settle(rejected(CONFLICT, f"command {request.id} is known here with another body"))
            return
        task = self._runner.commands.get(request.id)
        if task is not None and state is CommandState.CANCELLED:
            self._runner.end(task, state)
        elif task is not None and self._runner.queues.waits(task):
            self._runner.perform(task, task.end_cancelled())
        settle(ACCEPTED)
