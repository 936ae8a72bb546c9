"""The package for arm64 in an emulated Debian 12 (qemu-user): it is installed, and its gateway acknowledges an event."""

import json
import re
import shutil
import subprocess

import pytest

from packages.conftest import PACKAGES
from packages.test_fogline_edge import PUBLISH

ROOT = PACKAGES / "root-bookworm-arm64"
LIMIT_S = 600
SCRIPT = """
set -eu
exec 2>&1
dpkg -i /srv/fogline-edge.deb
runuser -u fogline -- fogline-edge init --tenant acme --gateway gw-1 --bridge 127.0.0.1:5672
mkfifo /srv/ready
runuser -u fogline -- fogline-edge run --insecure-dev >/srv/ready 2>/srv/log &
exec 3</srv/ready
read -r ready <&3
echo "$ready"
/usr/lib/fogline/edge/bin/python3 /srv/publish.py 1 1
runuser -u fogline -- fogline-edge status --json
cat /srv/log
"""


@pytest.fixture
def root(tmp_path):
    """A Debian for arm64 that emulation can run, without a network."""
    packages = sorted(PACKAGES.glob("fogline-edge_*_arm64.deb"))
    if not packages or not ROOT.exists():
        pytest.skip("there is no package for arm64: make packages ARGS='--arch arm64'")
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", str(ROOT), str(root)], check=True)
    shutil.rmtree(root / "build", ignore_errors=True)
    shutil.copy(packages[0], root / "srv" / "fogline-edge.deb")
    (root / "srv" / "publish.py").write_text(PUBLISH)
    (root / "srv" / "script").write_text(SCRIPT)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def test_the_package_for_arm64_acknowledges_an_event(root):
    command = ["systemd-nspawn", "-q", "--register=no", "--keep-unit", "--private-network", "--as-pid2", "-D", str(root)]
    command += ["sh", "/srv/script"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    lines = printed.splitlines()
    ready = next(json.loads(line) for line in lines if line.startswith('{"ready"'))
    assert ready["mqtt"] == "127.0.0.1:1883"
    assert "1" in lines, f"the event was not acknowledged: {printed}"
    status = next(json.loads(line) for line in lines if re.match(r'\{"gateway"', line))
    assert status["acknowledged"] == 1
