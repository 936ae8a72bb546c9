"""From a full outbox to Kafka: direct over TLS, through a router's stand-in, and through a real Artemis, in one run.

One gateway and one bridge, each a process of its own, with certificates at both ends. The router and the broker get plain
text on loopback; behind them each batch and each outcome is signed. Then the signature alone: what both ends pay
for a batch.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from certificates import BRIDGE, files, lines, make_certificates
from processes import Bench, Failed, cpu_s, port_of

from fogline.gateway.message_signature import GatewayName, MessageSigner, SignedKind, doubt_signature
from fogline_cloud.authority.certificates import make_key
from fogline_lab.events import make_batch
from fogline_lab.intermediary.artemis import Artemis
from fogline_lab.supervisor import ChildProcess

GATEWAY = "gw-1"
SHARDS = 2
LIMIT_S = 300
SIGNATURES = 200


class Between(NamedTuple):
    """What is between. `kind`: as the settings have it."""

    kind: str
    port: int
    child: ChildProcess


def measure(bench: Bench) -> dict[str, float]:
    """All ways in turn; the order changes with each run."""
    found: dict[str, float] = {}
    names = ["direct", "router", "broker"]
    for name in names if bench.number % 2 else reversed(names):
        bench.say(f"outbox to Kafka, {name}")
        found |= _through(bench, name)
    found |= {f"via.{name}": found[f"via.events_{name}"] / found["via.events_direct"] for name in ("router", "broker")}
    return found | {f"via.signature_{events}": _signature_us(events) for events in (100, 500)}


def _through(bench: Bench, name: str) -> dict[str, float]:
    tenant, events = f"via-{name}-{bench.number}", bench.events
    folder = bench.folder / f"certificates-{tenant}"
    make_certificates(folder, tenant, [GATEWAY])
    with _between(bench, name) as between:
        via = "" if between is None else f'[[bridge.via]]\nurl = "amqp://127.0.0.1:{between.port}"\nkind = "{between.kind}"\n'
        cloud = bench.cloud(tenant, SHARDS, "\n".join([*lines(folder, BRIDGE, "tls"), via]))
        with bench.bridge(cloud) as (bridge, port):
            own = files(folder, GATEWAY)
            options = {"tenant": tenant, "gateway": GATEWAY, "data": str(bench.subfolder(f"outbox-{name}")), "events": events}
            options |= {"bridge": f"127.0.0.1:{port}", "tls": {"ca": own.ca, "certificate": own.certificate, "key": own.key}}
            if between is not None:
                options["via"] = {"url": f"amqp://127.0.0.1:{between.port}", "kind": between.kind}
            with bench.child("gateway", *bench.program("full_outbox"), json.dumps(options)) as gateway:
                gateway.next_line(LIMIT_S)
                before, before_between = cpu_s(bridge), 0.0 if between is None else cpu_s(between.child)
                gateway.tell("go")
                done = gateway.next_line(LIMIT_S)
                found = {
                    f"via.events_{name}": events / done["seconds"],
                    f"via.cpu_gateway_{name}": done["cpu_s"] / events * 1000,
                    f"via.cpu_bridge_{name}": (cpu_s(bridge) - before) / events * 1000,
                }
                if between is not None:
                    found[f"via.cpu_between_{name}"] = (cpu_s(between.child) - before_between) / events * 1000
                return found


@contextmanager
def _between(bench: Bench, name: str) -> Iterator[Between | None]:
    match name:
        case "router":
            program = [bench.program("gateways")[0], "-m", "fogline_lab.intermediary.router"]
            with bench.child("router", *program) as router:
                yield Between("router", port_of(router.next_line()["amqp"]), router)
        case "broker":
            with Artemis(bench.subfolder("artemis")) as broker:
                yield Between("broker", broker.port, broker.process)
        case _:
            yield None


def _signature_us(events: int) -> float:
    """Return the time of signing and verifying a batch, in microseconds for each of its events."""
    key, name = make_key(), GatewayName("acme", GATEWAY)
    signer, public = MessageSigner(key), key.public_key()  # type: ignore[arg-type]
    _, batch = make_batch(1, events)
    began = time.process_time()
    for _ in range(SIGNATURES):
        if doubt_signature(public, SignedKind.BATCH, name, signer.sign(SignedKind.BATCH, name, batch)) is not None:
            raise Failed("a signature does not count")
    return (time.process_time() - began) / SIGNATURES / events * 1e6
