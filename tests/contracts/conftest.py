"""One Java for a module: it takes seconds to compile the clients."""

import pytest

from contracts.foreign.java import java


@pytest.fixture(scope="module")
def jvm():
    with java() as classes:
        yield classes
