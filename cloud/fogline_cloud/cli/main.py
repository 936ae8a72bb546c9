"""`fogline`: the command for the cloud side and for operators."""

import argparse
import sys
from collections.abc import Sequence

from fogline.process import command_line
from fogline_cloud.cli import (
    access,
    api,
    audit,
    bridge,
    ca,
    command,
    dead,
    device,
    doctor,
    flow,
    gateway,
    ledger,
    parsers,
    table,
    topics,
    user,
)

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


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="fogline", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    groups = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in (
        ca,
        gateway,
        user,
        access,
        topics,
        bridge,
        api,
        flow,
        dead,
        table,
        command,
        device,
        ledger,
        audit,
        parsers,
        doctor,
    ):
        module.register(groups)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fogline`."""
    return command_line.main(build_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
