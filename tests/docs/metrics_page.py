"""Writes docs/metrics.md from `fogline.process.monitoring.metrics`. `make docs` runs this module."""

from itertools import groupby
from pathlib import Path

from fogline.process.monitoring.metrics import METRICS, Metric

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

_HEAD = """\
# Metrics

Gateway, bridge and flow serve `/metrics` for Prometheus and `/healthz` over HTTP on loopback if the settings name an address:

| process | setting | example |
|---|---|---|
| gateway | `metrics` in `edge.toml` | `metrics = "127.0.0.1:9464"` |
| bridge | `metrics` below `[bridge]` in `cloud.toml` | `metrics = "127.0.0.1:9465"` |
| flow | `metrics` below `[flow]` in `cloud.toml` | `metrics = "127.0.0.1:9466"` |

`/readyz` and `/healthz` answer `200 ok`, or 503 and one line that says what is wrong, such as that Kafka does not answer.
`/livez` answers 200 as long as the process answers at all. A counter begins at 0 when its process starts; the
counters of the outbox are stored in its file and survive a restart. `fogline-edge status` reads the outbox's numbers from the
same query. This page is generated from the list in `fogline.process.monitoring.metrics` by `make docs`.
"""

_SUBJECTS = {
    "process": "Every process with an event loop",
    "outbox": "Gateway: outbox",
    "history": "Gateway: history of events that rules kept back",
    "credentials": "Gateway: keys of devices",
    "uplink": "Gateway: connection to the bridge",
    "downlink": "Gateway: commands",
    "mqtt": "Gateway: MQTT server",
    "coap": "Gateway: CoAP server",
    "bodies": "Gateway: large bodies",
    "http": "Gateway: HTTP server",
    "mqtt_client": "Gateway: clients of other MQTT brokers",
    "mqtt_client_commands": "Gateway: commands to devices behind other MQTT brokers",
    "ble": "Gateway: Bluetooth LE",
    "ble_supervisor": "Gateway: supervision of the Bluetooth adapter",
    "bridge": "Bridge",
    "gateway": "Bridge: what gateways report, for each gateway of its shards",
    "shard": "Bridge: shards",
    "api": "HTTP API",
    "flow": "Flow",
}


def page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *(_table(subject, list(metrics)) for subject, metrics in groupby(METRICS.values(), _subject))])


def _subject(metric: Metric) -> str:
    """Return the longest subject that the metric's name begins with."""
    return max((each for each in _SUBJECTS if metric.name.startswith(f"fogline_{each}_")), key=len)


def _table(subject: str, metrics: list[Metric]) -> str:
    rows = "".join(
        f"| `{each.name}` | {each.type} | {', '.join(f'`{label}`' for label in each.labels)} | {each.meaning} |\n"
        for each in metrics
    )
    return f"## {_SUBJECTS[subject]}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
