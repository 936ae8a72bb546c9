"""Completion in shells and manual pages know every command, option and choice of the parsers."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from docs.command_parsers import PARSERS, leaves, options
from fogline.process.console.completion import SHELLS, completion

SCRIPT = Path(__file__).parents[2] / "deploy" / "packages" / "man_page.py"
page = runpy.run_path(str(SCRIPT))["page"]
LIMIT_S = 60
PROGRAMS = {"fogline": ("fogline_cloud.cli.main", "fogline-cloud"), "fogline-edge": ("fogline_edge.cli", "fogline-edge")}
by_program = pytest.mark.parametrize("parser", PARSERS, ids=lambda each: each.prog)


def run(*command: str, text: str = "", **more: str) -> str:
    """Run a program, which must end with 0 and without a word on stderr. Returns what it prints."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", **more}
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@by_program
def test_a_completion_has_every_command_and_option(parser, shell):
    script = completion(shell, parser)
    for command in leaves(parser):
        for word in command.prog.split()[1:]:
            assert re.search(rf"\b{word}\b", script), f"{shell}: {command.prog}"
        for option in options(command) - {"-h"}:
            assert (option if shell != "fish" else f"-l {option[2:]}") in script, f"{shell}: {command.prog} {option}"


@by_program
def test_a_program_prints_its_completion(parser):
    for shell in SHELLS:
        assert (
            run(sys.executable, "-m", PROGRAMS[parser.prog][0], "completion", shell).strip()
            == completion(shell, parser).strip()
        )


@by_program
def test_bash_completes_commands_options_and_choices(parser):
    """In bash itself: the words that it offers after each command and `-` are the options of the command."""
    asked = {each.prog: [*each.prog.split(), "-"] for each in leaves(parser)}
    asked["commands"] = [parser.prog, ""]
    if parser.prog == "fogline":
        asked["choices"] = ["fogline", "ca", "issue", ""]
        asked["values"] = ["fogline", "command", "send", "--output", ""]
    script = completion("bash", parser) + f"\nread -ra complete < <(complete -p {parser.prog})\n"
    for line in asked.values():
        quoted = " ".join(f"'{each}'" for each in line)
        script += f"COMP_WORDS=({quoted}); COMP_CWORD={len(line) - 1}; COMPREPLY=()\n"
        script += '"${complete[-2]}"; echo "${COMPREPLY[*]}"\n'
    offered = dict(zip(asked, (set(each.split()) for each in run("bash", text=script).splitlines()), strict=True))
    for command in leaves(parser):
        assert options(command) <= offered[command.prog], command.prog
    assert {command.prog.split()[1] for command in leaves(parser)} <= offered["commands"]
    if parser.prog == "fogline":
        assert offered["choices"] >= {"gateway", "bridge", "operator", "device"}
        assert offered["values"] >= {"text", "json"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
@by_program
def test_zsh_reads_its_completion(parser, tmp_path):
    (tmp_path / "completion").write_text(completion("zsh", parser), "utf-8")
    run("zsh", "-n", str(tmp_path / "completion"))


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@by_program
def test_fish_completes_the_options_of_a_command(parser, tmp_path):
    (tmp_path / "completion").write_text(completion("fish", parser), "utf-8")
    for command in leaves(parser):
        script = f"source {tmp_path}/completion; complete -C '{command.prog} --'"
        offered = {each.partition("\t")[0] for each in run("fish", "-c", script, HOME=str(tmp_path)).splitlines()}
        assert {each for each in options(command) if each.startswith("--")} <= offered, command.prog


@by_program
def test_a_manual_page_has_every_command_option_and_example(parser):
    text = page(parser, "0.1.0", "2026-11-27").replace("\\-", "-").replace("\\(dq", '"')
    for command in leaves(parser):
        section = text.partition(f'.SS "{command.prog}"\n')[2].partition("\n.SS ")[0]
        assert section, command.prog
        assert [each for each in options(command) - {"-h", "--help"} if each not in section] == [], command.prog
        assert (command.epilog or "").strip().splitlines()[-1] in text, command.prog


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
@by_program
def test_a_manual_page_is_rendered_without_a_warning(parser):
    shown = run("groff", "-man", "-Tascii", "-P-cbou", "-ww", "-rLL=500n", text=page(parser, "0.1.0", "2026-11-27"))
    for command in leaves(parser):
        assert re.search(rf"^ +{command.prog}$", shown, re.MULTILINE), command.prog
    assert re.search(r"^ +130 +Ctrl-C", shown, re.MULTILINE)


@by_program
def test_the_script_of_the_packages_writes_the_same_page_for_the_same_sources(parser):
    made = run(sys.executable, str(SCRIPT), *PROGRAMS[parser.prog], SOURCE_DATE_EPOCH="1793750400")
    assert made == page(parser, version(PROGRAMS[parser.prog][1]), "2026-11-04")
