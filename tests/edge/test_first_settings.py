"""`fogline-edge init`: three questions, or three options, make settings that run."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fogline import installed
from fogline.errors import Misconfigured
from fogline_edge.operate.first_settings import CA, CERTIFICATE, FILE, FirstSettings, next_steps, settings_text, write_first
from fogline_edge.operate.settings_check import check
from fogline_edge.settings import load

PROGRAM = [sys.executable, "-m", "fogline_edge.cli", "init"]
ANSWERS = ["--tenant", "acme", "--gateway", "gw-1", "--bridge", "127.0.0.1:5672"]
FIRST = FirstSettings("acme", "gw-1", "127.0.0.1:5672")
LIMIT_S = 60


def init(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, nobody = [*PROGRAM, *arguments], subprocess.DEVNULL
    return subprocess.run(command, cwd=folder, stdin=nobody, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_the_options_make_settings_that_run(folder):
    done = init(folder, *ANSWERS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "fogline-edge run --insecure-dev" in done.stdout
    settings = load(folder / FILE)
    check(settings)
    assert (settings.tenant, settings.gateway, settings.uplink.bridge) == FIRST
    assert settings.mqtt is not None


def test_a_bridge_elsewhere_gets_tls_and_the_next_commands_enrol(folder):
    done = init(folder, *ANSWERS[:-1], "fog.example:5671", "--out", "pi", "--json")
    said = json.loads(done.stdout)
    assert said["settings"] == f"pi/{FILE}"
    assert [each.split("   ")[0] for each in said["next"]] == [
        "fogline gateway add gw-1",
        "fogline-edge enroll - --bridge fog.example:5671 --out pi",
        f"fogline-edge run --config pi/{FILE}",
    ]
    uplink = load(folder / "pi" / FILE).uplink
    assert (uplink.renew, uplink.tls.certificate, uplink.tls.ca) == (
        True,
        str(folder / "pi" / CERTIFICATE),
        str(folder / "pi" / CA),
    )


def test_settings_are_never_overwritten(folder):
    (folder / FILE).write_text("mine")
    done = init(folder, *ANSWERS)
    assert (done.returncode, done.stdout) == (2, "")
    assert "edge.toml exists already" in done.stderr
    with pytest.raises(Misconfigured, match="exists already"):
        write_first(folder / FILE, FIRST, tls=False)
    assert (folder / FILE).read_text() == "mine"


def test_without_a_terminal_missing_answers_are_named(folder):
    done = init(folder, "--gateway", "gw-1")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("the standard input is no terminal: add --tenant, --bridge")
    assert not (folder / FILE).exists()


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--tenant", "a/b", "--tenant: 'a/b': expected 1 to 64"),
        ("--gateway", "", "--gateway: '': expected 1 to 64"),
        ("--bridge", "fog.example", "expected host:port"),
    ],
)
def test_a_wrong_option_is_named(folder, option, value, says):
    done = init(folder, *ANSWERS, option, value)
    assert (done.returncode, says in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr
    assert not (folder / FILE).exists()


def test_at_a_terminal_it_asks_again_until_the_answers_are_right(folder):
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"a b\nacme\ngw-7\nnonsense\n\n")
        done = subprocess.run(PROGRAM, cwd=folder, stdin=theirs, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    finally:
        for each in (ours, theirs):
            with contextlib.suppress(OSError):
                os.close(each)
    assert done.returncode == 0, done.stderr
    assert (done.stderr.count("Tenant"), done.stderr.count("Name of this"), done.stderr.count("Address of")) == (2, 1, 2)
    settings = load(folder / FILE)
    assert (settings.tenant, settings.gateway, settings.uplink.bridge) == ("acme", "gw-7", "127.0.0.1:5672")


@pytest.mark.parametrize("tls", [False, True])
def test_commented_settings_are_valid_too(folder, tls):
    """Each line that is a setting, without its mark."""
    text = re.sub(r"^# (?=\[|\w+ = )", "", settings_text(FIRST, tls=tls), flags=re.MULTILINE)
    (folder / FILE).write_text(text)
    settings = load(folder / FILE)
    assert settings.mqtt.tls.certificate == str(folder / CERTIFICATE)
    assert (settings.mqtt.plain_port, settings.coap.plain_port, settings.uplink.renew) == (1883, 5683, True)
    assert settings.ble.profiles == ["bthome"]


def test_beside_a_debian_package_the_next_commands_are_those_of_the_service(folder, monkeypatch):
    """A package makes /etc/fogline; what is here comes first all the same."""
    monkeypatch.setattr(installed, "SETTINGS", folder)
    assert installed.settings_folder(FILE) == folder
    assert 'data = "/var/lib/fogline"' in settings_text(FIRST, tls=False, data=str(installed.STATE))
    assert next_steps(FIRST, Path("/etc/fogline"))[-1] == "sudo systemctl enable --now fogline-edge"
    remote = next_steps(FirstSettings("acme", "gw-1", "fog.example:5671"), Path("/etc/fogline"))
    assert "sudo -u fogline fogline-edge enroll - --bridge fog.example:5671" in remote
    monkeypatch.chdir(folder)
    (folder / FILE).touch()
    assert installed.settings_folder(FILE) == Path()
