"""Ten thousand gateways at one bridge, a thousand of them connected over TLS; then it is killed, and another one takes over."""

import time
from contextlib import ExitStack
from datetime import datetime

from certificates import BRIDGE, lines, make_certificates
from processes import BIN, Bench, Failed, peak_rss_mib
from systems import free_ports

from fogline_lab.supervisor import ChildProcess

SHARDS = 8
GATEWAYS = 10_000
CONNECTED = 1_000
FILL_HELLOS_S = 1_000.0
"""Hellos a second that the bridges admit: the state is made faster than a real fleet would connect."""
LIMIT_S = 900.0
HERE = "127.0.0.1"
MIB = 2**20 / 1e6


def measure(bench: Bench) -> dict[str, float]:
    """Fill, connect, kill the bridge, start its heir, and wait until every connected gateway is served by it."""
    tenant = f"crowd{bench.number}"
    folder = bench.folder / f"certificates-{tenant}"
    make_certificates(folder, tenant, ())
    more = f"max_connections = {2 * CONNECTED}\nhellos_s = {FILL_HELLOS_S}\n" + "\n".join(lines(folder, BRIDGE, "tls")) + "\n"
    cloud = bench.cloud(tenant, SHARDS, more)
    ports = free_ports(2)
    with ExitStack() as stack:

        def bridge(number: int) -> ChildProcess:
            name, own = f"bridge-{number}", cloud.with_name(f"bridge-{number}-{cloud.name}")
            text = cloud.read_text().replace("[bridge]", f'[bridge]\nname = "{name}"')
            own.write_text(text.replace(f"{HERE}:0", f"{HERE}:{ports[number]}"))
            return stack.enter_context(bench.child(name, BIN / "fogline", "bridge", "run", "--config", own))

        owner = bridge(0)
        owner.next_line()
        bench.say(f"{GATEWAYS:,} gateways say hello and send")
        load = stack.enter_context(
            bench.child("crowd", *bench.program("crowd_load"), tenant, folder, GATEWAYS, CONNECTED, *ports)
        )
        filled = load.next_line(LIMIT_S)
        owner_mb = peak_rss_mib(owner) * MIB
        bench.say("the bridge is killed, and another one starts")
        killed_s, killed_at_s = time.monotonic(), time.time()
        owner.kill()
        heir = bridge(1)
        back = load.next_line(LIMIT_S)
        return {
            "crowd.taken": shards_taken_s(heir) - killed_at_s,
            "crowd.hellos": GATEWAYS / filled["seconds"],
            "crowd.memory": owner_mb,
            "crowd.takeover": back["shards_s"] - killed_s,
            "crowd.last": back["last_s"] - killed_s,
            "crowd.heir": peak_rss_mib(heir) * MIB,
        }


def shards_taken_s(bridge: ChildProcess) -> float:
    """Return when the bridge had taken its last shard, by its log and the machine's clock."""
    times = [line[:23] for line in bridge.log.read_text("utf-8").splitlines() if " is taken: " in line]
    if len(times) < SHARDS:
        raise Failed(f"{bridge.name} took {len(times)} shards of {SHARDS}: see {bridge.log}")
    return datetime.strptime(max(times), "%Y-%m-%d %H:%M:%S,%f").timestamp()  # noqa: DTZ007 - of this machine, as the log
