"""Two bridges against one, each with a quarter of a core: what a second machine adds where the first one is full."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from processes import BIN, Bench, port_of

from fogline_lab.cpu_quota import cpu_quota
from fogline_lab.supervisor import ChildProcess

SHARDS = 8
QUOTA = 0.25
"""Share of one CPU that each bridge has."""
LIMIT_S = 600


def measure(bench: Bench) -> dict[str, float]:
    """The one after the other, on one broker."""
    one, two = (events_per_s(bench, count) for count in (1, 2))
    return {"bridges.one": one, "bridges.two": two, "bridges.ratio": two / one}


def events_per_s(bench: Bench, count: int) -> float:
    """Settled events a second."""
    tenant, events = f"bridges{bench.number}-{count}", bench.events
    cloud = bench.cloud(tenant, SHARDS)
    with bridges(bench, cloud, count) as running:
        port = port_of(running[0].next_line()["amqp"])
        for each in running[1:]:
            each.next_line()
        command = (*bench.program("gateways"), port, tenant, SHARDS, events, "--bridges", count)
        with bench.child("gateways", *command) as gateways:
            gateways.next_line(LIMIT_S)
            with ExitStack() as quotas:
                for each in running:
                    quotas.enter_context(cpu_quota(each.pid, QUOTA))
                gateways.tell("go")
                seconds = gateways.next_line(LIMIT_S)["seconds"]
    return events / float(seconds)


@contextmanager
def bridges(bench: Bench, cloud: Path, count: int) -> Iterator[list[ChildProcess]]:
    """Bridges of one tenant."""
    running = []
    with ExitStack() as stack:
        for number in range(count):
            own = cloud.with_name(f"bridge-{number}-{cloud.name}")
            own.write_text(cloud.read_text().replace("[bridge]", f'[bridge]\nname = "bridge-{number}"'))
            command = (BIN / "fogline", "bridge", "run", "--insecure-dev", "--config", own)
            running.append(stack.enter_context(bench.child(f"bridge-{number}", *command)))
        yield running
