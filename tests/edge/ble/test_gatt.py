"""Characteristics that can and cannot notify, with a client that behaves as bleak's."""

from types import SimpleNamespace

import pytest
from bleak.exc import BleakDBusError, BleakGATTProtocolError

from fogline.advertisement import short_uuid
from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.gatt import connection as gatt_connection
from fogline_edge.adapters.ble.gatt.connection import characteristic_of, subscribe

T = short_uuid(0x2A6E)
IN_PROGRESS = BleakDBusError("org.bluez.Error.InProgress", [])
NOT_SUPPORTED = BleakDBusError("org.bluez.Error.NotSupported", ["Operation is not supported"])


class Client:
    """`answers`: of `start_notify`, one after the other; `None` is yes."""

    def __init__(self, *answers: Exception | None, can: tuple[str, ...] = ("read", "notify")) -> None:
        self._answers = list(answers)
        self._found = SimpleNamespace(uuid=T, handle=7, properties=list(can))
        self.services = SimpleNamespace(characteristics={7: self._found})
        self.asked = 0

    async def start_notify(self, _characteristic, _told) -> None:
        self.asked += 1
        answer = self._answers.pop(0)
        if answer is not None:
            raise answer


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(gatt_connection, "_FIRST_NOTIFY_PAUSE_S", 0.0)


async def asked(client: Client, uuid: str = T) -> str | None:
    return await subscribe(client, uuid, lambda _, __: None, BleCounters())


def test_of_two_characteristics_with_one_uuid_it_is_the_first_by_handle():
    client = Client()
    client.services.characteristics = {handle: SimpleNamespace(uuid=T, handle=handle) for handle in (9, 3)}
    assert characteristic_of(client, T).handle == 3


async def test_request_is_repeated_while_bluez_is_busy():
    client = Client(IN_PROGRESS, IN_PROGRESS, None)
    assert await asked(client) is None
    assert client.asked == 3


async def test_a_characteristic_that_does_not_notify_is_not_asked_to():
    client = Client(can=("read",))
    assert await asked(client) == f"{T} does not notify"
    assert client.asked == 0


@pytest.mark.parametrize("error", [NOT_SUPPORTED, BleakGATTProtocolError(0x03), BleakGATTProtocolError(0x0F)])
async def test_unsupported_request_does_not_end_the_link(error):
    assert (await asked(Client(error))).startswith(f"{T} does not notify: ")


async def test_missing_characteristic_does_not_end_the_link():
    assert await asked(Client(), short_uuid(0x2A6F)) == f"there is no characteristic {short_uuid(0x2A6F)} to subscribe to"


@pytest.mark.parametrize("error", [BleakDBusError("org.bluez.Error.Failed", []), BleakGATTProtocolError(0x00)])
async def test_error_of_the_link_is_raised(error):
    with pytest.raises(type(error)):
        await asked(Client(error))
