"""What bleak's library leaves behind when the bus dies."""

import asyncio
import errno

import pytest

from fogline_edge.adapters.ble.radio.bleak_manager import ignore_dead_bus


@pytest.mark.parametrize(
    ("number", "reported"), [(errno.EBADF, False), (errno.EPIPE, False), (errno.ECONNRESET, False), (errno.ENOSPC, True)]
)
async def test_a_message_over_a_dead_bus_is_not_reported(caplog, number, reported):
    ignore_dead_bus()
    context = {"message": "Future exception was never retrieved", "exception": OSError(number, "it")}
    asyncio.get_running_loop().call_exception_handler(context)
    assert ("never retrieved" in caplog.text) == reported
