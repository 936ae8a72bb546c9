"""docs/two-machines.md, command by command, on two machines: network namespaces with addresses of their own."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import deltalake
import pytest

from fogline_lab.supervisor import ChildProcess

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "two-machines.md").read_text("utf-8").partition("## Who may connect")[0]
BIN = Path(sys.executable).parent
MAX_COMMANDS = 10
LIMIT_S = 300.0

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


def lines() -> list[str]:
    """The commands that a reader types."""
    return [line for block in blocks("") for line in block.splitlines()]


class Machine:
    """The gateway's machine: a network namespace that reaches this one by a cable."""

    def __init__(self, number: int) -> None:
        self.name, self.cable = f"fogline-{number}", f"fog{number}"
        self.here, self.there = f"198.18.{number % 250}.1", f"198.18.{number % 250}.2"

    def __enter__(self) -> Self:
        ip("netns", "add", self.name)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", "up0", "netns", self.name)
        ip("addr", "add", f"{self.here}/24", "dev", self.cable)
        ip("link", "set", self.cable, "up")
        for command in (f"addr add {self.there}/24 dev up0", "link set up0 up", "link set lo up"):
            ip("-n", self.name, *command.split())
        return self

    def __exit__(self, *_: object) -> None:
        ip("netns", "del", self.name)

    def inside(self, *command: str | Path) -> list[str | Path]:
        return ["ip", "netns", "exec", self.name, *command]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=LIMIT_S)


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine(os.getpid() % 10_000) as made:
        yield made


def program(line: str, *before: str | Path) -> list[str | Path]:
    """A command as it is written there, with the program of this checkout."""
    name, *arguments = shlex.split(line)
    found: str | Path = BIN / name if name.startswith("fogline") else name
    return [*before, found, *arguments]


def run(command: list[str | Path], folder: Path, typed: str = "") -> str:
    done = subprocess.run(command, cwd=folder, input=typed, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_page_leads_from_nothing_to_a_reading_over_two_machines(folder, kafka, tenant, machine):
    typed = [line.replace("fog.example", machine.here) for line in lines()]
    assert len(typed) <= MAX_COMMANDS
    (cloud_part,) = (text.replace("fog.example", machine.here) for text in blocks("toml"))
    cloud, edge = folder / "cloud", folder / "gateway"
    cloud.mkdir()
    edge.mkdir()
    token = ""
    head = f'tenant = "{tenant}"\nshards = 1\n[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
    (cloud / "cloud.toml").write_text(f"{head}{cloud_part}\n[flow]\ntrigger_ms = 100\n")
    with ExitStack() as running:

        def start(name: str, line: str, place: Path, *before: str | Path) -> ChildProcess:
            child = ChildProcess(name, program(line, *before), folder / f"{name}.log", folder=place)
            running.callback(child.stop)
            child.start()
            return child

        for line in typed:
            match shlex.split(line)[:3]:
                case ["fogline", "bridge", "run"]:
                    start("bridge", line, cloud).next_line()
                case ["fogline", "gateway", "add"]:
                    token = run(program(line), cloud).strip()
                case ["fogline-edge", "enroll", "-"]:
                    run(program(line, *machine.inside()), edge, f"{token}\n")
                case ["fogline-edge", "run"]:
                    start("gateway", line, edge, *machine.inside()).next_line()
                case ["mosquitto_pub", *_]:
                    run(program(line, *machine.inside()), edge)
                case ["fogline", "flow", "run"]:
                    run([*program(line), "--once"], cloud)
                case _:
                    run(program(line), cloud)
    rows = deltalake.DeltaTable(str(cloud / "tables" / "readings")).to_pyarrow_table().to_pylist()
    assert [(row["device"], row["metric"], row["value"]) for row in rows] == [("lamp-1", "temperature", 21.5)]
