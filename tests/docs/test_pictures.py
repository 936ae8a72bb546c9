"""The pictures of docs/pictures are those of their sources, and the sources say what the code says."""

import ast
import re
import typing
from itertools import product

import pytest

from docs.command_parsers import COMMANDS
from docs.pictures import FOLDER, ROOT, is_current
from fogline.commands.command import CommandState, may_become
from fogline.events.identity import Dedup, Evidence
from fogline_cloud.flows.tables.schema import TABLES
from rules.source import PRODUCT, files

SOURCES = sorted(FOLDER.glob("*.dot"))
AT_GATEWAY = {CommandState.QUEUED, CommandState.SENDING}
OVER = {each for each in CommandState if each.terminal}


def source(name: str) -> str:
    """Return a source without its comments."""
    return re.sub(r"^//.*\n", "", (FOLDER / f"{name}.dot").read_text("utf-8"), flags=re.MULTILINE)


def labels(name: str) -> list[str]:
    """Return the lines of all labels."""
    return [line for text in re.findall(r'label="([^"]*)"', source(name)) for line in text.split("\\n")]


def edges(name: str) -> set[tuple[str, str]]:
    """Return the edges. One that ends at the frame of a cluster stands for an edge to each of its nodes."""
    text = re.sub(r'"[^"]*"', '""', source(name))
    clusters = {
        cluster: set(re.findall(r"^\s*([A-Z_]+)\b", body, re.MULTILINE))
        for cluster, body in re.findall(r"subgraph (\w+) \{(.*?)\n\s*\}", text, re.DOTALL)
    }
    found = set()
    for start, end, attributes in re.findall(r"^\s*(\w+|\{[\w ]+\}) -> (\w+|\{[\w ]+\})( \[.*\])?$", text, re.MULTILINE):
        frame = re.search(r"lhead=(\w+)", attributes)
        ends = clusters[frame[1]] if frame else set(re.findall(r"\w+", end))
        found |= set(product(re.findall(r"\w+", start), ends))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_picture_is_that_of_its_source_and_a_page_shows_it(path):
    assert is_current(path), f"{path.with_suffix('.svg')} is not that of its source: run `make docs`"
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert any(f"pictures/{path.stem}.svg)" in page.read_text("utf-8") for page in pages)


@pytest.mark.parametrize(
    ("name", "states"), [("command-gateway", AT_GATEWAY), ("command-bridge", {*CommandState} - AT_GATEWAY - OVER)]
)
def test_the_states_of_a_command_and_their_changes_are_those_of_the_code(name, states):
    every = states | OVER
    allowed = {(now.value, then.value) for now, then in product(every, every) if may_become(now, then)}
    assert edges(name) == allowed


def test_the_tables_have_the_columns_of_the_schema_and_the_keys_of_the_guide():
    found = dict(re.findall(r"^    (\w+) \[label=<(.*?)>\]$", source("tables"), re.MULTILINE | re.DOTALL))
    assert found.keys() == TABLES.keys()
    guide = (ROOT / "docs" / "tables.md").read_text("utf-8")
    for table, text in found.items():
        known = {(each.name, each.type) for each in TABLES[table]}
        cells = re.findall(r"(?:<b>)?(\w+)(?:</b>)? ([A-Z]+)<br", text)
        assert set(cells) <= known
        assert len(cells) > 5
        keys = re.findall(r"<b>(\w+)</b> [A-Z]", text)
        (row,) = re.findall(rf"^\| `{table}` \|.*\| (.*) \|$", guide, re.MULTILINE)
        assert keys == re.findall(r"\w+", row)


def test_the_tiers_of_identity_are_those_of_the_code():
    tiers = {each.__struct_config__.tag: each.__name__ for each in typing.get_args(Evidence)}
    drawn = {int(number): name for number, name in re.findall(r'label="(\d)  (\w+)', source("identity"))}
    assert drawn == {**tiers, max(tiers) + 1: "no"}
    assert set(re.findall(r'label="dedup (\w+)', source("identity"))) == {each.value for each in Dedup}


def test_the_line_has_every_thread_of_the_code_and_no_other():
    threads = re.findall(r"threads? ([\w-]+(?:, [\w-]+)*)", "\n".join(labels("line")))
    drawn = {name.removesuffix("-N") for each in threads for name in each.split(", ")}
    assert drawn == set(named_threads())


def named_threads() -> set[str]:
    """Return the names of the threads that the product starts, and the classes of those that read Kafka."""
    found = set()
    for file in files(*PRODUCT):
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef) and any("ConsumerThread" in ast.unparse(base) for base in node.bases):
                found.add(node.name)
            if isinstance(node, ast.Call) and re.search(r"Thread$|ThreadPoolExecutor$", ast.unparse(node.func)):
                name = next((each.value for each in node.keywords if each.arg in {"name", "thread_name_prefix"}), None)
                if isinstance(name, ast.JoinedStr):
                    name = name.values[0]
                if isinstance(name, ast.Constant):
                    found.add(name.value.removesuffix("-"))
    return found


def test_the_processes_of_the_line_are_commands():
    drawn = set(re.findall(r"fogline(?:-edge)?(?: [a-z]+)+", "\n".join(labels("line"))))
    assert {"fogline-edge run", "fogline bridge run", "fogline api run", "fogline flow run"} <= drawn
    assert drawn <= {each.prog for each in COMMANDS}
