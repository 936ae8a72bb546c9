"""`fogline`: the command for the cloud side and for operators."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from fogline.process import command_line
from fogline.process.terminal import tell

COMMANDS = (
    "ca",
    "gateway",
    "user",
    "access",
    "topics",
    "bridge",
    "api",
    "flow",
    "dead",
    "table",
    "command",
    "device",
    "ledger",
    "audit",
    "parser",
    "doctor",
)
"""The commands, in the order of the help. Each is a module of this package."""
SPARK = ("pyspark", "py4j")
"""Modules that only the package fogline-flow and the extra `spark` bring."""
EXAMPLE = """\
examples:
  fogline ca init --config cloud.toml           make a certificate authority, once
  fogline topics create --config cloud.toml     create the topics, once
  fogline bridge run --config cloud.toml        write gateways' events to Kafka
  fogline flow run --config cloud.toml          write the tables with Spark
  fogline command send lamp-1 switch --json '{"on": true}' --ttl 30s
  fogline device list --where type=lamp
  fogline ledger verify --config cloud.toml     prove that no event is lost or duplicated
  fogline doctor --config cloud.toml            check everything, with a remedy for each fault
"""


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of these commands. Only their modules are imported: a whole import takes longer than most commands."""
    parser = argparse.ArgumentParser(
        prog="fogline", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    groups = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in commands:
        import_module(f"fogline_cloud.cli.{command}").register(groups)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fogline`."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    known = words[:1] if words and words[0] in COMMANDS else COMMANDS
    try:
        return command_line.main(build_parser(known), words)
    except KeyboardInterrupt:  # while the modules of the command are imported
        return command_line.interrupted("fogline")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SPARK:
            raise
        remedy = "install the package fogline-flow, or: pip install 'fogline-cloud[spark]'"
        tell(f"fogline: this command needs Spark: {remedy}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
