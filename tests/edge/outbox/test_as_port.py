"""The outbox does what every port does."""

from contextlib import asynccontextmanager

import pytest

from contracts.port_contract import Opened, PortContract
from fogline.events.codec import decode_event
from fogline_edge.outbox import port as module
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.settings import EdgeSettings


class TestOutbox(PortContract):
    """The same contract as the fake's."""

    @pytest.fixture
    def opening(self, folder, monkeypatch):
        monkeypatch.setattr(module, "MAX_WAITING_EVENTS", 1000)

        @asynccontextmanager
        async def opened():
            outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder)))
            reader = open_database(folder / "outbox.db", 1_000_000_000)

            def stored():
                rows = reader.execute("SELECT body FROM event ORDER BY place").fetchall()
                return [decode_event(unpack_body(body)).data for (body,) in rows]

            try:
                yield Opened(outbox.port, stored)
            finally:
                reader.close()
                await outbox.close()

        return opened
