"""A running gateway leaves out libraries that only inspection, migration and signatures need."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, sys
from pathlib import Path
import fogline_edge.cli, fogline_edge.gateway, fogline_edge.rules.cel
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings

async def open_and_close():
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=sys.argv[1]))
    await outbox.streams.pending()
    await outbox.close()

for _ in ("a new file", "the same file again"):
    asyncio.run(open_and_close())
unused = {"pandas", "numpy", "sqlite_utils", "cryptography", "h11", "wsproto"}
unused |= {"fogline.tracing.exporter", "fogline.tracing.collector"}
rules = ["cel"] if fogline_edge.rules.cel._library.cache_info().misses else []
print(*sorted(unused & sys.modules.keys()), *rules)
"""


@pytest.mark.timeout(120)
def test_gateway_imports_no_unused_module(tmp_path):
    command = [sys.executable, "-c", PROGRAM, tmp_path / "data"]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert (run.stdout.split(), run.returncode) == ([], 0), run.stderr
