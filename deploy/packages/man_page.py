"""Prints the manual page of a program, in groff's macros (man(7)), from its parsers. `debian/rules` calls it.

    man_page.py MODULE DISTRIBUTION     MODULE: the one that has `build_parser`

The date is that of SOURCE_DATE_EPOCH, so that the same sources make the same bytes.
"""
# ruff: noqa: SLF001 - argparse has no public way to what its parsers consist of

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version

EXIT_STATUSES = {
    "0": "Done. A process that serves also ends with 0 after Ctrl-C or SIGTERM.",
    "1": "The answer is no: a command that did not succeed, a ledger that does not balance, a failed check.",
    "2": "The input or the settings are wrong, or the bridge refuses this user. A line on stderr says what helps.",
    "130": "Ctrl-C came before the answer.",
}


def page(parser: argparse.ArgumentParser, release: str, day: str) -> str:
    """Return the page of a program with all of its commands. `day`: as 2026-11-27."""
    title = re.sub(r"^`[\w-]+`: ", "", parser.description or "").rstrip(".")
    lines = [
        f'.TH {_text(parser.prog.upper())} 1 "{day}" "Fogline {release}" "Fogline"',
        ".SH NAME",
        f"{_text(parser.prog)} \\- {_text(title)}",
        ".SH SYNOPSIS",
        f".B {_text(parser.prog)}",
        "COMMAND [OPTION...]",
        ".SH COMMANDS",
    ]
    for command, about in _commands(parser):
        lines += [f'.SS "{_text(command.prog)}"', f"{_text(about[:1].upper() + about[1:])}.", ".PP"]
        lines += [_text(" ".join(command.format_usage().removeprefix("usage: ").split()))]
        lines += _options(command)
    lines += [".SH EXAMPLES", ".EX"]
    lines += [_text(line) for text in _epilogs(parser) for line in (*text.strip().splitlines(), "")]
    lines += [".EE", ".SH EXIT STATUS"]
    for status, meaning in EXIT_STATUSES.items():
        lines += [".TP", f".B {status}", _text(meaning)]
    return "".join(f"{line}\n" for line in lines)


def _groups(parser: argparse.ArgumentParser) -> "Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]":
    return (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield the parser of each command that does something, with the sentence of its group's help about it."""
    for group in _groups(parser):
        about = {each.dest: each.help or "" for each in group._choices_actions}
        for name, command in group.choices.items():
            if any(_groups(command)):
                yield from _commands(command)
            else:
                yield command, about.get(name, "")


def _options(command: argparse.ArgumentParser) -> Iterator[str]:
    formatter = command._get_formatter()
    for each in command._actions:
        if not isinstance(each, argparse._HelpAction):
            yield from (".TP", f".B {_text(formatter._format_action_invocation(each))}", _text(formatter._expand_help(each)))


def _epilogs(parser: argparse.ArgumentParser) -> list[str]:
    """Return the examples of all commands, each once: the commands of a group share theirs."""
    epilogs = [parser.epilog, *(command.epilog for command, _ in _commands(parser))]
    return list(dict.fromkeys(each for each in epilogs if each))


def _text(words: str) -> str:
    """Return words in which groff sees no command: it would take `-` for a hyphen, and a dot that begins a line for a macro."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


if __name__ == "__main__":
    moment = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    day = time.strftime("%Y-%m-%d", time.gmtime(moment))
    sys.stdout.write(page(import_module(sys.argv[1]).build_parser(), version(sys.argv[2]), day))
