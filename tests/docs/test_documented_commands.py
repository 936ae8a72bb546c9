"""The command lines of the documents are taken by the parsers, and the Kafka to try starts as it is written."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs.command_parsers import PARSERS
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import load
from rules.source import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LIMIT_S = 60
PROGRAMS = {each.prog: each for each in PARSERS}
PLACES = re.compile(r"^(sudo (-u fogline )?)?(\.venv/bin/)?(?=fogline)")
CLOUD = (ROOT / "docs" / "install-cloud.md").read_text("utf-8")


def blocks(page: Path) -> list[str]:
    """The fenced blocks of what a reader types, also those in the steps of a list."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in {"", "sh"}]


def command_lines() -> list[tuple[str, str]]:
    """Name of the page and line, without what comes before and after the command."""
    found = []
    for page in PAGES:
        for line in "".join(blocks(page)).replace("\\\n", " ").splitlines():
            command = PLACES.sub("", line.strip())
            if re.match(r"fogline(-edge)? [a-z]", command):
                found.append((page.name, re.split(r"\s\|\s|\s>\s", command)[0]))
    return found


@pytest.mark.parametrize(("page", "line"), command_lines(), ids=lambda each: each[:60])
def test_a_command_of_a_page_is_taken_by_its_program(page, line):
    program, *words = shlex.split(line, comments=True)
    assert callable(PROGRAMS[program].parse_args(words).run)


def test_the_pages_have_commands():
    assert len(command_lines()) > 60


@pytest.mark.parametrize(
    "block", re.findall(r"^```toml\n(.*?)^```$", CLOUD, re.MULTILINE | re.DOTALL), ids=["trial", "cluster"]
)
def test_the_settings_of_the_page_are_valid(block, folder):
    (folder / "cloud.toml").write_text(block, "utf-8")
    assert load(folder / "cloud.toml").tenant == "acme"


def test_the_kafka_to_try_starts_as_it_is_written(folder):
    """With a free port, which no other test has, and a folder of its own."""
    (line,) = re.findall(r"^python (-m fogline_lab\.kafka_broker .*)$", CLOUD, re.MULTILINE)
    words = shlex.split(line)
    assert words[-4:] == ["--data", "kafka", "--port", "9092"]
    with subprocess.Popen([sys.executable, *words[:-2]], cwd=folder, stdout=subprocess.PIPE, text=True) as broker:
        try:
            bootstrap = json.loads(broker.stdout.readline())["bootstrap"]
            assert KafkaClients({"bootstrap.servers": bootstrap}).topics(LIMIT_S) == {}
        finally:
            broker.terminate()
        assert broker.wait(LIMIT_S) == 0
