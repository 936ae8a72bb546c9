"""Property tests: the same few examples in `make test`, a new search each time in `make chaos`.

A change fails in `make test` for its own faults only. What the search finds becomes an explicit example of its test.
"""

import hypothesis
import pytest

FEW = 25
MANY = 100

hypothesis.settings.register_profile("few", deadline=None, derandomize=True, max_examples=FEW)
hypothesis.settings.register_profile("search", deadline=None, max_examples=MANY)


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("search" if config.getoption("chaos") else "few")


def at_most(examples: int) -> int:
    """Return how many examples a property test tries whose search takes `examples`."""
    return examples if hypothesis.settings.get_current_profile_name() == "search" else min(examples, FEW)
