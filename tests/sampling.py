"""Cases of a test of which `make test` tries a few, and `make chaos` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def a_few(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Return the cases as parameters; all but the `kept` ones are slow. A case of several values is a tuple."""
    every = list(cases)
    assert all(each in every for each in kept), "a case that is kept is not there any more"
    return [each if each in kept else _slow(each) for each in every]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
