"""docs/two-machines.md, the part on devices: its commands and settings, with the commands of docs/devices-mqtt.md."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge.mqtt.tls_page import COMMANDS
from fogline_edge.operate.first_settings import CERTIFICATE, FILE
from fogline_edge.operate.status import read_events
from fogline_lab.supervisor import ChildProcess
from rules.source import ROOT

PAGE = (ROOT / "docs" / "two-machines.md").read_text("utf-8").partition("## Devices on the network")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TYPED = [line for language, text in BLOCKS if not language for line in text.splitlines()]
(SETTINGS,) = (text for language, text in BLOCKS if language == "toml")
BIN = Path(sys.executable).parent
HOST = "localhost"
LIMIT_S = 60

pytestmark = pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto is not installed")


def run(line: str, folder: Path, answers: str = "") -> str:
    name, *arguments = shlex.split(line.replace("gw-1.local", HOST))
    program = BIN / name if name.startswith("fogline") else name
    done = subprocess.run(
        [program, *arguments], cwd=folder, input=answers, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done.stdout


def test_devices_log_in_as_the_page_has_it(folder):
    (folder / "cloud.toml").write_text('tenant = "acme"\n')
    run("fogline ca init", folder)
    for line in TYPED:
        run(line, folder, "secret\nsecret\n")
    run(f"fogline ca issue gateway gw-1 --host {HOST} --out own", folder)  # as enrolment does it, which needs a bridge
    (folder / CERTIFICATE).write_text((folder / "own" / "gw-1.pem").read_text() + (folder / "own" / "gw-1.key").read_text())
    (folder / CERTIFICATE).chmod(0o600)
    run("fogline-edge init --tenant acme --gateway gw-1 --bridge 127.0.0.1:1", folder)
    settings = (folder / FILE).read_text()
    own = SETTINGS.replace("[mqtt.tls]", "[mqtt.tls]\nport = 0")
    (folder / FILE).write_text(settings.replace("[mqtt]", own[: own.index("[mqtt.tls]")], 1) + own[own.index("[mqtt.tls]") :])
    run("fogline-edge check", folder)
    gateway = ChildProcess("gateway", [BIN / "fogline-edge", "run", "--insecure-dev"], folder / "log", folder=folder)
    gateway.start()
    try:
        port = gateway.next_line()["mqtts"].rpartition(":")[2]
        for line in COMMANDS:
            run(line.replace("8883", port), folder)
    finally:
        gateway.stop()
    found = [each["body"] for each in read_events(folder / "data", "event", 10)]
    assert [re.findall(r"/devices/([\w-]+)", each)[0] for each in found if '"type":"telemetry"' in each] == ["lamp-1", "lamp-2"]
