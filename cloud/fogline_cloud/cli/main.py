"""`fogline`: the command of operators and of the cloud side."""

import argparse
import sys
from collections.abc import Sequence

from fogline import commandline
from fogline_cloud.cli import bridge, command, flow, ledger, topics

EXAMPLE = """\
examples:
  fogline topics create --config cloud.toml     make the topics, once
  fogline bridge run --config cloud.toml        take gateways' events into Kafka
  fogline flow run --config cloud.toml          turn them into tables with Spark
  fogline command send lamp-1 switch --json '{"on": true}' --ttl 30s
  fogline ledger verify --config cloud.toml     show that nothing is lost and nothing is twice
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line of `fogline`."""
    parser = argparse.ArgumentParser(
        prog="fogline", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    groups = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in (topics, bridge, flow, command, ledger):
        module.register(groups)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fogline`."""
    return commandline.main(build_parser(), arguments)


if __name__ == "__main__":
    sys.exit(main())
