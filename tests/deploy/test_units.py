"""The systemd units of the Debian packages."""

import re
import shutil
import subprocess

import pytest

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
