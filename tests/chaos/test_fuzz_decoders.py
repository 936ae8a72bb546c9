"""Structure-aware fuzzing of every decoder: one field at a time replaced by each wrong type, length, depth and value.

`FOGLINE_FUZZ_SEED` chooses the inputs beyond those, `FOGLINE_FUZZ_REPORT` names a folder for the counts as JSON.
"""

import gc
import logging

import pytest

from fogline_lab.memory import resident_bytes
from fuzz.decoders import DECODERS
from fuzz.running import run

EACH = 5000
LEAST = 100_000
FLAT_BYTES = 5_000_000


def test_fuzz_has_enough_inputs():
    assert len(DECODERS) * EACH >= LEAST


@pytest.mark.slow
@pytest.mark.fault("S4")
@pytest.mark.parametrize("name", DECODERS)
async def test_fuzz_decoder(name, caplog):
    """S4: wrong types, lengths, depths and values in each field: `Poison` or nothing; memory is flat afterwards."""
    caplog.set_level(logging.CRITICAL)  # pytest would keep every warning with its error until the test ends
    decoder = DECODERS[name]
    warm = run(decoder, EACH)
    warm.check()
    gc.collect()
    before = resident_bytes()
    tally = run(decoder, EACH)
    gc.collect()
    grown = resident_bytes() - before
    tally.check()
    print(f"{tally.line()}; memory {grown / 1e6:+.1f} MB")
    assert grown < FLAT_BYTES
