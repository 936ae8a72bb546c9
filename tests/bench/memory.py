"""Gateway memory after many events, in an environment that holds `fogline-edge` and its own dependencies only.

The development environment also holds packages that libraries import if they are there, such as pandas and pytest. A
gateway on a Raspberry Pi has none of them.
"""

import os
import sys
from pathlib import Path

from processes import Bench, Failed
from systems import wait_for_events

from fogline_lab.memory import proportional_bytes, resident_bytes
from fogline_lab.supervisor import run_to_end

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".fogline"
ENVIRONMENT = STATE / "gateway-env"
UV = STATE / "bootstrap" / "bin" / "uv"
EVENTS = 25
"""Events, as a multiple of those of the gateway's row: 1,000,000 by default."""
DEVICES = 1000
WINDOW = 200
PAYLOAD_BYTES = 100
MB = 1e6
EVENTS_A_SECOND = 500
"""The slowest gateway that this waits for."""


def measure(bench: Bench) -> dict[str, float]:
    """Send the events over one MQTT connection, and read the gateway's memory when all are settled."""
    events = bench.events * EVENTS
    limit_s = 60 + events / EVENTS_A_SECOND
    program = gateway_program(bench)
    with (
        bench.child("null_peer", *bench.program("null_peer")) as peer,
        bench.gateway("gw-memory", peer.next_line()["port"], program=program) as (gateway, mqtt_port),
        bench.child("load", *bench.program("mqtt_load"), mqtt_port, 1, DEVICES, events, 0, PAYLOAD_BYTES, WINDOW) as load,
    ):
        load.next_line(limit_s)
        load.tell("go")
        load.next_line(limit_s)
        wait_for_events(peer, events, limit_s)
        return {"memory.rss": resident_bytes(gateway.pid) / MB, "memory.pss": proportional_bytes(gateway.pid) / MB}


def gateway_program(bench: Bench) -> Path:
    """Return `fogline-edge` of an environment of its own, made once from the checkout and requirements.lock, offline."""
    program = ENVIRONMENT / "bin" / "fogline-edge"
    if not program.exists():
        bench.say(f"making {ENVIRONMENT}")
        log = bench.folder / "gateway-env.log"
        os.environ["UV_CACHE_DIR"] = str(STATE / "uv-cache")
        install = [UV, "pip", "install", "--quiet", "--offline", "--python", ENVIRONMENT / "bin" / "python"]
        for command in (
            [UV, "venv", "--quiet", "--clear", "--python", sys.executable, ENVIRONMENT],
            [*install, "--constraint", ROOT / "requirements.lock", "--editable", ROOT / "shared", "--editable", ROOT / "edge"],
        ):
            status, _ = run_to_end(command, log)
            if status:
                raise Failed(f"{ENVIRONMENT} could not be made: {log.read_text('utf-8').strip()}")
    return program
