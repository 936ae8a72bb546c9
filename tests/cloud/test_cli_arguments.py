"""Arguments of the command line that more than one command takes."""

import argparse

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.cli.common import device_argument, json_argument


@pytest.mark.parametrize("text", ['{"x": NaN}', "Infinity", "[-Infinity]", "{", ""])
def test_invalid_json_argument_is_refused_before_sending(text):
    with pytest.raises(Misconfigured, match=r"--json .* is not JSON"):
        json_argument(text, "--json")


@pytest.mark.fault("D12")
def test_an_operator_names_a_device_as_people_write_it():
    assert device_argument("Wohnzimmer Lampe") == "Wohnzimmer:20Lampe"
    assert device_argument("Wohnzimmer:20Lampe") == "Wohnzimmer:20Lampe"
    with pytest.raises(argparse.ArgumentTypeError):
        device_argument("a\nb")
