"""One question of an operator to a bridge, on a connection of its own with one link."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from fogline.amqp.client import AmqpClient
from fogline.amqp.outcome import INVALID_FIELD, NOT_IMPLEMENTED
from fogline.amqp.refusal import refusal_in
from fogline.amqp.security import ClientSecurity
from fogline.documents.document_error import explained
from fogline.errors import FoglineError, Misconfigured, Poison, SlowDown, Unreachable
from fogline.process.files.settings_file import split_endpoint

RETRY_S = 0.5
"""The pause before a question is asked again that no bridge could answer at the time."""
R = TypeVar("R")
Ask = Callable[[AmqpClient], Awaitable[R]]
"""Attaches a link on an open connection, and returns the answer."""


async def ask_bridge(bridge: str, tenant: str, ask: Ask[R], security: ClientSecurity, *, limit_s: float, answer_s: float) -> R:
    """Ask the bridge at `host:port` until it answers, on a new connection each time. Return the answer. Safe to cancel.

    An attempt that fails is repeated within `limit_s`, one without an answer ends after `answer_s`. Raises the last attempt's
    `Unreachable`, or `SlowDown` if the bridge cannot answer at present; and at once `Misconfigured` if it refuses this
    operator, `Poison` if it refuses the question.
    """
    host, port = split_endpoint(bridge, "bridge")
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + limit_s
    while True:
        client = AmqpClient(f"operator-{uuid.uuid4().hex[:12]}", {"tenant": tenant}, security)
        try:
            return await _ask(client, host, port, ask, answer_s)
        except (Unreachable, SlowDown):
            if loop.time() + RETRY_S > ends_s:
                raise
        await asyncio.sleep(RETRY_S)


async def _ask(client: AmqpClient, host: str, port: int, ask: Ask[R], answer_s: float) -> R:
    try:
        async with client, asyncio.timeout(answer_s):
            await client.open(host, port)
            return await ask(client)
    except TimeoutError:
        raise Unreachable(f"no answer in {answer_s:.0f} s") from None
    except Unreachable as error:
        raise _failure(client, error) from None
    except (Poison, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise Unreachable(f"a message of the bridge cannot be read: {explained(error, Any)}") from None


def _failure(client: AmqpClient, error: Unreachable) -> FoglineError:
    condition = client.condition
    if refusal := refusal_in(str(condition or client.why)):
        return Misconfigured(refusal)
    if condition is None:
        return error
    if condition.name in (INVALID_FIELD, NOT_IMPLEMENTED):
        return Poison("refused", condition.description)
    return SlowDown(condition.description or condition.name)
