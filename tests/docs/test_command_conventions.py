"""Every command of `fogline` and `fogline-edge` keeps the conventions of docs/reference/command-line.md."""

import argparse
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.command_parsers import COMMANDS, PARSERS, options
from fogline_cloud.cli import main as cloud
from rules.source import files

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
SERVES = {"fogline bridge run", "fogline api run", "fogline flow run", "fogline-edge run"}
"""They print facts as JSON lines, and go on until they are stopped."""
LISTS = {"fogline audit show", "fogline-edge outbox"}
"""Lists that have another name."""
WATCHED = {"fogline topics check"}
NO_JSON = {
    *SERVES - {"fogline flow run"},
    "fogline command send",  # --json is the command's arguments; --output json
    "fogline completion",  # prints a script
    "fogline-edge completion",
    "fogline command key",  # prints JSON in any case
    "fogline parser new",  # writes files
    "fogline pipeline init",
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.prog)
def test_the_help_of_a_command_has_an_example_of_it_and_the_exit_statuses(command):
    text = command.format_help()
    program = command.prog.split()[0]
    assert f"{program} " in (command.epilog or ""), "no example"
    assert "exit status" in text
    assert "130" in text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.prog)
def test_a_command_prints_json_if_it_is_asked(command):
    assert ("--json" in options(command)) or command.prog in NO_JSON


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.prog)
def test_the_same_thing_has_the_same_name_everywhere(command):
    assert "--last" not in options(command), "--limit"
    assert "--output" not in options(command) or command.prog == "fogline command send", "--json"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.prog)
def test_a_list_and_a_status_print_through_one_function_and_can_be_limited_and_watched(command):
    """`show_rows` prints the header, and a sentence if there is nothing."""
    name = command.prog.split()[-1]
    assert ("--watch" in options(command)) == (name in {"list", "status"} or command.prog in WATCHED)
    if name != "list" and command.prog not in LISTS:
        return
    assert "--limit" in options(command)
    assert "show_rows(" in inspect.getsource(inspect.getmodule(command.get_default("run")))


@pytest.mark.parametrize("command", [each for each in COMMANDS if "--limit" in options(each)], ids=lambda each: each.prog)
def test_a_limit_is_a_number_from_1(command):
    (limit,) = (each for each in command._actions if "--limit" in each.option_strings)
    for wrong in ("0", "-1", "all", "1.5"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number from 1"):
            limit.type(wrong)
    assert limit.type("2") == 2


def test_command_lines_have_one_way_to_print_a_time():
    found = [
        f"{file.path}: {line.strip()}"
        for file in files("cloud", "edge", "shared")
        if file.path.startswith(("cloud/fogline_cloud/cli", "edge/fogline_edge/cli.py", "shared/fogline/process"))
        for line in file.text.splitlines()
        if re.search(r"(?<!from)isoformat\(|strftime\(|:%Y-%m-%d %H", line)
    ]
    assert not found, "call fogline.process.console.listing.utc:\n" + "\n".join(found)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda each: each.prog)
def test_a_program_tells_its_version(parser, capsys):
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"{parser.prog} ")


def test_the_help_of_the_whole_program_names_every_command_as_the_command_itself_does():
    whole, short = cloud.build_parser().format_help(), cloud.build_parser(()).format_help()
    assert whole == short


def test_the_help_of_the_whole_program_imports_no_command():
    script = "import sys\nfrom fogline_cloud.cli.main import main\n"
    script += "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
    script += (
        "print([each for each in sys.modules if each.partition('.')[0] in ('pyarrow', 'confluent_kafka', 'cryptography')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_misspelt_command_is_answered_with_the_one_that_is_meant(capsys):
    with pytest.raises(SystemExit) as ended:
        cloud.main(["leger", "verify"])
    assert ended.value.code == 2
    assert "did you mean ledger?" in capsys.readouterr().err


def test_every_convention_has_a_row_in_the_page():
    text = PAGE.read_text("utf-8")
    for each in ("`--json`", "`--version`", "`--limit`", "`--watch`", "`--config`", "| 130 |", "exit status"):
        assert each in text
