"""Cancellations that meet something else at the same moment."""

import asyncio

from fogline.process import cancellation
from fogline.process.cancellation import end_tasks, raise_if_cancelled


async def fails():
    raise OSError


async def serve(entered: asyncio.Event) -> None:
    """Serve connections that end at once, as an uplink does."""
    while True:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                entered.set()
        except* OSError:
            pass
        raise_if_cancelled()
        await asyncio.sleep(60)


async def test_a_cancellation_that_meets_an_error_of_a_task_group_is_raised_afterwards():
    entered = asyncio.Event()
    task = asyncio.create_task(serve(entered))
    await entered.wait()
    task.cancel()
    _, left = await asyncio.wait({task}, timeout=30)
    assert not left
    assert task.cancelled()


async def test_a_task_that_loses_its_cancellation_is_cancelled_again(monkeypatch):
    monkeypatch.setattr(cancellation, "AGAIN_S", 0.01)
    lost = []

    async def loses_three():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost.append(1)
                if len(lost) > 3:
                    raise

    task = asyncio.create_task(loses_three())
    await asyncio.sleep(0)
    await end_tasks(task)
    assert task.cancelled()


async def test_ending_tasks_leaves_their_errors_to_their_owner():
    task = asyncio.create_task(fails())
    await end_tasks(task)
    assert task.cancelled() or isinstance(task.exception(), OSError)
    done = asyncio.create_task(fails())
    await asyncio.wait({done})
    await end_tasks(done)
    assert isinstance(done.exception(), OSError)
