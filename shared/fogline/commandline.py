"""What every command of Fogline has in common: exit statuses, one-line errors, Ctrl-C, logging.

| status | means |
|---|---|
| 0 | done, or stopped by Ctrl-C or SIGTERM as asked |
| 1 | it ran, and the answer is no (a ledger that does not balance, a check that failed) |
| 2 | a person has to change something first; one line on stderr says what |
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
    """Parse and run. The chosen subcommand has set `run` as a default: a function of the parsed arguments."""
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
    """Tell on stdout, as one JSON line, that a long-running process is ready, and where it is."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
