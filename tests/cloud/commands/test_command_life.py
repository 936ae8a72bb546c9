"""What a bridge does about a command, event by event: the rules of docs/commands.md, without a bridge."""

import msgspec
import pytest

from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, rejected
from fogline.commands.command import CONFLICT, EXPIRED, CommandState
from fogline_cloud.commands.command_life import (
    MEMORY_MS,
    AskJournal,
    AskToCancel,
    CommandLife,
    JournalLookup,
    KeepRecord,
    LookAgain,
    Now,
    SendCommand,
    SettleCopies,
    Undecided,
    WriteRecord,
    life_of,
)
from fogline_lab.bridge.command_records import make_record

HERE = Now(1_000_000, "journal-1")
AWAY = Now(1_000_000, None)


def opened(**attributes) -> CommandLife:
    """A command that this bridge follows. It names the journal to which it may have been sent."""
    life = life_of(make_record(accepted_ms=HERE.ms, **{"journal": "journal-1", "durable": True, **attributes}))
    life.opened = True
    return life


def written(effects) -> list[tuple[CommandState, bool]]:
    return [(each.record.state, each.record.provisional) for each in effects if isinstance(each, WriteRecord)]


def test_a_command_is_sent_once_its_record_names_the_journal_of_its_gateway():
    life = opened(journal="")
    (note,) = life.connected(HERE)
    assert (note.record.journal, life.maybe_sent) == ("journal-1", False)
    assert life.committed(HERE, note, note.record) == [KeepRecord(note.record), SendCommand(note.record)]
    assert life.maybe_sent


def test_a_command_that_may_have_been_sent_is_not_sent_to_another_journal():
    life = opened()
    life.connected(HERE)
    assert life.connected(Now(HERE.ms, "journal-2")) == [AskJournal(life.record)]
    assert life.connected(AWAY) == []


@pytest.mark.parametrize(
    ("journal", "age_ms", "end"),
    [
        ("journal-1", 0, CommandState.REJECTED),
        ("journal-1", MEMORY_MS, CommandState.IN_DOUBT),
        ("journal-2", 0, CommandState.IN_DOUBT),
    ],
)
def test_only_the_journal_that_would_know_a_command_can_say_that_its_device_never_got_it(journal, age_ms, end):
    life = opened(durable=False)
    (effect,) = life.answered(Now(HERE.ms + age_ms, journal), AskJournal(life.record), JournalLookup.ABSENT, journal)
    assert written([effect]) == [(end, False)]
    assert effect.outcome == (RELEASED if end is CommandState.REJECTED else None)


@pytest.mark.parametrize(
    ("sent", "state"), [(False, CommandState.CANCELLED), (True, CommandState.CANCELLING)], ids=["not sent", "sent"]
)
def test_the_bridge_cancels_what_it_has_not_sent_and_leaves_the_rest_to_the_gateway(sent, state):
    life = opened()
    life.maybe_sent = sent
    (asked,) = life.cancel_asked(HERE, "op-1")
    assert written([asked]) == [(state, False)]
    assert life.connected(HERE) == [], "nothing is sent while the cancellation is being written"
    assert life.cancel_asked(HERE, "op-2") == [], "it is asked for already"


def test_a_committed_cancellation_is_asked_of_the_gateway_and_its_outcomes_count_no_more():
    life = opened()
    life.connected(HERE)
    (asked,) = life.cancel_asked(HERE, "op-1")
    assert life.committed(HERE, asked, asked.record) == [KeepRecord(asked.record), AskToCancel(asked.record)]
    assert life.outcome(HERE, life.record, RELEASED) == []
    assert life.answered(HERE, AskJournal(asked.record), JournalLookup.ABSENT, "journal-1") == []
    other = life.answered(HERE, AskJournal(asked.record, to_cancel=True), JournalLookup.DIFFERENT, "journal-1")
    assert written(other) == [(CommandState.REJECTED, False)]


def test_a_cancellation_that_may_not_be_committed_leaves_the_command_undecided():
    life = opened()
    (asked,) = life.cancel_asked(HERE, "op-1")
    assert life.not_committed(HERE, asked) == [Undecided()]
    assert not life.cancelling


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (RELEASED, CommandState.REJECTED),
        (rejected(EXPIRED, "late"), CommandState.EXPIRED),
        (rejected(CONFLICT, "another"), CommandState.REJECTED),
    ],
)
def test_a_gateway_that_does_not_take_a_direct_command_ends_it_and_the_outcome_is_the_reply(outcome, end):
    life = opened(durable=False)
    life.connected(HERE)
    (effect,) = life.outcome(HERE, life.record, outcome)
    assert (written([effect]), effect.outcome) == ([(end, False)], outcome)
    assert effect.record.reply_delivered
    assert life.connected(HERE) == [AskJournal(life.record)], "a direct command is not sent a second time"
    assert life.not_committed(HERE, effect) == [SettleCopies(MODIFIED)]
    assert not life.ending


