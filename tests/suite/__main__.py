"""Runs the checks and the tests side by side, with one summary at the end.

    make test                                    ruff, mypy, import contracts, and every test that is not slow
    make test ARGS="tests/edge -k resend"        the checks, and these tests
    make check                                   the checks, and the tests of the rules
    make busy ARGS="--runs 3"                    the tests beside eight processes that use all the CPU time they get
    make mutants ARGS="--only window"            the changes of mutants.toml, each of which the tests must notice

exit status: 0 everything passed; 1 something failed; 2 wrong arguments; 130 interrupted.
"""

import argparse
import sys
import tempfile
import tomllib
from pathlib import Path

import busy
import mutants
from jobs import Job, adopt_orphans, run_side_by_side, summary, used_cpu_s

BUDGET = tomllib.loads((Path(__file__).parents[1] / "rules" / "budget.toml").read_text("utf-8"))
BIN = Path(sys.executable).parent
PYTEST = [sys.executable, "-m", "pytest"]
SIDE_BY_SIDE = ["--numprocesses", "4", "--dist", "loadfile"]
RULES = ["-q", "tests/rules", "tests/docs/test_generated_pages.py"]
CHECKS = [
    Job("ruff", [BIN / "ruff", "check", "."]),
    Job("format", [BIN / "ruff", "format", "--check", "--quiet", "."]),
    Job("imports", [BIN / "lint-imports", "--no-cache"]),
    Job("mypy", [BIN / "mypy"]),
]


def main() -> int:
    """Run what the arguments ask for. Returns the exit status."""
    arguments, others = parsed()
    adopt_orphans()
    try:
        if arguments.what == "busy":
            return busy.run([*PYTEST, *SIDE_BY_SIDE, "-m", "not slow"], others, arguments.runs, arguments.hogs)
        if arguments.what == "mutants":
            return mutants.run(arguments.only)
        wanted = [*RULES, *others] if arguments.what == "check" else [*SIDE_BY_SIDE, "-m", "not slow", *others]
        with tempfile.TemporaryDirectory() as folder:
            results = run_side_by_side(CHECKS, Job("pytest", [*PYTEST, *wanted]), Path(folder))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    total_s = used_cpu_s()
    print(summary(results, total_s))
    if arguments.what == "test" and not others and total_s > BUDGET["run_cpu_s"]:
        sys.stderr.write(f"over budget: a whole run may use {BUDGET['run_cpu_s']} s of CPU time (tests/rules/budget.toml)\n")
        return 1
    return int(any(each.status for each in results))


def parsed() -> tuple[argparse.Namespace, list[str]]:
    """Return the arguments, and those for pytest."""
    parser = argparse.ArgumentParser(
        prog="suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("what", choices=["test", "check", "busy", "mutants"])
    parser.add_argument("--runs", type=int, default=1, help="busy: how often to run the tests (default: %(default)s)")
    parser.add_argument("--hogs", type=int, default=8, help="busy: processes that use CPU time (default: %(default)s)")
    parser.add_argument("--only", metavar="WORD", default="", help="mutants: those with this word in their file or text")
    return parser.parse_known_args()


if __name__ == "__main__":
    sys.exit(main())
