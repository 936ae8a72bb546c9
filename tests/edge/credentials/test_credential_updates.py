"""Keys of devices that the bridge sends: when they count, and when they are accepted."""

import asyncio

import pytest

from coroutines import run_test
from fogline.amqp.outcome import ACCEPTED, RELEASED, RESOURCE_LIMIT, DeliveryState, Outcome
from fogline.commands.signature import Signer, TrustedKeys
from fogline.gateway.credential_transfer import MAX_PART, CredentialSealer, CredentialUpdate
from fogline.gateway.device_credentials import DeviceCredentials, PskKey
from fogline.gateway.message_signature import GatewayName
from fogline_edge.credentials import credential_updates
from fogline_edge.credentials.credential_file import FILE, CredentialFile
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.credentials.credential_updates import CredentialUpdates

NAME = GatewayName("acme", "gw-1")
LIMIT_S = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    return run_test(pyfuncitem, strict=True)


class Bridge:
    """The other side of one connection."""

    def __init__(self, updates: CredentialUpdates) -> None:
        self.updates = updates
        self.sealer = CredentialSealer(NAME, updates.begin(), Signer())

    async def sends(self, **update: object) -> Outcome:
        settled: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.updates.received(self.sealer.seal(CredentialUpdate(**update)), settled.set_result)  # type: ignore[arg-type]
        return await asyncio.wait_for(settled, LIMIT_S)


def of(device: str, until_ms: int = 0) -> DeviceCredentials:
    keys = [PskKey(number=1, identity=device, key=bytes(16), until_ms=until_ms)]
    return DeviceCredentials(device=device, version=1, keys=keys)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path):
    return CredentialFile(tmp_path, "acme/gw-1")


async def test_everything_counts_together_and_is_accepted_when_it_is_on_the_disk(file):
    updates = CredentialUpdates(file.read(), file, NAME, TrustedKeys())
    async with updates.running():
        bridge = Bridge(updates)
        assert (await bridge.sends(offer="another")).state is DeliveryState.RELEASED
        assert await bridge.sends(devices=[of("lamp-1")], whole=True, more=True) == ACCEPTED
        assert updates.store.psk(b"lamp-1") is None
        assert await bridge.sends(devices=[of("lamp-2")], whole=True) == ACCEPTED
        assert [each.device for each in file.read().all] == ["lamp-1", "lamp-2"]
        assert await bridge.sends(offer=file.read().digest) == ACCEPTED
        assert await bridge.sends(devices=[of("lamp-3")], gone=["lamp-1"]) == ACCEPTED
        assert [each.device for each in file.read().all] == ["lamp-2", "lamp-3"]


async def test_parts_of_a_connection_that_ended_count_nowhere(file):
    updates = CredentialUpdates(file.read(), file, NAME, TrustedKeys())
    async with updates.running():
        assert await Bridge(updates).sends(devices=[of("lamp-1")], whole=True, more=True) == ACCEPTED
        assert await Bridge(updates).sends(devices=[of("lamp-2")], whole=True) == ACCEPTED
        assert [each.device for each in updates.store.all] == ["lamp-2"]


async def test_a_gateway_keeps_a_bounded_number_of_devices(file, monkeypatch):
    monkeypatch.setattr(credential_updates, "MAX_DEVICES", MAX_PART + 1)
    updates = CredentialUpdates(CredentialStore(), file, NAME, TrustedKeys())
    async with updates.running():
        bridge = Bridge(updates)
        first, second = ([of(f"lamp-{part}-{n}") for n in range(MAX_PART)] for part in (1, 2))
        assert await bridge.sends(devices=first, whole=True, more=True) == ACCEPTED
        assert (await bridge.sends(devices=second, whole=True)).condition == RESOURCE_LIMIT
        assert len(updates.store) == 0
        assert await bridge.sends(devices=first, whole=True) == ACCEPTED
        assert (await bridge.sends(devices=second)).condition == RESOURCE_LIMIT
        assert await bridge.sends(devices=first) == ACCEPTED
        assert len(updates.store) == MAX_PART


async def test_a_disk_that_fails_is_no_acceptance_and_a_revocation_counts_all_the_same(file, tmp_path):
    updates = CredentialUpdates(CredentialStore([of("lamp-1")]), file, NAME, TrustedKeys())
    (tmp_path / f"{FILE}.new").mkdir()
    async with updates.running():
        outcome = await Bridge(updates).sends(gone=["lamp-1"])
    assert outcome.state is DeliveryState.MODIFIED
    assert updates.store.psk(b"lamp-1") is None


async def test_a_key_whose_time_is_over_is_told_by_the_clock(file):
    now_ms, ended = [1_000_000], asyncio.get_running_loop().create_future()
    store = CredentialStore([of("lamp-1", until_ms=1_000_050)], now_ms=lambda: now_ms[0])
    store.when_ended(lambda device, number: None if ended.done() else ended.set_result((device, number)))
    updates = CredentialUpdates(store, file, NAME, TrustedKeys())
    async with updates.running():
        now_ms[0] += 100
        assert await asyncio.wait_for(ended, LIMIT_S) == ("lamp-1", 1)


async def test_a_message_before_hello_is_released(file):
    updates = CredentialUpdates(CredentialStore(), file, NAME, TrustedKeys())
    stranger = Bridge(CredentialUpdates(CredentialStore(), file, NAME, TrustedKeys()))
    outcomes: list[Outcome] = []
    updates.received(stranger.sealer.seal(CredentialUpdate(gone=["lamp-1"])), outcomes.append)
    assert outcomes == [RELEASED]
