"""The systemd units of the Debian packages."""

import importlib
import re
import shutil
import subprocess

import pytest

from fogline_cloud.api import logins
from fogline_cloud.api_settings import ApiSettings
from fogline_cloud.bridge.door import handshakes
from fogline_cloud.settings import BridgeSettings
from fogline_edge.adapters.http import listener as http_listener
from fogline_edge.adapters.mqtt.server import listener as mqtt_listener
from fogline_edge.settings import HttpSettings, MqttSettings
from rules.source import ROOT

DEBIAN = ROOT / "deploy" / "packages" / "debian"
UNITS = {re.sub(r"^fogline-\w+\.(?=fogline-)", "", path.name): path for path in sorted(DEBIAN.glob("*.service"))}
MAX_EXPOSURE = 2.5
# the JVM compiles into memory; the maintenance of the tables has a low priority; a bridge chooses its CPU
EXCEPTIONS = {
    "fogline-flow.service": {"MemoryDenyWriteExecute=no", "SystemCallFilter=setpriority"},
    "fogline-bridge.service": {"SystemCallFilter=sched_setaffinity"},
}
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")


def sandbox(unit):
    """The lines that say what a service may do."""
    text = UNITS[unit].read_text().partition("CapabilityBoundingSet=")[2].partition("[Install]")[0]
    return {line for line in text.splitlines() if line and not line.startswith("#")}


@pytest.fixture
def installed(tmp_path):
    """The units beside programs of the names that they start."""
    for name, path in UNITS.items():
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", path.read_text(), flags=re.MULTILINE)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_part_has_a_service():
    assert set(UNITS) == {f"fogline-{part}.service" for part in ("edge", "bridge", "api", "flow")}


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_reads_the_unit(installed, unit):
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(installed / unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if unit in line]
    assert (done.returncode, complaints) == (0, [])


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_the_service_can_do_little_else(installed, unit):
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(installed / unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze is too old")
    found = re.search(r"exposure level .*: (\d+\.\d)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= MAX_EXPOSURE


@pytest.mark.parametrize("unit", UNITS)
def test_all_services_have_the_same_sandbox_but_for_known_exceptions(unit):
    common = sandbox("fogline-edge.service")
    assert sandbox(unit) - common == EXCEPTIONS.get(unit, set())
    assert {line.partition("=")[0] for line in common} == {line.partition("=")[0] for line in sandbox(unit)}


@pytest.mark.parametrize("unit", UNITS)
def test_a_service_that_ends_or_hangs_is_started_again_and_has_a_bound_of_memory(unit):
    text = UNITS[unit].read_text()
    for line in ("Type=notify", "Restart=always", "StartLimitIntervalSec=0", "WatchdogSec=", "MemoryMax=", "MemoryHigh="):
        assert f"\n{line}" in text


def setting(unit, name):
    """The value of a setting of a service, with its suffix."""
    (found,) = re.findall(rf"^{name}=(\S+)$", UNITS[unit].read_text(), flags=re.MULTILINE)
    return found


def connections(part):
    """The sockets that a process bounds."""
    mqtt, http, bridge, api = MqttSettings(), HttpSettings(), BridgeSettings(), ApiSettings()
    return {
        "edge": mqtt.max_connections + mqtt_listener.LINGERING + http.max_connections + http_listener.LINGERING,
        "bridge": bridge.max_connections + handshakes.MAX_HANDSHAKES,
        "api": 2 * api.max_connections + logins.MAX_SESSIONS,
        "flow": 0,
    }[part]


@pytest.mark.fault("S7")
@pytest.mark.parametrize("part", ["edge", "bridge", "api", "flow"])
def test_each_service_may_open_a_file_for_each_connection_that_it_bounds(part):
    """Systemd's default is 1,024, and a process without a free descriptor accepts nobody."""
    assert int(setting(f"fogline-{part}.service", "LimitNOFILE")) >= connections(part) + 1000


def parts():
    """The parts of each process's memory in docs/proofs/limits.md: name, MiB, and the constant if there is one."""
    section = (ROOT / "docs" / "proofs" / "limits.md").read_text().partition("## The sum")[2].partition("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")]
    rows = {}
    for process, what, mib, constant in found[1:]:
        rows.setdefault(process, []).append((what, int(mib), constant.strip("`")))
    return rows


def value_of(name):
    """A constant by its dotted name; of settings, the default."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), last)
    except ModuleNotFoundError:
        module, _, settings = module.rpartition(".")
        return getattr(getattr(importlib.import_module(module), settings)(), last)


@pytest.mark.fault("S7")
@pytest.mark.parametrize(("process", "unit"), [("gateway", "edge"), ("bridge", "bridge"), ("api", "api")])
def test_the_sum_of_all_bounds_of_a_process_is_below_the_memory_of_its_service(process, unit):
    *summands, (what, total, _) = parts()[process]
    assert what == "The sum"
    for each, mib, constant in summands:
        assert constant == "-" or value_of(constant) == mib * 2**20, each
    assert sum(mib for _, mib, _ in summands) == total
    most = setting(f"fogline-{unit}.service", "MemoryMax")
    assert total <= int(most[:-1]) * {"M": 1, "G": 1024}[most[-1]]
