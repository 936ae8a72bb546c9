"""The package fogline-edge in a booted Debian 12: its memory, its start, and a disk that is full for a while."""

from packages.container import until
from packages.installed_gateway import HEALED_S, PUBLISH, publish

MAX_MEMORY_KB = 60 * 1024
WAITING = 5000


def shown(machine, name):
    return machine.run(f"systemctl show -P {name} fogline-edge").strip()


def started_in_s(machine):
    began, ready = (int(shown(machine, f"{name}TimestampMonotonic")) for name in ("ExecMainStart", "ActiveEnter"))
    return (ready - began) / 1e6


def test_a_gateway_on_a_disk_of_its_own_needs_little_memory(machine):
    machine.run("sh /srv/apt/install.sh file:/srv/apt")
    machine.run("mount -t tmpfs -o size=24m,mode=750 tmpfs /var/lib/fogline && chown fogline:fogline /var/lib/fogline")
    machine.run("runuser -u fogline -- fogline-edge init --tenant acme --gateway gw-1 --bridge 127.0.0.1:5672")
    machine.run("echo OPTIONS=--insecure-dev > /etc/default/fogline-edge")
    machine.run("systemctl enable --now fogline-edge")
    assert publish(machine, 1, 1) == 1
    memory = machine.run(f"grep VmHWM /proc/{shown(machine, 'MainPID')}/status").split()
    print(f"{int(memory[1]) / 1024:.1f} MB at most, and {started_in_s(machine):.2f} s to the first listener")
    assert int(memory[1]) <= MAX_MEMORY_KB


def test_a_full_disk_delays_events_and_heals_without_a_person(machine):
    (machine.root / "srv" / "publish.py").write_text(PUBLISH)
    machine.run("dd if=/dev/zero of=/var/lib/fogline/filler bs=4k", status=1)
    former = shown(machine, "MainPID")
    machine.run(f"/usr/lib/fogline/edge/bin/python3 /srv/publish.py 2 {WAITING} >/srv/acknowledged 2>&1 </dev/null &")
    journal = "journalctl -u fogline-edge --no-pager"
    until(lambda: "the outbox is full: devices wait" in machine.run(journal), HEALED_S, "the journal does not say why")
    assert (machine.root / "srv" / "acknowledged").read_text() == ""
    assert "events are not acknowledged since" in (sentence := machine.status()["full"]["sentence"])
    assert "the disk, or this user's quota of it, is full" in sentence
    assert "the outbox is full" in machine.run(f"{journal} FOGLINE_GATEWAY=gw-1 FOGLINE_REASON=disk"), "no fields"
    machine.run("rm /var/lib/fogline/filler")
    done = machine.root / "srv" / "acknowledged"
    healed_s = until(lambda: bool(done.read_text()), HEALED_S, "the events are not acknowledged")
    print(f"all events were acknowledged {healed_s:.1f} s after there was room")
    assert done.read_text().strip() == str(WAITING)
    status = machine.status()
    assert status["acknowledged"] == WAITING + 1
    assert 0 < status["full"]["lasted_s"] < HEALED_S
    assert "events were not acknowledged from" in status["full"]["sentence"]
    assert shown(machine, "MainPID") == former, "the gateway need not be started again for that"
