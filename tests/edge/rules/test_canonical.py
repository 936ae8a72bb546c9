"""The canonical encoding: equal values of two spellings agree, different values never collide."""

import json
import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogline_edge.rules.canonical import MAX_DEPTH, NotCanonicalError, canonical

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from([0, 0.0, -0.0, 1, 1.0, True, "1", "", 2**53, float(2**53), 2**53 + 1, 1e300])
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=8
)


def same(one: object, other: object) -> bool:
    """Equality of JSON values: Python's, but `true` is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    match one, other:
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
        case ((int() | float()), (int() | float())):
            return one == other
        case _:
            return type(one) is type(other) and one == other


def respelled(value: object) -> object:
    """The same value in another spelling: whole numbers as the other type, members in another order."""
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [respelled(each) for each in value]
    if isinstance(value, dict):
        return {name: respelled(each) for name, each in reversed(value.items())}
    return value


@given(DOCUMENTS, st.sampled_from([None, 1]))
def test_json_and_cbor_of_one_value_agree(document, indent):
    by_json = msgspec.json.decode(json.dumps(document, indent=indent, ensure_ascii=indent is None))
    by_cbor = cbor2.loads(cbor2.dumps(document))
    assert canonical(by_json) == canonical(by_cbor) == canonical(document)


@given(DOCUMENTS)
def test_spelling_of_a_value_does_not_matter(document):
    assert canonical(respelled(document)) == canonical(document)


@given(DOCUMENTS, DOCUMENTS)
def test_encodings_are_equal_only_for_equal_values(one, other):
    assert (canonical(one) == canonical(other)) is same(one, other)


@given(st.lists(DOCUMENTS, max_size=3), st.lists(DOCUMENTS, max_size=3))
def test_joined_encodings_are_equal_only_for_equal_lists(one, other):
    """So a key of several fields cannot be that of other fields with the borders elsewhere."""
    assert (b"".join(map(canonical, one)) == b"".join(map(canonical, other))) is same(one, other)


DIFFERENT = [
    *(None, True, False, 0, 1, "1", "", "true", b"1", b"", [], {}, [1], {"1": 1}, {1: 1}, [[]], "a", b"a", 0.1, "0.1"),
    *(2**64, 2**64 + 1, 10**5000, 10**5000 + 1, -1, 255, -129, [1, 2], [2, 1], {"a": None}, "é", "e\u0301"),
    uuid.UUID(int=5),
    uuid.UUID(int=5).bytes,
    str(uuid.UUID(int=5)),
    datetime(2026, 11, 28, tzinfo=UTC),
    "2026-11-28T00:00:00Z",
]


def test_values_of_different_kinds_do_not_collide():
    assert len({canonical(each) for each in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("1.50"), 1.5),
        (Decimal("1E+3"), 1000),
        (Decimal("0.1"), 0.1),
        (Decimal("1E-5000"), 0),
        (Decimal(2**70), 2**70),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))),
        ((1, 2), [1, 2]),
    ],
)
def test_values_of_cbor_agree_with_those_of_json(one, other):
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1E+2147483647")),
        *(cbor2.undefined, cbor2.CBORTag(4000, 1), cbor2.CBORSimpleValue(99), {1, 2}, datetime(2026, 1, 1), "\ud800"),  # noqa: DTZ001
    ],
)
def test_value_without_an_encoding_is_refused_also_within_a_document(value):
    for each in (value, [1, value], {"a": value}):
        with pytest.raises(NotCanonicalError):
            canonical(each)


def test_depth_has_a_limit_of_its_own():
    deep: object = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    canonical(deep)
    with pytest.raises(NotCanonicalError):
        canonical([deep])
