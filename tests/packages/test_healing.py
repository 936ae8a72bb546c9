"""The package fogline-edge in a booted Debian 12: it heals without a person, and `status` and journal say from which fault."""

import json

import pytest

from packages.container import until
from packages.faults import BluetoothDongle, MemoryHog, WallClock, memory_max
from packages.installed_gateway import HEALED_S, active, main_pid, publish, stored

WAITING = 500
MAX_MEMORY_MIB = 280
SLOW_MIB, FAST_MIB = 4, 1000
MEMORY_MAX_BYTES = 400 << 20
DEVICE = """
import sys, threading, time
import paho.mqtt.client as mqtt
first, count = int(sys.argv[1]), int(sys.argv[2])
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="lamp-1", clean_session=False)
client.reconnect_delay_set(1, 2)
acknowledged, complete = set(), threading.Event()
def on_publish(client, data, packet_id, *_):
    acknowledged.add(packet_id)
    if len(acknowledged) == count:
        complete.set()
client.on_publish = on_publish
client.connect("127.0.0.1", 1883)
client.loop_start()
for n in range(first, first + count):
    client.publish("telemetry", '{"n": %d}' % n, qos=1)
    time.sleep(0.02)
complete.wait(60)
print(len(acknowledged))
"""


class Device:
    """A device that publishes 50 events a second, and sends those again that were not acknowledged."""

    def __init__(self, machine, first):
        (machine.root / "srv" / "device.py").write_text(DEVICE)
        self._printed = machine.root / "srv" / f"acknowledged-{first}"
        command = f"/usr/lib/fogline/edge/bin/python3 /srv/device.py {first} {WAITING} >{self._name} 2>&1 </dev/null &"
        machine.run(command)

    @property
    def _name(self) -> str:
        return f"/srv/{self._printed.name}"

    def ended(self) -> bool:
        return self._printed.exists() and bool(self._printed.read_text())

    def acknowledged(self) -> int:
        until(self.ended, HEALED_S, "the events are not acknowledged")
        return int(self._printed.read_text())


def reasons(machine, reason: str) -> list[str]:
    """Return the messages in the journal that have this reason."""
    lines = machine.run(f"journalctl -u fogline-edge -o json --no-pager FOGLINE_REASON={reason}").splitlines()
    return [json.loads(each)["MESSAGE"] for each in lines]


def last_end(machine) -> dict:
    return machine.status()["run"]["ends"][-1]


def jumps_of(machine) -> list[dict]:
    return machine.status()["run"]["clock"]["jumps"]


def text_of_status(machine) -> str:
    return machine.run("runuser -u fogline -- fogline-edge status")


def restarted(machine, former: int) -> float:
    """Wait until the service runs again. Returns the seconds."""
    what = "the service was not started again"
    return until(lambda: active(machine) and main_pid(machine) not in (0, former), HEALED_S, what)


def test_a_gateway_runs(machine):
    machine.run("sh /srv/apt/install.sh file:/srv/apt")
    machine.run("runuser -u fogline -- fogline-edge init --tenant acme --gateway gw-1 --bridge 127.0.0.1:5672")
    machine.run("echo OPTIONS=--insecure-dev > /etc/default/fogline-edge")
    machine.run("printf '[ble]\\nprofiles = [\"bthome\"]\\nstatus_s = 0.5\\n' >> /etc/fogline/edge.toml")
    machine.run("systemctl enable --now fogline-edge")
    assert publish(machine, 1, 1) == 1


@pytest.fixture(scope="module")
def hog(machine):
    """Memory that the gateway takes when a test says so."""
    return MemoryHog(machine)


def test_a_gateway_that_grows_leaves_with_the_reason_and_loses_nothing(machine, hog):
    former = main_pid(machine)
    device = Device(machine, 2)
    hog.grow(former, SLOW_MIB)
    until(lambda: reasons(machine, "memory") != [], HEALED_S, "the gateway does not notice that it grows")
    healed_s = restarted(machine, former)
    print(f"a gateway with more than {MAX_MEMORY_MIB} MiB of memory served again {healed_s:.1f} s after it had noticed")
    assert device.acknowledged() == WAITING
    assert stored(machine) == list(range(1, WAITING + 2))
    assert last_end(machine)["cause"] == "memory"
    assert f"MiB of memory, more than {MAX_MEMORY_MIB} MiB" in last_end(machine)["text"]
    assert "the run before: it left by itself: the gateway has" in text_of_status(machine)


