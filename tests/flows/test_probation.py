"""Parsers that have ended a process."""

from fogline_cloud.flows.driver.probation import FIRST_TERM, MOST_OFFENCES, Probation


def clean_batches(probation: Probation, name: str) -> int:
    """Count the micro-batches without harm until the parser is free."""
    count = 0
    while name in probation.parsers:
        probation.landed(())
        count += 1
    return count


def test_a_parser_is_free_again_after_micro_batches_without_harm():
    probation = Probation()
    probation.landed({"a", "b"})
    assert probation.parsers == {"a", "b"}
    probation.landed({"b"})
    assert probation.parsers == {"b"}
    assert clean_batches(probation, "b") == 2 * FIRST_TERM


def test_each_offence_doubles_the_term_up_to_a_bound():
    probation = Probation()
    terms = []
    for _ in range(MOST_OFFENCES + 2):
        probation.landed({"a"})
        terms.append(clean_batches(probation, "a"))
    assert terms[:3] == [FIRST_TERM, 2 * FIRST_TERM, 4 * FIRST_TERM]
    assert terms[-3] == terms[-1] == FIRST_TERM * 2 ** (MOST_OFFENCES - 1)
