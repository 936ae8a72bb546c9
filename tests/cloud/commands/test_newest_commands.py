"""The commands of a list, chosen within a bound from records that come in the order of Kafka."""

import base64
import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fogline.commands.command import CommandState
from fogline_cloud.commands.newest_commands import MAX_BYTES, NewestCommands, facts_of
from fogline_cloud.commands.record import CommandRecord
from fogline_lab.bridge.command_records import make_record

STATES = [CommandState.ACCEPTED, CommandState.SUCCEEDED]
records = st.lists(
    st.builds(
        lambda number, state: make_record(f"C{number}", accepted_ms=number % 7, state=state),
        st.integers(0, 20),
        st.sampled_from(STATES),
    ),
    max_size=60,
)


def expected(log: Sequence[CommandRecord], state: CommandState) -> list[str]:
    """The ids of all commands whose newest record is in this state, the newest command first."""
    newest = {each.id: each for each in log}
    found = sorted((each.accepted_ms, each.id) for each in newest.values() if each.state is state)
    return [name for _, name in reversed(found)]


@given(records, st.sampled_from(STATES), st.integers(1, 30))
def test_the_newest_record_of_each_command_decides_and_the_newest_commands_are_given(log, state, limit):
    chosen = NewestCommands(lambda record: record.state is state, answers=False)
    for each in log:
        chosen.take(each)
    found, more = chosen.newest(limit)
    ids = expected(log, state)
    assert ([each.id for each in found], more) == (ids[:limit], max(0, len(ids) - limit))


def test_memory_is_bounded_and_the_newest_stay():
    answer = base64.b64encode(bytes(100_000)).decode()
    chosen = NewestCommands(lambda _: True, answers=True)
    for _ in range(2):  # each command has a second record later: it is not counted twice
        for number in range(200):
            chosen.take(make_record(f"C{number:03}", accepted_ms=number, reply_base64=answer))
            held = sum(len(each.body) for each in chosen._held.values())
            assert held <= MAX_BYTES + len(answer) + 1000
    found, more = chosen.newest(5)
    assert [each.id for each in found] == ["C199", "C198", "C197", "C196", "C195"]
    assert more <= 195
    assert more > 195 - MAX_BYTES / len(answer)


def test_the_facts_of_a_command_have_its_answer_only_if_that_is_asked_for():
    record = make_record(state=CommandState.IN_DOUBT, provisional=True, reply_base64="b2s=", data_base64="c2VjcmV0")
    plain, whole = facts_of(record, answer=False), facts_of(record, answer=True)
    assert plain["state"] == "IN_DOUBT (provisional)"
    assert whole == plain | {"answer_type": None, "answer_base64": "b2s="}
    assert "c2VjcmV0" not in json.dumps(whole), "arguments are not shown"