def test_a_gateway_that_the_kernel_kills_for_its_memory_says_so_afterwards(machine, hog):
    former = main_pid(machine)
    first = stored(machine)[-1] + 1
    device = Device(machine, first)
    until(lambda: stored(machine)[-1] > first, HEALED_S, "no event is stored")
    with memory_max(machine, former, MEMORY_MAX_BYTES):
        hog.grow(former, FAST_MIB)
        healed_s = restarted(machine, former)
    print(f"a gateway that takes {FAST_MIB} MiB at once was killed and served again within {healed_s:.1f} s")
    assert device.acknowledged() == WAITING
    assert stored(machine) == list(range(1, first + WAITING))
    assert last_end(machine)["cause"] == "oom-kill"
    (logged,) = reasons(machine, "oom-kill")
    assert "the run before this one: the kernel killed it for want of memory" in logged
    assert "the kernel killed it for want of memory" in text_of_status(machine)
    assert "the kernel killed it for want of memory" in machine.run("runuser -u fogline -- fogline-edge doctor", status=None)


@pytest.mark.parametrize(("how", "cause", "text"), [("KILL", "signal", "signal KILL"), ("STOP", "watchdog", "WatchdogSec")])
def test_a_gateway_that_was_killed_or_hung_says_so_afterwards(machine, how, cause, text):
    former = main_pid(machine)
    machine.run(f"kill -{how} {former}")
    restarted(machine, former)
    assert last_end(machine)["cause"] == cause
    assert text in text_of_status(machine)
    assert text in reasons(machine, cause)[-1]


def test_a_clock_that_jumps_by_years_is_noted_and_changes_nothing(machine):
    clock = WallClock(machine)
    former = main_pid(machine)
    assert last_end(machine)["cause"] == "stopped"
    for count, offset in enumerate(("+5y", "-5y", "+0"), 1):
        first = stored(machine)[-1] + 1
        clock.set(offset)
        noted = lambda: len(jumps_of(machine)) == count  # noqa: B023 - it is called here
        noted_s = until(noted, HEALED_S, "status does not name the jump")
        print(f"a jump of the clock to {offset} was in `status` after {noted_s:.1f} s")
        assert publish(machine, first, 100) == 100
    years = [round(each["by_s"] / (365 * 86_400)) for each in jumps_of(machine)]
    assert years == [5, -10, 5]
    assert len([each for each in reasons(machine, "clock") if "the wall clock was set from" in each]) == 3
    assert "the wall clock was set from" in text_of_status(machine)
    assert stored(machine) == list(range(1, stored(machine)[-1] + 1)), "nothing expires"
    assert machine.status()["dropped"] == 0
    assert main_pid(machine) == former, "the gateway need not be started again for that"


def test_a_bluetooth_adapter_that_was_out_is_used_again(machine):
    former = main_pid(machine)

    def ble() -> dict:
        return machine.status()["ble"]

    def flowing(after: int) -> bool:
        return ble()["counters"]["stored"] > after

    with BluetoothDongle(machine) as dongle:
        until(lambda: flowing(0), HEALED_S, "no advertisement is stored")
        dongle.pull()
        until(lambda: ble()["outage"] is not None, HEALED_S, "status does not know that the adapter is out")
        until(lambda: any("there is no Bluetooth adapter" in each for each in reasons(machine, "bluetooth")), HEALED_S,
              "the journal does not say that the adapter is out")  # fmt: skip
        since = ble()["outage"]["since"]
        assert f"problem since {since}: there is no Bluetooth adapter; plug one in" in text_of_status(machine)
        assert publish(machine, stored(machine)[-1] + 1, 1) == 1
        before = ble()["counters"]["stored"]
        dongle.plug(hundredths=2150)
        healed_s = until(lambda: flowing(before), HEALED_S, "no advertisement is stored again")
        print(f"advertisements were stored again {healed_s:.1f} s after the adapter was back")
        until(lambda: ble()["outage"] is None, HEALED_S, "status does not know that the adapter is back")
        last = ble()["earlier"][-1]
        assert (last["since"], last["problem"]) == (since, "there is no Bluetooth adapter; plug one in")
        assert 0 < last["lasted_s"] < 2 * HEALED_S
        over = f"no scan from {since} on for {last['lasted_s']:,.0f} s: there is no Bluetooth adapter"
        assert over in text_of_status(machine)
        assert any("scanning with hci0, after" in each for each in reasons(machine, "bluetooth"))
    assert main_pid(machine) == former, "the gateway need not be started again for that"
