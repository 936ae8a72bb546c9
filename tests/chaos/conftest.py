"""A place for many short-lived files."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def memory(folder):
    """A folder whose syncs cost nothing, where there is one: images are many and short-lived."""
    shared = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else folder))
    yield place
    shutil.rmtree(place)
