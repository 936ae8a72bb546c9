"""The state that `fogline-edge status` shows is kept once at a time, however long the disk takes."""

from fogline_edge.adapters.ble.adapter import BleAdapter
from fogline_edge.adapters.ble.state import STATE_KEY
from fogline_edge.ble_settings import BleSettings
from fogline_lab.port import MemoryPort


async def test_states_do_not_pile_up_while_the_disk_is_waited_for():
    """G6."""
    port = MemoryPort()
    adapter = BleAdapter(port, BleSettings(profiles=["bthome"]))
    port.hold()
    for _ in range(10):
        adapter._publisher.publish()
    assert port.waiting == 1
    port.release()
    await port.until(lambda: port.waiting == 0, "the newest state is kept")
    assert STATE_KEY in port.kept("")
