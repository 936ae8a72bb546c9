"""docs/proofs/limits.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_\w+)`", (ROOT / "docs" / "proofs" / "limits.md").read_text("utf-8"))


def test_every_test_of_a_limit_exists():
    assert len(NAMED) > 20
    missing = [f"{path}::{name}" for path, name in NAMED if f"def {name}(" not in (ROOT / path).read_text("utf-8")]
    assert missing == []
