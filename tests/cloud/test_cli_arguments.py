"""Arguments of the command line that more than one command takes."""

import argparse
import contextlib
from collections.abc import Callable, Iterator

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.cli.common import device_argument, json_argument
from fogline_cloud.cli.main import build_parser


@pytest.mark.parametrize("text", ['{"x": NaN}', "Infinity", "[-Infinity]", "{", ""])
def test_invalid_json_argument_is_refused_before_sending(text):
    with pytest.raises(Misconfigured, match=r"--json .* is not JSON"):
        json_argument(text, "--json")


def numbers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, Callable[[str], int]]]:
    """Each option that is a whole number, and its type."""
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            for choice in each.choices.values():
                yield from numbers(choice)
        elif callable(each.type):
            with contextlib.suppress(Exception):
                if isinstance(each.type("7"), int):
                    yield f"{parser.prog} {each.option_strings}", each.type


def test_no_command_takes_a_number_that_cannot_be():
    found = dict(numbers(build_parser()))
    assert any("--replication" in name for name in found)
    for text in ("0", "-3", "9" * 20, "1e3", "x", ""):
        taken = [name for name, read in found.items() if is_taken(read, text)]
        assert taken == [], f"{text!r} is taken"


def is_taken(read: Callable[[str], int], text: str) -> bool:
    try:
        read(text)
    except (argparse.ArgumentTypeError, ValueError):
        return False
    return True


@pytest.mark.fault("D12")
def test_an_operator_names_a_device_as_people_write_it():
    assert device_argument("Wohnzimmer Lampe") == "Wohnzimmer:20Lampe"
    assert device_argument("Wohnzimmer:20Lampe") == "Wohnzimmer:20Lampe"
    with pytest.raises(argparse.ArgumentTypeError):
        device_argument("a\nb")
