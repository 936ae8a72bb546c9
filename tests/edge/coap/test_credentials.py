"""Devices with keys: without protection nobody speaks for them."""

from edge.coap.client import request
from fogline.gateway.device_credentials import DeviceCredentials, PskKey
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.coap.wire import Code
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.settings import CoapSettings
from fogline_lab.port import MemoryPort


def keys(*devices: str) -> CredentialStore:
    return CredentialStore(
        DeviceCredentials(device=each, version=1, keys=[PskKey(number=1, identity=each, key=bytes(16))]) for each in devices
    )


async def test_a_request_without_protection_does_not_speak_for_a_device_with_a_key(dial):
    port, store = MemoryPort(tenant="acme"), keys("d1")
    listener = CoapListener(port, CoapSettings(port=0), credentials=store)
    await listener.start()
    try:
        with dial(listener) as wire:
            for mid, path in enumerate(("telemetry/acme/d1", "command_response/acme/d1/c-1", "command/acme/d1"), 1):
                refused = await wire.ask(request(path, mid=mid))
                assert (refused.code, refused.payload) == (Code.UNAUTHORIZED, b"unprotected")
            assert (await wire.ask(request("telemetry/acme/d2", mid=8))).code == Code.CHANGED
            store.change([], ["d1"])
            assert (await wire.ask(request("telemetry/acme/d1", mid=9))).code == Code.CHANGED
    finally:
        await listener.close()
    assert [each.device for each in port.arrivals] == ["d2", "d1"]
    assert listener.counters.refused == {"unprotected": 3}
