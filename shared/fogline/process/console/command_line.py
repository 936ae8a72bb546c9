"""The exit statuses, one-line errors, Ctrl-C handling, logging and core limit of every command of Fogline.

Exit status 0: success; a process that serves until it is stopped also ends with 0 after Ctrl-C or SIGTERM. 1: the command
ran, and its result is negative (a ledger that does not balance, a failed check). 2: wrong usage or settings; one line on stderr
names the error and the remedy. 130: Ctrl-C ended the command before its result was known.
"""

import argparse
import json
import logging
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn

from fogline.errors import FoglineError
from fogline.process import service_manager
from fogline.process.console.journal import log_handler
from fogline.process.console.terminal import clear, show, tell

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as shells have it."""
WATCH_S = 2.0
"""Interval of `--watch`."""
Run = Callable[[argparse.Namespace], int]


EXIT_STATUSES = "exit status: 0 done, 1 the answer is no, 2 the input or the settings are wrong, 130 Ctrl-C"
"""For the help of a command without words of its own about it."""


class Parser(argparse.ArgumentParser):
    """A parser whose help tells the exit statuses, and which suggests the word that a misspelt one may stand for."""

    def format_help(self) -> str:
        """See `ArgumentParser`."""
        text = super().format_help()
        return text if "exit status" in text or self._has_commands else f"{text}\n{EXIT_STATUSES}\n"

    def error(self, message: str) -> NoReturn:
        """See `ArgumentParser`."""
        found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        meant = get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), 1) if found else []
        super().error(f"there is no {found[1]!r}: did you mean {meant[0]}?" if found and meant else message)

    @property
    def _has_commands(self) -> bool:
        return self._subparsers is not None


class ShowVersion(argparse.Action):
    """Option `--version`: print the version of a distribution, which is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, distribution: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help="print the version")
        self._distribution = distribution

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version and end."""
        show(f"{parser.prog} {version(self._distribution)}")
        parser.exit()


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add the option `--watch`, by which `main` runs the command again and again."""
    parser.add_argument("--watch", action="store_true", help=f"print it again every {WATCH_S:.0f} s, until Ctrl-C")


def add_limit(parser: argparse.ArgumentParser, default: int, which: str, most: int = 10**9) -> None:
    """Add the option `--limit`, the most rows to print. `which`: those that are printed. `most`: the highest limit."""
    about = f"print so many at most, {which} (default: {default})"
    parser.add_argument("--limit", type=counted(most), default=default, help=about)


def counted(most: int) -> Callable[[str], int]:
    """Return the type of an argument that is a number from 1 to `most`."""
    return partial(_count, most)


def _count(most: int, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:12]) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {most:,}")
    return int(text)


def main(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Run the subcommand, which has set `run` as a parser default. Returns the exit status."""
    parsed = parser.parse_args(arguments)
    run: Run | None = getattr(parsed, "run", None)
    if run is None:
        parser.print_help(sys.stderr)
        return 2
    forbid_core_dumps()
    logging.basicConfig(level=logging.INFO, handlers=[log_handler(parser.prog)])
    try:
        return _watch(run, parsed) if getattr(parsed, "watch", False) else run(parsed)
    except FoglineError as error:
        tell(f"{parser.prog}: {error}")
        service_manager.tell_status(str(error))
        return 2
    except KeyboardInterrupt:
        return interrupted(parser.prog)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _watch(run: Run, parsed: argparse.Namespace) -> NoReturn:
    """Run a command until Ctrl-C. What it cannot reach does not end it, once it has run."""
    is_first = True
    while True:
        clear()
        try:
            run(parsed)
        except FoglineError as error:
            if is_first:
                raise
            tell(str(error))
        sys.stdout.flush()
        is_first = False
        time.sleep(WATCH_S)


def interrupted(program: str) -> int:
    """Tell that Ctrl-C ended a command. Returns the exit status."""
    tell(f"{program}: interrupted")
    return INTERRUPTED


def forbid_core_dumps() -> None:
    """Keep the memory of this process and its children, which holds keys and passwords, out of core files."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    # Linux writes no core file of up to a page. It ignores the limit where it pipes cores to a program (systemd-coredump,
    # apport), except for 1: then that program gets none (fs/coredump.c).
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, most) if most >= 0 else 1, most))


def announce(**facts: Any) -> None:
    """Print facts of a running process, such as its addresses, as one JSON line on stdout.

    The fact `ready` tells the service manager too.
    """
    show(json.dumps(facts))
    if "ready" in facts:
        service_manager.tell(service_manager.READY)
