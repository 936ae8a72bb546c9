"""docs/install-cloud.md, the trial on one machine, command by command, with free ports instead of the usual ones."""

import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import deltalake
import pytest

from fogline_lab.supervisor import ChildProcess
from rules.source import ROOT

SECTION = (ROOT / "docs" / "install-cloud.md").read_text("utf-8").partition("## Try it")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
TYPED = [line for language, text in BLOCKS if not language for line in text.splitlines()]
(SETTINGS,) = (text for language, text in BLOCKS if language == "toml")
BIN = Path(sys.executable).parent
LIMIT_S = 300


def program(line: str) -> list[str | Path]:
    """A command as it is written there, with the program of this checkout."""
    name, *arguments = shlex.split(line, comments=True)
    return [BIN / name if name.startswith(("fogline", "python")) else name, *arguments]


def run(command: list[str | Path], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_trial_leads_from_nothing_to_a_ledger_that_balances(folder):
    assert len(TYPED) <= 14
    printed = {"5672": "", "1883": ""}
    with ExitStack() as running:

        def start(name: str, line: str) -> dict[str, str]:
            child = ChildProcess(name, program(line), folder / f"{name}.log", folder=folder)
            running.callback(child.stop)
            child.start()
            return child.next_line()

        for typed in TYPED:
            line = typed.replace("127.0.0.1:5672", printed["5672"])
            match shlex.split(line, comments=True):
                case ["make" | "export" | "mkdir", *_]:
                    pass
                case ["python", *_]:
                    bootstrap = start("kafka", line.replace("--port 9092", ""))["bootstrap"]
                    text = f'{SETTINGS.replace("127.0.0.1:9092", bootstrap)}\n[bridge]\nlisten = "127.0.0.1:0"\n'
                    (folder / "cloud.toml").write_text(text)
                case ["fogline", "bridge", "run", *_]:
                    printed["5672"] = start("bridge", line)["amqp"]
                case ["fogline-edge", "init", *_]:
                    run(program(line), folder)
                    settings = (folder / "edge.toml").read_text()
                    (folder / "edge.toml").write_text(settings.replace("[mqtt]  ", "[mqtt]\nport = 0\n#", 1))
                case ["fogline-edge", "run", *_]:
                    printed["1883"] = start("gateway", line)["mqtt"].rpartition(":")[2]
                case ["mosquitto_pub", *_]:
                    run([*program(line), "-p", printed["1883"]], folder)
                case _:
                    last = run(program(line), folder)
    assert "the ledger balances" in last
    rows = deltalake.DeltaTable(str(folder / "tables" / "readings")).to_pyarrow_table().to_pylist()
    assert [(row["device"], row["metric"], row["value"]) for row in rows] == [("lamp-1", "temperature", 21.5)]
