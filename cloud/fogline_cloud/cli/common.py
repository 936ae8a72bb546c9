"""Options that several subcommands share."""

import argparse
from pathlib import Path


def with_config(parser: argparse.ArgumentParser) -> None:
    """Every subcommand reads the same settings file."""
    parser.add_argument("--config", type=Path, default=Path("cloud.toml"), help="the settings file (default: cloud.toml)")


def with_json(parser: argparse.ArgumentParser) -> None:
    """Whoever reads with a program asks for JSON."""
    parser.add_argument("--json", action="store_true", help="answer in JSON")
