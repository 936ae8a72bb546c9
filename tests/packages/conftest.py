"""Tests of the Debian packages: `make test-packages` builds them, and names their folder in FOGLINE_PACKAGES."""

import os
import shutil

import pytest

from packages.container import PACKAGES, booted

collect_ignore_glob = [] if os.environ.get("FOGLINE_PACKAGES") else ["test_*.py"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A Debian 12 with the packages of both versions in /srv."""
    with booted(PACKAGES / "image-amd64", tmp_path_factory.mktemp("container")) as container:
        shutil.copytree(PACKAGES / "apt", container.root / "srv" / "apt")
        for package in PACKAGES.glob("fogline-*_amd64.deb"):
            shutil.copy(package, container.root / "srv")
        yield container
