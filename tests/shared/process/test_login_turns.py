"""Turns of logins: fair by address, bounded, and safe to cancel."""

import asyncio
import random

import pytest

from fogline.errors import SlowDown
from fogline.process.login_turns import LoginTurns

LIMIT_S = 60.0


class Logins:
    """Logins that hold their turn until `go_on`, and the order in which they got it."""

    def __init__(self, turns: LoginTurns) -> None:
        self.turns = turns
        self.order: list[str] = []
        self.active = self.most_active = 0
        self._held: list[asyncio.Event] = []

    async def log_in(self, name: str, address: str) -> str:
        try:
            async with self.turns.turn(address):
                self.active += 1
                self.most_active = max(self.most_active, self.active)
                self.order.append(name)
                held = asyncio.Event()
                self._held.append(held)
                try:
                    await held.wait()
                finally:
                    self.active -= 1
                    if held in self._held:
                        self._held.remove(held)
        except SlowDown:
            return "busy"
        return "checked"

    def begin(self, name: str, address: str) -> "asyncio.Task[str]":
        return asyncio.create_task(self.log_in(name, address))

    async def go_on(self) -> None:
        while self._held:
            self._held.pop(0).set()
            await turn_of_the_loop()


async def turn_of_the_loop():
    for _ in range(5):
        await asyncio.sleep(0)


async def begun(logins, *names):
    tasks = [logins.begin(f"{address}{number}", address) for number, address in enumerate(names)]
    await turn_of_the_loop()
    return tasks


async def test_a_login_waits_behind_one_of_each_other_address_and_not_behind_a_flood():
    logins = Logins(LoginTurns(1))
    tasks = await begun(logins, *["flood"] * 20, "good", "good", "late")
    await logins.go_on()
    assert logins.order[:6] == ["flood0", "flood1", "good20", "late22", "flood2", "good21"]
    assert await asyncio.gather(*tasks) == ["checked"] * 23


async def test_an_address_that_has_too_many_waiting_logins_is_busy_and_others_wait():
    logins = Logins(LoginTurns(1, most_of_address=3))
    tasks = await begun(logins, *["flood"] * 10, "good")
    await logins.go_on()
    assert [await each for each in tasks] == ["checked"] * 4 + ["busy"] * 6 + ["checked"]


async def test_beyond_the_limit_of_all_the_newest_of_the_address_with_most_is_refused():
    logins = Logins(LoginTurns(1, most=4))
    tasks = await begun(logins, "x", "a", "a", "a", "b", "c", "d")
    await logins.go_on()
    assert [await each for each in tasks] == ["checked", "checked", "busy", "busy", "checked", "checked", "checked"]


async def test_turns_are_neither_lost_nor_duplicated_by_cancellation():
    chance, logins = random.Random(3), Logins(LoginTurns(2, most=30, most_of_address=8))
    tasks: list[asyncio.Task[str]] = []
    for number in range(2000):
        tasks.append(logins.begin(f"{number}", f"{chance.randrange(6)}"))
        if chance.random() < 0.5:
            await asyncio.sleep(0)
        if chance.random() < 0.3:
            chance.choice(tasks[-20:]).cancel()
        if chance.random() < 0.5 and logins._held:
            logins._held.pop(0).set()
    await turn_of_the_loop()
    await logins.go_on()
    await asyncio.wait(tasks, timeout=LIMIT_S)
    assert all(each.done() for each in tasks)
    assert logins.most_active <= 2
    assert len(logins.turns) == 0
    again = await begun(logins, "a", "b", "c")
    assert logins.active == 2, "both turns are free again"
    await logins.go_on()
    assert await asyncio.gather(*again) == ["checked"] * 3


async def test_an_error_within_a_turn_passes_it_on():
    turns = LoginTurns(1)
    with pytest.raises(ValueError, match="wrong"):
        async with turns.turn("a"):
            raise ValueError("wrong")
    async with asyncio.timeout(LIMIT_S), turns.turn("a"):
        pass
