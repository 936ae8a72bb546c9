"""The mutants of `make mutants` fit the modules as they are now."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
READ = (
    "import sys; sys.path.insert(0, 'tests/suite'); import mutants; print(*(each.file for each in mutants.read()), sep='\\n')"
)


def test_each_mutant_changes_one_place_of_a_module_that_decides():
    ran = subprocess.run([sys.executable, "-c", READ], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    files = Counter(Path(each).stem for each in ran.stdout.split())
    assert files.total() >= 40
    assert {
        "admission",
        "window",
        "journal",
        "ingest",
        "resend_memory",
        "records",
        "policy",
        "classify",
        "commit",
        "balance",
    } <= {*files}
