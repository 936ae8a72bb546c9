"""The chain of audit records shows what was deleted, changed, added or moved."""

from hypothesis import given
from hypothesis import strategies as st

from fogline_cloud.audit.chain import AuditLink, ChainCheck, append, follow
from fogline_cloud.audit.record import AuditRecord


def made(count: int) -> tuple[list[bytes], AuditLink]:
    bodies, end = [], AuditLink()
    for number in range(count):
        body, end = append(end, AuditRecord(time_ms=number, who="alice", decision="CONNECTED"))
        bodies.append(body)
    return bodies, end


def checked(bodies, *noted) -> ChainCheck:
    check = ChainCheck("audit[0]", noted)
    for offset, body in enumerate(bodies):
        check.add(offset, body)
    check.finish()
    return check


def test_a_whole_chain_has_no_problems_and_the_reader_arrives_at_its_end():
    bodies, end = made(10)
    check = checked(bodies, end)
    assert (check.problems, check.first, check.end) == ([], 1, end)
    read = AuditLink()
    for body in bodies:
        read = follow(read, body)
    assert read == end


def test_records_that_became_too_old_for_kafka_are_no_problem():
    bodies, end = made(10)
    assert checked(bodies[4:], AuditLink(2, "of a record that is gone"), end).problems == []


@given(st.data())
def test_every_change_of_a_record_is_detected(data):
    bodies, end = made(8)
    at = data.draw(st.integers(0, 7), "at")
    how = data.draw(st.sampled_from(["delete", "change", "repeat", "swap", "add"]), "how")
    if how == "delete":
        del bodies[at]
    elif how == "change":
        bodies[at] = bodies[at].replace(b"alice", b"mallory")
    elif how == "repeat":
        bodies.insert(at, bodies[at])
    elif how == "swap":
        other = data.draw(st.integers(0, 7).filter(lambda each: each != at), "other")
        bodies[at], bodies[other] = bodies[other], bodies[at]
    else:
        bodies.insert(at, b"{}")
    is_only_older = how == "delete" and at == 0
    assert bool(checked(bodies, end).problems) != is_only_older


def test_a_chain_that_was_made_anew_shows_by_a_link_that_was_noted():
    bodies, _ = made(5)
    _, noted = append(AuditLink(4, "another"), AuditRecord(time_ms=1, who="eve", decision="CONNECTED"))
    assert checked(bodies, noted).problems == ["audit[0] at offset 4: record 5 is not the one that was noted"]


def test_an_end_that_was_cut_off_shows():
    bodies, end = made(5)
    assert checked(bodies[:3], end).problems == ["audit[0]: record 5 was written, but the records end at 3"]
