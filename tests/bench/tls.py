"""The cost of TLS: gateway and bridge with certificates at both ends, beside the same in plain text, one after the other."""

from dataclasses import replace

from bridge import TIMES, through_bridge
from gateway import through
from gateway_rows import GATEWAY, GATEWAY_ROWS
from processes import Bench


def measure(bench: Bench) -> dict[str, float]:
    """Both ways in turn; the order changes with each run."""
    found: dict[str, float] = {}
    for secure in (True, False) if bench.number % 2 else (False, True):
        way = "tls" if secure else "plain"
        bench.say(f"gateway, {way}")
        row = replace(GATEWAY_ROWS["one-connection"], tls=secure)
        gateway = through(bench, row, GATEWAY)
        bench.say(f"bridge, {way}")
        events = bench.events * TIMES
        seconds, cpu_s = through_bridge(bench, events, tls=secure)
        found |= {
            f"tls.gateway_{way}": gateway["events"],
            f"tls.gateway_cpu_{way}": gateway["cpu"],
            f"tls.bridge_{way}": events / seconds,
            f"tls.bridge_cpu_{way}": cpu_s / events * 1000,
        }
    return found | {
        "tls.gateway": found["tls.gateway_tls"] / found["tls.gateway_plain"],
        "tls.bridge": found["tls.bridge_tls"] / found["tls.bridge_plain"],
    }
