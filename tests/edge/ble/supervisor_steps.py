"""Waits for steps of the supervisor, as `fogline-edge status` counts them."""

import asyncio

from .world import HEALED_S


async def until_state(world, holds, what: str) -> None:
    """Until `fogline-edge status` says so."""

    async def wait():
        while not holds(world.state()):  # noqa: ASYNC110 - a file gives no event
            await asyncio.sleep(0.05)

    try:
        await asyncio.wait_for(wait(), HEALED_S)
    except TimeoutError:
        raise AssertionError(f"{what}: {world.state()} {world.said[-20:]}") from None


async def until_step(world, name: str, more_than: int) -> None:
    """A step of the supervisor is counted."""
    await until_state(world, lambda state: state["steps"][name] > more_than, f"{name} is still {more_than}")