def test_an_accepted_command_settles_its_copies_after_the_commit():
    life = opened(durable=False)
    life.connected(HERE)
    (effect,) = life.outcome(HERE, life.record, ACCEPTED)
    assert written([effect]) == [(CommandState.DISPATCHED, False)]
    assert life.committed(HERE, effect, effect.record) == [SettleCopies(ACCEPTED), KeepRecord(effect.record)]


def test_an_overdue_command_expires_if_it_was_not_sent_and_is_in_doubt_after_the_grace_time_else():
    life = opened()
    assert written(life.overdue(HERE, 0.0, 10.0)) == [(CommandState.EXPIRED, False)]
    life = opened()
    life.maybe_sent = True
    assert life.overdue(HERE, 4.0, 10.0) == [LookAgain(6.0)]
    assert written(life.overdue(HERE, 10.0, 10.0)) == [(CommandState.IN_DOUBT, True)]
    assert not life.awaits_gateway, "its operator may get the doubt first"


def test_a_doubt_is_not_written_beside_a_verdict_or_a_cancellation():
    for flag in ("ending", "cancelling"):
        life = opened()
        life.maybe_sent = True
        setattr(life, flag, True)
        assert written(life.overdue(HERE, 10.0, 10.0)) == []


def test_a_record_that_its_verdict_overtook_changes_nothing():
    life = opened(state=CommandState.DISPATCHED)
    verdict = msgspec.structs.replace(life.record, state=CommandState.SUCCEEDED, status=200)
    assert life.learned(HERE, verdict) == [KeepRecord(verdict)]
    assert life.learned(HERE, make_record(state=CommandState.DISPATCHED)) == []
    assert (life.record, life.opened) == (verdict, False)


def test_nothing_of_a_command_that_waits_for_a_second_operator_leaves_the_bridge():
    life = opened(state=CommandState.PROPOSED, journal="")
    assert life.connected(HERE) == []
    assert life.committed(HERE, WriteRecord(life.record), life.record) == [KeepRecord(life.record)]
    assert not life.maybe_sent


def test_an_approved_command_is_sent_once_its_record_names_the_approver():
    life = opened(state=CommandState.PROPOSED, journal="")
    (approved,) = life.approved(HERE, "client acme/bob (password)")
    assert (approved.record.state, approved.record.approved_by) == (CommandState.ACCEPTED, "client acme/bob (password)")
    assert life.connected(HERE) == [], "nothing is sent before the commit"
    settled, kept, noted = life.committed(HERE, approved, approved.record)
    assert (settled, kept) == (SettleCopies(ACCEPTED), KeepRecord(approved.record))
    assert noted.record.journal == HERE.journal
    assert life.committed(HERE, noted, noted.record) == [KeepRecord(noted.record), SendCommand(noted.record)]


def test_an_approval_that_comes_too_late_changes_nothing():
    for event in (lambda life: life.cancel_asked(HERE, "op-1"), lambda life: life.overdue(HERE, 0.0, 5.0)):
        life = opened(state=CommandState.PROPOSED, journal="")
        event(life)
        assert life.approved(HERE, "op-2") == [SettleCopies(MODIFIED)]


def test_a_command_that_nobody_approves_expires_and_a_cancelled_one_is_over_at_once():
    life = opened(state=CommandState.PROPOSED, journal="")
    late, _ = life.overdue(HERE, 0.0, 5.0)
    assert (late.record.state, late.record.why) == (CommandState.EXPIRED, "no second operator approved it in time")
    life = opened(state=CommandState.PROPOSED, journal="")
    assert written(life.cancel_asked(HERE, "op-1")) == [(CommandState.CANCELLED, False)]


def test_the_next_owner_of_the_shard_does_not_send_a_command_that_waits_for_a_second_operator():
    life = life_of(make_record(accepted_ms=HERE.ms, state=CommandState.PROPOSED, durable=True))
    life.learned(HERE, life.record, by_shard=True)
    assert life.connected(HERE) == []
    assert not life.maybe_sent
