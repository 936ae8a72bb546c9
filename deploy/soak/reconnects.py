"""Planned ends of the connections between gateways and bridges, for counted reconnects: drawn from a seed."""

import random

from fogline_lab.tcp_line import HALF_OPEN, LineFault, PlannedFault

HALF_OPEN_SHARE = 0.01
"""Share of connections that become half-open: each takes the half minute until one side notices."""
EARLY_SHARE = 0.15
"""Share of connections that end during hello."""
EARLY_BYTES = (1, 2500)
BYTES = (2500, 200_000)
"""Bytes before the end, both directions together: from less than a batch to many batches."""
LIFE_S = (0.2, 1.5)
"""Life of a connection that passes fewer bytes."""


class FaultPlans:
    """Called for each new connection. Once `stopped` is set, it plans no more faults."""

    def __init__(self, seed: int) -> None:
        self.stopped = False
        self._chance = random.Random(seed)

    def __call__(self) -> PlannedFault | None:
        """Return the fault of the next connection."""
        if self.stopped:
            return None
        half_open = self._chance.random() < HALF_OPEN_SHARE
        between = EARLY_BYTES if self._chance.random() < EARLY_SHARE else BYTES
        fault = self._chance.choice(HALF_OPEN if half_open else (LineFault.RESET, LineFault.CLOSE))
        return PlannedFault(fault, self._chance.randint(*between), self._chance.uniform(*LIFE_S))
