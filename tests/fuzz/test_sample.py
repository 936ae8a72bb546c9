"""A sample of what tests/chaos/test_fuzz_decoders.py does in full."""

import pytest

from fogline.errors import Poison
from fuzz.decoders import DECODERS
from fuzz.forms import Decoder, Field, Form, Layer
from fuzz.running import run

SAMPLE = 250


@pytest.mark.fault("S4")
@pytest.mark.parametrize("name", DECODERS)
async def test_decoder_raises_poison_or_nothing(name):
    """S4: fields of the wrong type, length, depth and value: each is refused with `Poison`, the next right one is taken."""
    run(DECODERS[name], SAMPLE).check()


def _broken(value):
    if value == b"2":
        raise ValueError("not ours")
    if value == b"3":
        raise Poison("malformed", "ours")
    return value


def _decoder(read, **choices):
    form = Form("form", [Field("f", "inner", list(choices.items()))], lambda replaced: replaced.get("f", b"1"))
    return Decoder("probe", [Layer("outer", lambda value: value), Layer("inner", read)], [form])


def test_foreign_error_is_reported_with_its_input():
    tally = run(_decoder(_broken, one=b"1", two=b"2", three=b"3"), 3)
    assert (tally.inputs, tally.taken, tally.refused["malformed"]) == (3, 1, 1)
    (failure,) = tally.failures
    assert "ValueError: not ours" in failure
    assert failure.endswith("input 32")
    with pytest.raises(AssertionError, match="seed 1: 1 inputs of probe failed"):
        tally.check()


def test_inputs_that_do_not_reach_their_layer_are_noticed():
    decoder = _decoder(lambda value: value, a=b"x", b=b"y")

    def refuse(value):
        if value != b"1":
            raise Poison("malformed", "too early")
        return value

    tally = run(Decoder("probe", [Layer("outer", refuse), decoder.layers[1]], decoder.forms), 2)
    with pytest.raises(AssertionError, match="only 0% of the inputs"):
        tally.check()
