"""How each connection between gateway and bridge ends when reconnects are counted: drawn when it comes, by a seed."""

import random

from fogline.testing.faulty_line import HALF_OPEN, Fate, Fault

HALF_OPEN_SHARE = 0.01
"""So many become half-open: each takes the half minute until somebody notices."""
EARLY_SHARE = 0.15
"""So many do not come through hello."""
EARLY_BYTES = (1, 2500)
BYTES = (2500, 200_000)
"""What passes before the end, both ways together: less than a batch, or many."""
LIFE_S = (0.2, 1.5)
"""How long a connection lives on which less passes."""


class Fates:
    """Called for each new connection; once `calm` is set, none has a bad end any more."""

    def __init__(self, seed: int) -> None:
        self.calm = False
        self._chance = random.Random(seed)

    def __call__(self) -> Fate | None:
        """The fate of the next connection."""
        if self.calm:
            return None
        half_open = self._chance.random() < HALF_OPEN_SHARE
        between = EARLY_BYTES if self._chance.random() < EARLY_SHARE else BYTES
        fault = self._chance.choice(HALF_OPEN if half_open else (Fault.RESET, Fault.CLOSE))
        return Fate(fault, self._chance.randint(*between), self._chance.uniform(*LIFE_S))
