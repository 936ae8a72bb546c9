"""To which bridge a gateway goes next, and after how long; the connections themselves are made up."""

import asyncio
from types import SimpleNamespace

import pytest

from fogline.amqp.backoff import Backoff
from fogline.errors import SlowDown, Unreachable
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink import uplink as module
from fogline_edge.uplink.session import Redirect
from fogline_edge.uplink.uplink import MAX_REFUSALS, MAX_WARNED, REDIRECTED_S, Uplink

A, B, C = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
AWAY = Unreachable("nobody is there")


async def steps(monkeypatch, bridges, answers):
    """Return a transcript of the uplink: each bridge that it connects to, and each pause, until the answers are used up."""
    transcript, left = [], iter(answers)

    class Made:
        welcomed = False

        def __init__(self, *arguments, **_):
            self.bridge = next(each for each in arguments if isinstance(each, str))

        async def run(self):
            answer = next(left, None)
            if answer is None:
                raise asyncio.CancelledError
            transcript.append(self.bridge)
            self.welcomed = answer == "served"
            raise Unreachable("it ended") if self.welcomed else answer

    async def sleep(seconds):
        transcript.append(seconds)

    monkeypatch.setattr(module, "BridgeSession", Made)
    # Of this module alone: other loops of this process sleep too.
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    uplink = Uplink(None, UplinkSettings(bridge=bridges), None, Backoff(draw=max))
    with pytest.raises(asyncio.CancelledError):
        await uplink.run()
    return transcript


async def test_bridges_that_are_away_are_tried_in_turn_less_and_less_often(monkeypatch):
    assert await steps(monkeypatch, [A, B], [AWAY] * 3) == [A, 1.0, B, 2.0, A, 4.0]


async def test_a_bridge_that_sends_on_to_one_that_is_away_is_asked_again_and_nothing_doubles(monkeypatch):
    answers = [Redirect("", B), AWAY] * 3
    assert await steps(monkeypatch, [A, B], answers) == [A, B, REDIRECTED_S + 1.0] * 3


async def test_two_bridges_that_send_on_to_each_other_are_not_asked_without_a_pause(monkeypatch):
    answers = [Redirect("", B), Redirect("", A)] * 2
    assert await steps(monkeypatch, [A, B], answers) == [A, B, REDIRECTED_S + 1.0] * 2


@pytest.mark.parametrize("answers", [[Redirect("", C), AWAY], [Redirect("", C), Redirect("", C)]])
async def test_a_bridge_that_sends_on_to_nowhere_is_left_for_the_next(monkeypatch, answers):
    """A bridge that never serves must not hold a gateway that has another one."""
    transcript = await steps(monkeypatch, [A, B], [*answers * MAX_REFUSALS, AWAY])
    assert transcript == [*[A, C, REDIRECTED_S + 1.0] * MAX_REFUSALS, B, 1.0]


async def test_a_bridge_that_always_asks_to_come_back_later_is_left_for_the_next(monkeypatch):
    transcript = await steps(monkeypatch, [A, B], [*[SlowDown("", retry_after_s=7.0)] * MAX_REFUSALS, AWAY])
    assert transcript == [*[A, 8.0] * MAX_REFUSALS, B, 1.0]


async def test_when_the_one_that_was_sent_to_has_served_and_ends_the_next_is_asked(monkeypatch):
    answers = [Redirect("", C), "served", "served", SlowDown("", retry_after_s=7.0), AWAY]
    assert await steps(monkeypatch, [A, B], answers) == [A, C, 1.0, B, 2.0, A, 8.0, A, 4.0]


async def test_an_outage_is_warned_of_once_and_again_after_the_bridge_was_there(monkeypatch, caplog):
    other = Unreachable("it refuses")
    await steps(monkeypatch, [A], [AWAY, AWAY, other, other, "served", AWAY, AWAY])
    assert [each.getMessage().rsplit(": ", 1)[1] for each in caplog.records] == [
        "nobody is there",
        "it refuses",
        "it ended",
        "nobody is there",
    ]


async def test_a_bridge_that_sends_on_to_ever_new_ones_is_warned_of_once_and_the_oldest_of_those_is_forgotten(
    monkeypatch, caplog
):
    others = [f"127.0.0.1:{1000 + n}" for n in range(MAX_WARNED)]
    answers = [answer for where in [*others, others[0]] for answer in (Redirect("", where), AWAY)]
    await steps(monkeypatch, [A], answers)
    warned = [each.getMessage().split()[3] for each in caplog.records]
    assert warned == [A, *others, others[0]]
