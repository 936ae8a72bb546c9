"""Conditional requests (RFC 9110 section 13)."""

import pytest

from fogline_cloud.api.preconditions import is_unchanged, wanted_version
from fogline_cloud.api.problems import Problem


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "present", "wanted"),
    [
        (None, None, 3, None),
        ('"3"', None, 3, 3),
        ('"2"', None, 3, 2),  # the owner decides
        ("*", None, 3, 3),
        ('"1", "3"', None, 3, 3),
        ('W/"1","3"', None, 3, 3),
        (None, "*", None, 0),
        (None, "*", 3, 0),  # the owner decides
        (None, '"2"', 3, None),
        ('"3"', '"2"', 3, 3),
    ],
)
def test_a_condition_names_the_version_that_must_be_there(if_match, if_none_match, present, wanted):
    assert wanted_version(if_match, if_none_match, present) == wanted


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "present", "status"),
    [
        ("*", None, None, 412),
        ('W/"3"', None, 3, 412),
        ('"1", "2"', None, 3, 412),
        (None, '"3"', 3, 412),
        (None, 'W/"3"', 3, 412),
        ("3", None, 3, 400),
        ('"3" "4"', None, 3, 400),
        (None, "3", 3, 400),
    ],
)
def test_a_false_condition_is_412_and_one_that_is_none_is_400(if_match, if_none_match, present, status):
    with pytest.raises(Problem) as refused:
        wanted_version(if_match, if_none_match, present)
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("if_none_match", "unchanged"),
    [(None, False), ('"3"', True), ('W/"3"', True), ('"1", "3"', True), ("*", True), ('"2"', False)],
)
def test_a_client_with_the_present_version_gets_304(if_none_match, unchanged):
    assert is_unchanged(if_none_match, 3) == unchanged
