"""Questions of pages: one at a time, also after one was given up, and none keeps the process from its end."""

import asyncio
import subprocess
import sys
import threading

import pytest

from fogline.errors import Unreachable
from fogline_cloud.api.problems import Problem
from fogline_cloud.console.one_thread import OneThread
from fogline_lab.waiting import until

HANGING = """
import asyncio, threading
from fogline_cloud.console.one_thread import OneThread

async def main():
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    def question():
        loop.call_soon_threadsafe(begun.set)
        threading.Event().wait()
    asyncio.ensure_future(OneThread("Kafka").ask(question))
    await begun.wait()

asyncio.run(main())
print("over")
"""


async def test_a_question_waits_for_the_one_before_also_if_nobody_waits_for_that_any_more():
    thread, go_on, order = OneThread("the tables"), threading.Event(), []

    def first():
        order.append("begin")
        go_on.wait(60)
        order.append("end")

    given_up = asyncio.ensure_future(thread.ask(first))
    await until(lambda: order, "it does not begin")
    given_up.cancel()
    second = asyncio.ensure_future(thread.ask(lambda: order.append("second")))
    await asyncio.wait([given_up])
    assert order == ["begin"]
    go_on.set()
    await second
    assert order == ["begin", "end", "second"]


async def test_an_error_is_a_problem_that_says_what_cannot_be_read():
    def question():
        raise Unreachable("connection refused")

    with pytest.raises(Problem, match="Kafka cannot be read: connection refused") as problem:
        await OneThread("Kafka").ask(question)
    assert problem.value.status == 503


def test_a_question_that_hangs_does_not_keep_the_process():
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
