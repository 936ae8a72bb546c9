"""The parsers of both programs, for the tests over every command."""

import argparse
from collections.abc import Iterator

from fogline_cloud.cli import main as cloud
from fogline_edge import cli as edge


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Return the parsers of the commands that do something."""
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for each in group.choices.values():
            yield from leaves(each)


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def parsers() -> list[argparse.ArgumentParser]:
    """Return new parsers: parsing `command send --where` changes which words the parser expects."""
    return [cloud.build_parser(), edge.build_parser()]


PARSERS = parsers()
COMMANDS = [each for parser in PARSERS for each in leaves(parser)]
