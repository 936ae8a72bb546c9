"""The exit statuses, one-line errors, Ctrl-C handling and logging of every command of Fogline.

Exit status 0: success, or stopped by Ctrl-C or SIGTERM. 1: the command ran, and its result is negative (a ledger that does not
balance, a failed check). 2: wrong usage or settings; one line on stderr names the error and the remedy.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fogline.errors import FoglineError

Run = Callable[[argparse.Namespace], int]


def main(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Run the subcommand, which has set `run` as a parser default. Returns the exit status."""
    parsed = parser.parse_args(arguments)
    run: Run | None = getattr(parsed, "run", None)
    if run is None:
        parser.print_help(sys.stderr)
        return 2
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return run(parsed)
    except FoglineError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def announce(**facts: Any) -> None:
    """Print facts of a running process, such as its addresses, as one JSON line on stdout."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
