"""Memory of a bridge's state with 10,000 gateways and 200,000 devices, from made-up records in the real structures."""

from processes import Bench

GATEWAYS = 10_000
DEVICES = 200_000
LIMIT_S = 600.0


def measure(bench: Bench) -> dict[str, float]:
    """Fill routes, streams, registry and commands in a process of its own, and read its memory."""
    with bench.child("scale", *bench.program("scale_load"), GATEWAYS, DEVICES) as load:
        figures = load.next_line(LIMIT_S)
    return {f"scale.{name}": figures[name] for name in ("streams", "routes", "registry", "commands", "process")}
