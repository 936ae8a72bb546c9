"""Completion of a program's command line in shells, from its parsers."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fogline.process.console.terminal import show

SHELLS = ("bash", "zsh", "fish")


def add_completion(commands: Any, program: str, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the command `completion`. `whole`: returns the parser of all commands of the program."""
    about = "print what completes commands, options and files in a shell"
    example = f"example: {program} completion bash > ~/.local/share/bash-completion/completions/{program}"
    parser = commands.add_parser("completion", help=about, epilog=example)
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=lambda arguments: _run(arguments.shell, whole()))


def _run(shell: str, parser: argparse.ArgumentParser) -> int:
    for line in completion(shell, parser).splitlines():
        show(line)
    return 0


def completion(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the script by which a shell completes the command line of a program."""
    import shtab  # noqa: PLC0415 - no other command needs it

    for action in _actions(parser):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for each in action.choices.values():
                yield from _actions(each)
