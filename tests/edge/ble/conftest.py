"""One world per module: it takes seconds to start, and the tests of a module follow one run of a gateway."""

import pytest

from .world import World

PROFILE = """\
name = "bench"
channel = "bench"
[[recognise]]
services = ["181a"]
[[read]]
characteristic = "2a6e"
interval_s = 1
[[read]]
characteristic = "6e400005-0000-4000-8000-00805f9b0001"
interval_s = 3600
[[read]]  # two have this UUID
characteristic = "6e400006-0000-4000-8000-00805f9b0001"
interval_s = 3600
[[read]]  # commands are answered by it as well
characteristic = "6e400003-0000-4000-8000-00805f9b0001"
interval_s = 1
[[notify]]
characteristic = "2a6e"
[[notify]]  # it can only be read
characteristic = "6e400005-0000-4000-8000-00805f9b0001"
[[commands]]
name = "tell"
characteristic = "6e400002-0000-4000-8000-00805f9b0001"
answer = "notify"
answer_characteristic = "6e400003-0000-4000-8000-00805f9b0001"
timeout_s = 3
[[commands]]
name = "write"
characteristic = "6e400002-0000-4000-8000-00805f9b0001"
[[commands]]
name = "shout"
characteristic = "6e400002-0000-4000-8000-00805f9b0001"
answer = "nothing"
[[commands]]
name = "forbidden"
characteristic = "6e400004-0000-4000-8000-00805f9b0001"
[[commands]]
name = "twice"
characteristic = "6e400006-0000-4000-8000-00805f9b0001"
[[commands]]
name = "missing"
characteristic = "6e400009-0000-4000-8000-00805f9b0001"
"""
SETTINGS = """\
[ble]
profiles = ["bthome", "ruuvitag", "ibeacon", "eddystone-tlm"]
silence_s = 3
power_on_s = 1
status_s = 0.2
longest_retry_s = 1
connect_timeout_s = 5
device_silence_s = 6
{more}
"""
DEVICES = """\
[[ble.devices]]
device = "env-1"
address = "C0:00:00:00:00:10"
profile = "bench.toml"
[[ble.devices]]
device = "env-2"
address = "C0:00:00:00:00:11"
profile = "bench.toml"
"""


@pytest.fixture(scope="module")
def settings(request):
    """Settings of the tests, with those of the module in `MORE`."""
    return SETTINGS.format(more=getattr(request.module, "MORE", "")) + DEVICES


@pytest.fixture(scope="module")
def world(tmp_path_factory, settings):
    """A world with a gateway that runs."""
    folder = tmp_path_factory.mktemp("ble")
    (folder / "bench.toml").write_text(PROFILE)
    with World(folder, settings) as world:
        world.run(world.start())
        yield world
