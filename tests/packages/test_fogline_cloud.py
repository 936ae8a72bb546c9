"""The packages fogline-cloud and fogline-flow in a booted Debian 12, beside a gateway, with a Kafka broker on its loopback.

The tests run in this order.
"""

import json
import re
import subprocess
import sys
from functools import partial

import pytest

from packages.container import until
from packages.installed_gateway import PUBLISH

HEALED_S = 120
START_S = 300
SERVICES = ("fogline-bridge", "fogline-api", "fogline-flow")
SETTINGS = "/etc/fogline/cloud/cloud.toml"
WATCHED = {"fogline-bridge": "", "fogline-api": "", "fogline-flow": "[Service]\nWatchdogSec=20\n"}
"""Drop-ins: five minutes are long for a test."""


def as_fogline(machine, command, **more):
    return machine.run(f"runuser -u fogline -- {command}", **more)


def shown(machine, service, name):
    return machine.run(f"systemctl show -P {name} {service}").strip()


def active(machine, service):
    return shown(machine, service, "ActiveState") == "active"


def started_again(machine, service, former):
    return active(machine, service) and shown(machine, service, "MainPID") not in ("0", former)


def journal(machine, service):
    return machine.run(f"journalctl -u {service} --no-pager")


def start(machine, service):
    machine.run(f"systemctl enable --now --no-block {service}")
    until(lambda: active(machine, service), START_S, f"{service} did not start")


def publish(machine, first, count):
    """Publish events at the gateway; return how many were acknowledged."""
    script = ["/usr/lib/fogline/edge/bin/python3", "-", str(first), str(count)]
    return int(machine.run(" ".join(script), text=PUBLISH).strip())


def readings(machine):
    """Return how many readings are in the table: one of each event."""
    script = "import deltalake; print(len(deltalake.DeltaTable('/var/lib/fogline/flow/tables/readings').to_pyarrow_table()))"
    printed = as_fogline(machine, "/usr/lib/fogline/cloud/bin/python3 -", text=script, status=None)
    return int(printed) if printed.strip().isdigit() else 0


@pytest.fixture(scope="module")
def broker(machine, tmp_path_factory):
    """Starts the broker on loopback of the container."""
    log = tmp_path_factory.mktemp("broker")
    started = []

    def begin():
        command = ["nsenter", "-t", str(machine.leader), "-n", sys.executable, "-m", "fogline_lab.kafka_broker"]
        with (log / "log").open("ab") as file:
            process = subprocess.Popen(
                [*command, "--data", str(log / "data"), "--port", "9092"], stdout=subprocess.PIPE, stderr=file, text=True
            )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), f"the broker did not start (see {log})"

    yield begin
    for process in started:
        process.terminate()
        process.wait(60)


def test_it_is_installed_and_starts_nothing_by_itself(machine):
    printed = machine.run("sh /srv/apt/install.sh file:/srv/apt fogline-cloud")
    assert f"edit {SETTINGS}" in printed
    assert not active(machine, "fogline-bridge")
    assert machine.run("systemctl is-enabled fogline-bridge fogline-api", status=None).split() == ["disabled"] * 2
    assert machine.run(f"stat -c %U:%G:%a {SETTINGS} /etc/fogline/cloud /var/lib/fogline/cloud").split() == [
        "fogline:fogline:640", "fogline:fogline:750", "fogline:fogline:750",
    ]  # fmt: skip
    sbom = json.loads(machine.run("zcat -f /usr/share/doc/fogline-cloud/sbom.cdx.json*"))
    names = {each["name"] for each in sbom["components"]}
    assert '.SS "fogline command send"' in machine.run("zcat /usr/share/man/man1/fogline.1.gz")
    machine.run("bash -ec '. /usr/share/bash-completion/completions/fogline; complete -p fogline'")
    assert {"fogline-cloud", "python-qpid-proton", "confluent-kafka", "deltalake"} <= names
    assert not {"pip", "pyspark", "fogline-edge"} & names


def test_without_spark_every_command_is_there(machine):
    printed = machine.run("fogline --help")
    assert "usage: fogline " in printed
    assert "usage: fogline table" in machine.run("fogline table maintain --help")


def test_without_spark_the_command_names_the_package(machine):
    assert "install the package fogline-flow" in machine.run("fogline flow run", status=2)


def test_a_bridge_without_kafka_is_started_again_and_its_status_says_why(machine):
    machine.run("sed -i 's/^\\(BRIDGE\\|API\\)_OPTIONS=$/&--insecure-dev/' /etc/default/fogline-cloud")
    machine.run("systemctl enable --now --no-block fogline-bridge")
    until(
        lambda: "Kafka" in shown(machine, "fogline-bridge", "StatusText"), HEALED_S, "the status does not say what is missing"
    )
    assert not active(machine, "fogline-bridge")
    assert "127.0.0.1:9092" in journal(machine, "fogline-bridge")


