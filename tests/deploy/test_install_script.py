"""install.sh checks the machine first, shows the key's fingerprint, and leaves nothing behind if a step fails.

The programs that it calls are stand-ins, and its paths lie in a folder.
"""

import hashlib
import os
import pty
import subprocess
from pathlib import Path

import pytest

from rules.source import ROOT

SCRIPT = ROOT / "deploy" / "packages" / "install.sh"
KEY = b"the repository's key"
FINGERPRINT = hashlib.sha256(KEY).hexdigest()
LIMIT_S = 60


class Machine:
    """A machine without curl. `calls`: what was run, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "bin"
        for each in ("bin", "etc", "usr/share/keyrings", "etc/apt/sources.list.d", "repository"):
            (folder / each).mkdir(parents=True)
        for tool in ("sh", "cp", "rm", "cut", "cat", "cmp", "install", "mktemp", "sha256sum", "touch", "chmod"):
            found = next(Path(each, tool) for each in ("/bin", "/usr/bin") if Path(each, tool).exists())
            (self._bin / tool).symlink_to(found)
        self.is_a("debian", "12", "amd64")
        self.program("id", "echo 0")
        self.program("uname", "echo x86_64")
        self.program("apt-get", f'case "$*" in *curl*) cp {self._bin}/curl.new {self._bin}/curl ;; esac')
        curl = 'while [ "$1" != --output ]; do shift; done; printf "%s" "the repository\'s key" >"$2"'
        self.program("curl", curl)
        (self._bin / "curl").rename(self._bin / "curl.new")
        (folder / "repository" / "fogline.gpg").write_bytes(KEY)
        text = SCRIPT.read_text("utf-8")
        for path in ("/etc/os-release", "/usr/share/keyrings", "/etc/apt/sources.list.d"):
            assert path in text
            text = text.replace(path, f"{folder}{path}")
        self._script = folder / "install.sh"
        self._script.write_text(text, "utf-8")

    def is_a(self, system: str, release: str, architecture: str) -> None:
        (self.folder / "etc" / "os-release").write_text(f'ID={system}\nVERSION_ID="{release}"\n', "utf-8")
        self.program("dpkg", f"echo {architecture}")

    def program(self, name: str, body: str) -> None:
        path = self._bin / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.folder}/calls\n{body}\n', "utf-8")
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        found = path.read_text("utf-8").splitlines() if path.exists() else []
        return [each for each in found if each.split()[0] in {"apt-get", "curl"}]

    @property
    def left(self) -> list[str]:
        folders = (self.folder / "usr/share/keyrings", self.folder / "etc/apt/sources.list.d")
        return [each.name for folder in folders for each in folder.iterdir()]

    def install(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(self._script), *arguments]
        environment = {"PATH": str(self._bin), "TMPDIR": str(self.folder)}
        pipe = subprocess.PIPE
        return subprocess.run(
            command, stdin=stdin, stdout=pipe, stderr=pipe, text=True, timeout=LIMIT_S, env=environment, check=False
        )


@pytest.fixture
def machine(folder):
    return Machine(folder / "machine")


URL = "https://packages.example/fogline"


def test_a_machine_without_curl_gets_it_after_the_lists_and_the_key_is_shown_before_it_is_trusted(machine):
    done = machine.install(URL)
    assert (done.returncode, done.stderr) == (0, "")
    assert FINGERPRINT in done.stdout
    assert [each.split(" --")[0] for each in machine.calls] == [
        "apt-get update",
        "apt-get install -y curl ca-certificates",
        "curl",
        "apt-get update",
        "apt-get install -y fogline-edge",
    ]
    assert (machine.folder / "usr/share/keyrings/fogline.gpg").read_bytes() == KEY
    assert URL in (machine.folder / "etc/apt/sources.list.d/fogline.list").read_text("utf-8")
    assert [each.name for each in machine.folder.glob("tmp.*")] == []


@pytest.mark.parametrize(
    ("system", "package", "says"),
    [
        (("ubuntu", "24.04", "amd64"), "fogline-edge", "this is ubuntu 24.04: the packages are for Debian 12"),
        (("debian", "13", "amd64"), "fogline-edge", "this is debian 13: the packages are for Debian 12"),
        (("debian", "12", "riscv64"), "fogline-edge", "this is riscv64: fogline-edge is there for amd64 arm64 armhf"),
        (("raspbian", "12", "armhf"), "fogline-cloud", "this is armhf: fogline-cloud is there for amd64 arm64"),
        (("debian", "12", "amd64"), "fogline-egde", "fogline-egde: expected fogline-edge, fogline-cloud or fogline-flow"),
    ],
    ids=str,
)
def test_another_system_or_architecture_is_refused_before_anything_is_done(machine, system, package, says):
    machine.is_a(*system)
    done = machine.install(URL, package)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert says in done.stderr
    assert (machine.left, machine.calls) == ([], [])


def test_an_armv6_pi_is_refused(machine):
    machine.is_a("raspbian", "12", "armhf")
    machine.program("uname", "echo armv6l")
    done = machine.install(URL)
    assert (done.returncode, "a Pi 1 or Zero" in done.stderr, machine.calls) == (2, True, [])


@pytest.mark.parametrize("step", ["update", "install -y fogline-edge"])
def test_a_step_that_fails_leaves_neither_key_nor_address(machine, step):
    machine.program("apt-get", f'case "$*" in "{step}") exit 100 ;; esac')
    done = machine.install(f"file:{machine.folder}/repository")
    assert (done.returncode, machine.left) == (100, [])
    assert "as before" in done.stderr


def test_a_step_that_fails_leaves_the_former_key_and_address(machine):
    key, address = machine.folder / "usr/share/keyrings/fogline.gpg", machine.folder / "etc/apt/sources.list.d/fogline.list"
    key.write_bytes(b"former")
    address.write_text("deb former", "utf-8")
    machine.program("apt-get", "exit 100")
    assert machine.install(f"file:{machine.folder}/repository").returncode == 100
    assert (key.read_bytes(), address.read_text("utf-8")) == (b"former", "deb former")


def test_a_key_with_another_fingerprint_than_the_expected_one_is_refused(machine):
    repository = f"file:{machine.folder}/repository"
    done = machine.install(repository, "fogline-edge", "0" * 64)
    assert (done.returncode, machine.left, machine.calls) == (2, [], [])
    assert "the key has another fingerprint than 0000" in done.stderr
    assert machine.install(repository, "fogline-edge", FINGERPRINT).returncode == 0


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 2), ("", 2)])
def test_on_a_terminal_the_key_is_trusted_by_the_user(machine, answer, status):
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = machine.install(f"file:{machine.folder}/repository", stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, bool(machine.left)) == (status, status == 0)
    assert FINGERPRINT in done.stdout
