"""A booted Debian (systemd-nspawn), without a network, to install packages in. Needs root."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PACKAGES = Path(os.environ.get("FOGLINE_PACKAGES", ""))
"""The folder in which `make packages` has built them."""
BOOT_S = 90
COMMAND_S = 600
POLL_S = 0.2  # neither a boot nor a service tells a process outside when it is done


class Container:
    """A container. `root`: its file system. `log`: file of its console."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root = root
        self._log = log
        self._nspawn: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Boot, and wait for the end of the boot."""
        options = ["--register=no", "--keep-unit", "--private-network", "--console=pipe"]
        with self._log.open("ab") as file:
            self._nspawn = subprocess.Popen(
                ["systemd-nspawn", "-q", *options, "-D", str(self.root), "-b"],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        until(self._booted, BOOT_S, f"the container did not boot (see {self._log})")

    def kill(self) -> None:
        """End everything in the container at once, as a power cut does to processes."""
        assert self._nspawn is not None
        if (leader := self.leader) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)
        self._nspawn.kill()
        self._nspawn.wait()

    @property
    def leader(self) -> int | None:
        """The process id of systemd in the container, or None while it boots again."""
        assert self._nspawn is not None
        found = subprocess.run(
            ["pgrep", "-P", str(self._nspawn.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        return int(found[0]) if found else None

    def run(self, command: str, *, text: str = "", status: int | None = 0) -> str:
        """Run a shell command in the container. Returns its output, both streams. `status`: the wanted one, or None for any."""
        leader = self.leader
        assert leader is not None, "the container does not run"
        done = subprocess.run(
            ["nsenter", "-t", str(leader), "-a", "sh", "-c", command],
            input=text, capture_output=True, text=True, timeout=COMMAND_S, check=False,
        )  # fmt: skip
        printed = done.stdout + done.stderr
        assert status is None or done.returncode == status, f"{command}: exit status {done.returncode}: {printed}"
        return printed

    def python(self, script: str, *arguments: str) -> str:
        """Run a Python script in the environment of the package."""
        return self.run(f"/usr/lib/fogline/edge/bin/python3 - {' '.join(arguments)}", text=script)

    def status(self) -> dict[str, object]:
        """Return the gateway's status."""
        found: dict[str, object] = json.loads(self.run("runuser -u fogline -- fogline-edge status --json"))
        return found

    def _booted(self) -> bool:
        return self.leader is not None and self.run("systemctl is-system-running", status=None).strip() in {
            "running",
            "degraded",
        }

    def reboot(self) -> None:
        """Shut down in order, and boot again."""
        assert self._nspawn is not None
        self.run("systemctl poweroff", status=None)
        self._nspawn.wait(BOOT_S)
        self.boot()


def until(condition: Callable[[], bool], limit_s: float, what: str) -> float:
    """Wait for a condition. Returns the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, f"{what} in {limit_s:.0f} s"
        time.sleep(POLL_S)
    return time.monotonic() - began


@contextlib.contextmanager
def booted(image: Path, folder: Path) -> Iterator[Container]:
    """Boot a copy of an image."""
    root = folder / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", str(image), str(root)], check=True)
    name = (root / "etc" / "hostname").read_text().strip()
    (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")  # as Debian's installer does
    container = Container(root, folder / "boot.log")
    container.boot()
    try:
        yield container
    finally:
        container.kill()
        shutil.rmtree(root, ignore_errors=True)
