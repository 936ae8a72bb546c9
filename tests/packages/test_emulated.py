"""The packages for ARM in an emulated Debian 12 (qemu-user): a gateway acknowledges an event, the cloud's commands start."""

import json
import re
import shutil
import subprocess

import pytest

from packages.container import PACKAGES
from packages.installed_gateway import PUBLISH

LIMIT_S = 1800
"""For an emulated machine that has a part of one CPU."""
MOST_KB = 60_000
pytestmark = pytest.mark.timeout(2 * LIMIT_S)
GATEWAY = r"""
set -eu
exec 2>&1
# qemu-user maps what it emulates below 2^40, so with short addresses, and its own memory above
resident() {
    awk -v of="$2" '/^[0-9a-f]+-/ { inner = length($1) < 24 } /^Rss:/ && inner == of { sum += $2 } END { print sum }' "$1"
}
dpkg -i /srv/fogline-edge.deb
runuser -u fogline -- fogline-edge init --tenant acme --gateway gw-1 --bridge 127.0.0.1:5672
mkfifo /srv/ready
began=$(date +%s%N)
runuser -u fogline -- fogline-edge run --insecure-dev >/srv/ready 2>/srv/log &
exec 3</srv/ready
read -r ready <&3
echo "start_ms $((($(date +%s%N) - began) / 1000000))"
echo "$ready"
/usr/lib/fogline/edge/bin/python3 /srv/publish.py 1 1
memory="$(dirname "$(grep -la '[f]ogline_edge.cli' /proc/[0-9]*/cmdline)")/smaps"
echo "gateway_kb $(resident "$memory" 1)"
echo "emulator_kb $(resident "$memory" 0)"
runuser -u fogline -- fogline-edge status --json
cat /srv/log
"""
CLOUD = """
set -eu
exec 2>&1
dpkg -i /srv/fogline-cloud.deb
fogline --help
fogline bridge check --help
/usr/lib/fogline/cloud/bin/python3 -c 'import confluent_kafka, cryptography, deltalake, numpy, proton, pyarrow, zstandard'
echo imported
"""


@pytest.fixture
def machine(tmp_path):
    """Runs a script as root of a Debian for `arch`, without a network, with a package in /srv. Returns what it printed."""

    def run(arch: str, package: str, script: str) -> str:
        root, built_in = tmp_path / "root", PACKAGES / f"root-bookworm-{arch}"
        packages = sorted(PACKAGES.glob(f"{package}_*_{arch}.deb"))
        if not packages or not built_in.exists():
            pytest.skip(f"there is no {package} for {arch}: make packages ARGS='--arch {arch}'")
        root.mkdir()
        parts = [str(each) for each in built_in.iterdir() if each.name != "build"]
        subprocess.run(["cp", "-a", "--reflink=auto", *parts, str(root)], check=True)
        shutil.copy(packages[0], root / "srv" / f"{package}.deb")
        (root / "srv" / "publish.py").write_text(PUBLISH)
        (root / "srv" / "script").write_text(script)
        command = ["systemd-nspawn", "-q", "--register=no", "--keep-unit", "--private-network", "--as-pid2", "-D", str(root)]
        command += ["sh", "/srv/script"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed
        return printed

    yield run
    shutil.rmtree(tmp_path / "root", ignore_errors=True)


@pytest.mark.parametrize("arch", ["arm64", "armhf"])
def test_the_gateway_acknowledges_an_event(machine, arch):
    printed = machine(arch, "fogline-edge", GATEWAY)
    lines = printed.splitlines()
    ready = next(json.loads(line) for line in lines if line.startswith('{"ready"'))
    assert ready["mqtt"] == "127.0.0.1:1883"
    assert "1" in lines, f"the event was not acknowledged: {printed}"
    status = next(json.loads(line) for line in lines if re.match(r'\{"gateway"', line))
    assert status["acknowledged"] == 1
    start_ms, gateway_kb, emulator_kb = (
        int(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))
        for name in ("start_ms", "gateway_kb", "emulator_kb")
    )
    print(
        f"emulated: {start_ms / 1000:.1f} s to the first listener; {gateway_kb * 1.024 / 1000:.1f} MB resident;"
        f" the emulator's own memory beside it: {emulator_kb * 1.024 / 1000:.1f} MB"
    )
    assert 10_000 < gateway_kb * 1.024 < MOST_KB


def test_the_commands_of_the_cloud_side_start(machine):
    printed = machine("arm64", "fogline-cloud", CLOUD)
    assert "usage: fogline " in printed
    assert "usage: fogline bridge check" in printed
    assert "imported" in printed
