"""Changes of the radio's state that go to the log. Pure."""

GRACE_S = 5.0
"""A daemon that is restarted is away for a moment, and then without an adapter: that is not worth a warning."""


class Announcements:
    """Compares what is wrong, and what is done about it, with what was logged last.

    `problem` is what is wrong at first, which is not logged. `deadline_s`: when to call `changed` again, although nothing has
    changed by then.
    """

    def __init__(self, problem: str | None, action: str) -> None:
        self.deadline_s: float | None = None
        self._said = (problem, action)
        self._held: str | None = None

    def changed(self, problem: str | None, action: str, now_s: float, *, restarting: bool) -> bool:
        """Return True if this is to be logged now. `restarting`: it may be over in a moment."""
        if problem is not None and self._said[0] is None and (restarting or problem == self._held):
            self._held = problem
            self.deadline_s = now_s + GRACE_S if self.deadline_s is None else self.deadline_s
            if now_s < self.deadline_s:
                return False
        held, self._held, self.deadline_s = self._held, None, None
        said, self._said = self._said, (problem, action)
        return said[0] is not None or held is not None if problem is None else said != self._said
