"""The router's stand-in and a real Artemis do the same, but for what a router and a broker do differently."""

from contextlib import asynccontextmanager

import pytest

from contracts.intermediary_contract import BROKER, ROUTER, Between, IntermediaryContract
from fogline_lab.intermediary.accepting_engine import Door
from fogline_lab.intermediary.artemis import Artemis
from fogline_lab.intermediary.router import Router


class TestRouter(IntermediaryContract):
    behaviour = ROUTER

    @pytest.fixture
    def standing(self):
        @asynccontextmanager
        async def standing(users=None):
            async with Router(Door(users=users or {})) as router:

                async def kill():
                    router.kill()

                yield Between(router.port, kill, router.start)

        return standing


class TestArtemis(IntermediaryContract):
    behaviour = BROKER

    @pytest.fixture(scope="class")
    @classmethod
    def brokers(cls, tmp_path_factory):
        """Brokers by their users: each takes seconds to start."""
        started = {}

        def broker(users):
            key = tuple(users)
            if key not in started:
                started[key] = Artemis(tmp_path_factory.mktemp("artemis"), users=users).start()
            return started[key]

        yield broker
        for each in started.values():
            each.process.kill()
            each.process.join()

    @pytest.fixture
    def standing(self, brokers):
        @asynccontextmanager
        async def standing(users=None):
            broker = brokers(users or {})
            yield Between(broker.port, broker.kill, broker.started)

        return standing
