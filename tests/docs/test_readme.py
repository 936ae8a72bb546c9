"""README.md stays short, its links lead somewhere, and each of its commands is run as it is written there."""

import importlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from fogline_cloud.cli.main import build_parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
ONE_PAGE = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"]
MAX_WORDS = 700
LIMIT_S = 400.0
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def commands() -> list[str]:
    """The lines of the fenced blocks without a language: what a reader types."""
    blocks = re.findall(r"^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and line[0] in "m." and "─" not in line]


def run(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def until(command: str, expected: str) -> None:
    """Run a command again until it prints `expected`: the flow takes some seconds."""
    deadline = time.monotonic() + LIMIT_S
    while expected not in (found := run(command)).stdout:
        assert time.monotonic() < deadline, f"{command!r} did not print {expected!r}:\n{found.stdout}{found.stderr}"


def free_port() -> int:
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        return tcp.getsockname()[1]


@pytest.mark.parametrize("name", ONE_PAGE)
def test_a_page_that_is_read_first_is_one_page(name):
    words = len((ROOT / name).read_text("utf-8").split())
    assert words <= MAX_WORDS, f"{name} has {words} words"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing, f"{page.relative_to(ROOT)} links to {missing}"


def test_the_readme_has_these_commands_and_no_other():
    assert [shlex.split(each)[0] for each in commands()] == [
        "make",
        "make",
        "mosquitto_pub",
        ".venv/bin/fogline",
        ".venv/bin/python",
    ]


def test_the_programs_of_the_readme_accept_its_commands(monkeypatch):
    """Each command is parsed by the program that it names; the demo and `up` run in `make chaos`."""
    demo, up, publish, verify, query = commands()
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    demo_parser = importlib.import_module("demo.cli").build_parser()
    (arguments,) = (shlex.split(word.removeprefix("ARGS=")) for word in shlex.split(demo) if word.startswith("ARGS="))
    assert demo_parser.parse_args(arguments).events == 30_000
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in (shlex.split(demo)[1], shlex.split(up)[1]):
        assert re.search(rf"^{target}: setup\n\t@\$\(PYTHON\) deploy/demo ", makefile, re.MULTILINE), target
    assert shutil.which(shlex.split(publish)[0])
    program, *words = shlex.split(verify)
    assert (ROOT / program).exists()
    assert build_parser([words[0]]).parse_args(words).config == Path(".fogline/demo/cloud.toml")
    interpreter, option, code = shlex.split(query)
    assert ((ROOT / interpreter).exists(), option) == (True, "-c")
    assert compile(code, "README.md", "exec")


def test_readme_quotes_the_output_of_demo_and_ledger():
    for quoted, printed, source in (
        ("lost 0, duplicate 0", "lost {len(self.lost)}, duplicate {len(self.duplicate)}", "deploy/demo/judgement.py"),
        ("the ledger balances", "the ledger balances", "cloud/fogline_cloud/cli/tables/ledger.py"),
    ):
        assert f"`{quoted}`" in README
        assert f'"{printed}' in (ROOT / source).read_text("utf-8")


@pytest.mark.slow
def test_the_demo_of_the_readme_loses_and_doubles_nothing():
    """With 500 events and 4 commands instead of 30,000 and 300, and without kills, which take minutes."""
    command = commands()[0].replace("--events 30000", "--events 500 --commands 4 --no-kills")
    assert command != commands()[0]
    done = run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, duplicate 0" in done.stdout


@pytest.mark.slow
def test_an_event_published_by_hand_is_in_the_table():
    """With other ports than the usual ones, which another program may have."""
    _, up, publish, verify, query = commands()
    mqtt = free_port()
    ports = " ".join(
        f"--{name}-port {port}"
        for name, port in (
            ("mqtt", mqtt),
            ("coap", free_port()),
            ("amqp", free_port()),
            ("kafka", free_port()),
            ("http", free_port()),
            ("devices-http", free_port()),
        )
    )
    line = subprocess.Popen(
        shlex.split(f'{up} ARGS="{ports}"'), cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert line.stderr is not None
    try:
        printed = []
        for text in line.stderr:  # ends when the line ends by itself
            printed.append(text)
            if "Ctrl-C stops everything" in text:
                break
        assert line.poll() is None, "".join(printed)
        for each in printed:  # what a device may send
            if each.split()[0] in ("mosquitto_pub", "coap-client-notls", "curl"):
                sent = run(each.replace("curl", "curl --fail").replace("picture.jpg", "README.md"))
                assert sent.returncode == 0, each + sent.stderr
        published = run(publish.replace("-p 1883", f"-p {mqtt}"))
        assert published.returncode == 0, published.stderr
        until(verify, "the ledger balances")
        until(query, "lamp-1")
        assert re.search(r"lamp-1\W+temperature\W+21\.5", run(query).stdout)
    finally:
        os.killpg(line.pid, signal.SIGINT)
        line.communicate(timeout=LIMIT_S)
    assert line.returncode in (0, -signal.SIGINT, 2)  # `make` itself ends by the signal
