"""Proof of the tests: each change of `mutants.toml` makes a deciding module wrong, and the tests named beside it must fail."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.toml")
PACKAGES = ("shared", "cloud", "edge", "deploy/lab")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".fogline", "__pycache__", "node_modules", ".*_cache", "dist")
SHARED = (".venv", ".fogline")
TIMEOUT_S = 900
"""Time after which tests that hang on a mutant have noticed it. The slowest of them take a minute."""
NOTICED = 1
"""Exit status of pytest: tests failed. Any other one but 0 says that the mutant cannot be run."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change that makes a module wrong. `was` occurs once in `file`; `tests` have to notice that `becomes` stands there."""

    wrong: str
    file: str
    was: str
    becomes: str
    tests: list[str]


def run(only: str) -> int:
    """Try each mutant whose file or text has `only` in it, in a copy of the checkout. Returns the exit status."""
    mutants = [each for each in read() if only in each.file or only in each.wrong]
    if not mutants:
        sys.stderr.write(f"no mutant of {LIST.relative_to(ROOT)} has {only!r} in its file or text\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="fogline-mutants-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
        for name in SHARED:
            (copy / name).symlink_to(ROOT / name)
        tests = sorted({test for each in mutants for test in each.tests})
        print(f"{len(mutants)} mutants; first {len(tests)} files and folders of tests without one", flush=True)
        if _pytest(copy, tests, quiet=False):
            sys.stderr.write("these tests fail without a mutant: mend them first\n")
            return 1
        survived = [each for number, each in enumerate(mutants, 1) if not _noticed(copy, each, f"{number} of {len(mutants)}")]
    print(f"\nnoticed {len(mutants) - len(survived)} of {len(mutants)}")
    for each in survived:
        print(f"survived: {each.file}: {each.wrong}")
    return int(bool(survived))


def read() -> list[Mutant]:
    """Return the list. Raises `ValueError` if a mutant does not fit its file any more."""
    mutants = [Mutant(**each) for each in tomllib.loads(LIST.read_text("utf-8"))["mutant"]]
    for each in mutants:
        if (found := (ROOT / each.file).read_text("utf-8").count(each.was)) != 1:
            raise ValueError(f"{each.file} has {each.was!r} {found} times: mend the mutant {each.wrong!r}")
    return mutants


def _noticed(copy: Path, mutant: Mutant, number: str) -> bool:
    file = copy / mutant.file
    text = file.read_text("utf-8")
    began = time.monotonic()
    _write(file, text.replace(mutant.was, mutant.becomes))
    try:
        status = _pytest(copy, mutant.tests, quiet=True)
    finally:
        _write(file, text)
    word = {NOTICED: "noticed", None: "noticed (hangs)", 0: "SURVIVED"}.get(
        status, f"cannot be run (pytest ended with {status})"
    )
    print(f"{number}  {word:<9} {time.monotonic() - began:5.1f} s  {mutant.file}: {mutant.wrong}", flush=True)
    return word.startswith("noticed")


def _write(file: Path, text: str) -> None:
    """Write a file, with a time that no compiled copy of it has."""
    newest_s = int(file.stat().st_mtime)
    file.write_text(text, "utf-8")
    os.utime(file, (newest_s + 1, newest_s + 1))


def _pytest(copy: Path, tests: list[str], *, quiet: bool) -> int | None:
    """Run tests in the copy until one fails. Returns pytest's exit status, None after the timeout."""
    path = os.pathsep.join(str(copy / each) for each in PACKAGES)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    output = subprocess.DEVNULL if quiet else None
    try:
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(
            command, cwd=copy, env=environment, stdout=output, stderr=output, timeout=TIMEOUT_S, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return None