def test_a_bridge_serves_when_kafka_is_there(machine, broker):
    broker()
    as_fogline(machine, "fogline topics create --replication 1")
    until(lambda: active(machine, "fogline-bridge"), HEALED_S, "the bridge does not serve")
    start(machine, "fogline-api")
    until(lambda: not shown(machine, "fogline-api", "StatusText"), HEALED_S, "the API has not read what Kafka has")


def test_a_gateway_on_the_same_machine_delivers_an_event(machine):
    machine.run("apt-get install -y --no-install-recommends fogline-edge=0.1.0")
    as_fogline(machine, "fogline-edge init --tenant default --gateway gw-1 --bridge 127.0.0.1:5672")
    machine.run("echo OPTIONS=--insecure-dev > /etc/default/fogline-edge")
    start(machine, "fogline-edge")
    assert publish(machine, 1, 1) == 1
    until(lambda: sum(each["settled"] for each in machine.status()["streams"]) == 1, HEALED_S, "the event does not arrive")


def test_the_flow_writes_the_event_to_the_table_without_a_network(machine):
    machine.run("apt-get install -y --no-install-recommends fogline-flow=0.1.0")
    start(machine, "fogline-flow")
    until(lambda: readings(machine) == 1, HEALED_S, "the event is not in the table")
    as_fogline(machine, "fogline flow status")


@pytest.mark.parametrize("service", SERVICES)
def test_the_services_can_do_little_else(machine, service):
    found = re.search(r"exposure level .*: (\d\.\d)", machine.run(f"systemd-analyze security {service} --no-pager"))
    assert found is not None
    assert float(found[1]) <= 2.5


@pytest.mark.parametrize("how", ["KILL", "STOP"])
@pytest.mark.parametrize("service", SERVICES)
def test_a_process_that_dies_or_hangs_is_started_again(machine, service, how):
    if WATCHED[service]:
        folder = machine.root / "etc" / "systemd" / "system" / f"{service}.service.d"
        folder.mkdir(exist_ok=True)
        (folder / "test.conf").write_text(WATCHED[service])
        machine.run(f"systemctl daemon-reload && systemctl restart {service}")
    former = shown(machine, service, "MainPID")
    machine.run(f"kill -{how} {former}")
    until(lambda: started_again(machine, service, former), START_S, f"{service} was not started again")
    reason = {"KILL": "status=9/KILL", "STOP": "Watchdog timeout"}[how]
    assert reason in journal(machine, service)


def test_a_secret_that_only_root_reads_is_a_credential(machine):
    machine.run("umask 077 && mkdir -p /etc/credstore && head -c 32 /dev/urandom | base64 > /etc/credstore/signing.key")
    machine.run(f"printf '[commands]\\nsigning_key = \"signing.key\"\\n' >> {SETTINGS}")
    machine.run("systemctl restart fogline-bridge")
    assert active(machine, "fogline-bridge")
    machine.run("rm /etc/credstore/signing.key")
    machine.run("rmdir --ignore-fail-on-non-empty /etc/credstore")
    machine.run(f"sed -i '/^\\[commands\\]/,$d' {SETTINGS}")


def test_upgrade_restarts_running_services_and_a_downgrade_is_refused(machine):
    former = {each: shown(machine, each, "MainPID") for each in SERVICES}
    packages = " ".join(f"/srv/fogline-{each}_0.1.1_amd64.deb" for each in ("cloud", "flow"))
    machine.run(f"apt-get install -y --no-install-recommends {packages}")
    for service in SERVICES:
        again = partial(started_again, machine, service, former[service])
        until(again, START_S, f"the new version of {service} does not run")
    assert publish(machine, 2, 1) == 1
    until(lambda: readings(machine) == 2, HEALED_S, "the second event is not in the table")
    assert "[kafka]" in machine.run(f"cat {SETTINGS}")
    older = packages.replace("0.1.1", "0.1.0")
    printed = machine.run(f"apt-get install -y --allow-downgrades {older}", status=100)
    assert "an older version cannot read it" in printed
    assert active(machine, "fogline-bridge")


def test_remove_keeps_the_data_and_purge_leaves_nothing_but_the_gateway(machine):
    machine.run("apt-get remove -y fogline-cloud fogline-flow")
    machine.run(f"test -s {SETTINGS} && test -d /var/lib/fogline/flow/tables")
    machine.run("rm -r /etc/systemd/system/fogline-flow.service.d")
    machine.run("apt-get purge -y fogline-cloud fogline-flow")
    machine.run("test ! -e /etc/fogline/cloud && test ! -e /var/lib/fogline/cloud && test ! -e /var/lib/fogline/flow")
    assert active(machine, "fogline-edge")
    assert publish(machine, 3, 1) == 1
    machine.run("apt-get purge -y fogline-edge")
    machine.run("rm /usr/share/keyrings/fogline.gpg /etc/apt/sources.list.d/fogline.list")  # as install.sh says
    elsewhere = " -o ".join(f"-path {each} -prune" for each in ("/proc", "/srv", "/var/log", "/var/lib/apt"))
    left = f"find / -xdev {elsewhere} -o -iname '*fogline*' -print"
    assert [each for each in machine.run(left).splitlines() if "/journal/" not in each] == []
    machine.run("! getent passwd fogline")
