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
    for command, about in commands(parser):
        lines += [f'.SS "{_text(command.prog)}"', _text(about), ".PP", _text(usage(command))]
        for form, meaning in options(command):
            lines += [".TP", f".B {_text(form)}", _text(meaning)]
    lines += [".SH EXAMPLES", ".EX"]
    lines += [_text(line) for text in examples(parser) for line in (*text.strip().splitlines(), "")]
    lines += [".EE", ".SH EXIT STATUS"]
    for status, meaning in EXIT_STATUSES.items():
        lines += [".TP", f".B {status}", _text(meaning)]
    return "".join(f"{line}\n" for line in lines)


def _groups(parser: argparse.ArgumentParser) -> "Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]":
    return (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield the parser of each command that does something, with the help of its group about it, as a sentence."""
    for group in _groups(parser):
        about = {each.dest: each.help or "" for each in group._choices_actions}
        for name, command in group.choices.items():
            if any(_groups(command)):
                yield from commands(command)
            else:
                yield command, f"{about[name][:1].upper()}{about[name][1:]}."


def usage(command: argparse.ArgumentParser) -> str:
    """Return the usage of a command on one line."""
    return " ".join(command.format_usage().removeprefix("usage: ").split())


def options(command: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield the form and the meaning of each argument and option of a command."""
    formatter = command._get_formatter()
    for each in command._actions:
        if not isinstance(each, argparse._HelpAction):
            yield formatter._format_action_invocation(each), formatter._expand_help(each)


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """Return the examples of all commands, each once: the commands of a group share theirs."""
    epilogs = [parser.epilog, *(command.epilog for command, _ in commands(parser))]
    return list(dict.fromkeys(each for each in epilogs if each))


def _text(words: str) -> str:
    """Return words in which groff sees no command: it would take `-` for a hyphen, and a dot that begins a line for a macro."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


if __name__ == "__main__":
    moment = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    day = time.strftime("%Y-%m-%d", time.gmtime(moment))
    sys.stdout.write(page(import_module(sys.argv[1]).build_parser(), version(sys.argv[2]), day))
