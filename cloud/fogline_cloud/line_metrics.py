"""The metrics of a process of Fogline, as its `/metrics` and `/readyz` on this machine show them, and the gateways in them."""

import http.client
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from fogline.errors import Misconfigured, Unreachable
from fogline.process.files.settings_file import split_endpoint

_LIMIT_S = 10.0
_USUAL_PORTS = {"bridge": 9465, "flow": 9466, "api": 9467}

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LineMetrics:
    """Values by metric and labels. `problem`: why the process cannot do its work, or an empty text."""

    problem: str = ""
    values: dict[str, dict[Labels, float]] = field(default_factory=dict)

    def of(self, name: str) -> dict[Labels, float]:
        """Return the values of a metric, named without `fogline_`, by its labels."""
        return self.values.get(f"fogline_{name}", {})

    def total(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        return sum(self.of(name).values())


class ListedGateway(msgspec.Struct, kw_only=True):
    """A gateway. Times in seconds since 1970; None: it has sent no statistics, or has no certificate."""

    gateway: str
    connected: bool = False
    last_seen_s: float = 0.0
    version: str | None = None
    backlog: int | None = None
    certificate_end_s: float | None = None
    clock_right: bool | None = None


def read_metrics(address: str | None, key: str) -> LineMetrics:
    """Ask a process. `address`: `host:port`, None if the settings have none; `key`: that of the settings.

    Raises `Misconfigured` without an address, `Unreachable` if nothing answers.
    """
    if address is None:
        port = _USUAL_PORTS[key.partition(".")[0]]
        raise Misconfigured(f"{key} is not set, so nothing can be asked here: for example 127.0.0.1:{port}")
    host, port = split_endpoint(address, key)
    connection = http.client.HTTPConnection(host, port, timeout=_LIMIT_S)
    try:
        connection.request("GET", "/metrics", headers={"connection": "close"})
        text = connection.getresponse().read().decode("utf-8", "replace")
        connection.close()
        connection.request("GET", "/readyz", headers={"connection": "close"})
        answer = connection.getresponse()
        ready, why = answer.status == http.client.OK, answer.read().decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"nothing answers at {address} ({key}): {error}") from None
    finally:
        connection.close()
    return LineMetrics("" if ready else why or "not ready", _values(text, address))


def gateways_of(bridges: Iterable[LineMetrics]) -> list[ListedGateway]:
    """Return the gateways of these bridges by name. A gateway that moved counts at the bridge that has seen it last."""
    found: dict[str, ListedGateway] = {}
    for metrics in bridges:
        for name, each in _of_bridge(metrics).items():
            known = found.get(name)
            if known is None or (each.connected, each.last_seen_s) > (known.connected, known.last_seen_s):
                found[name] = each
    return [found[name] for name in sorted(found)]


def _of_bridge(metrics: LineMetrics) -> dict[str, ListedGateway]:
    found: dict[str, ListedGateway] = {}

    def each(name: str) -> Iterable[tuple[ListedGateway, dict[str, str], float]]:
        for labels, value in metrics.of(f"gateway_{name}").items():
            own = dict(labels)
            yield found.setdefault(own["gateway"], ListedGateway(gateway=own["gateway"])), own, value

    for gateway, _, value in each("connected"):
        gateway.connected = bool(value)
    for gateway, _, value in each("last_seen_timestamp_seconds"):
        gateway.last_seen_s = value
    for gateway, labels, _ in each("version_info"):
        gateway.version = labels["version"]
    for gateway, _, value in each("outbox_events"):
        gateway.backlog = (gateway.backlog or 0) + int(value)
    for gateway, _, value in each("certificate_end_timestamp_seconds"):
        gateway.certificate_end_s = value
    for gateway, _, value in each("clock_synchronized"):
        gateway.clock_right = bool(value)
    return found


def _values(text: str, address: str) -> dict[str, dict[Labels, float]]:
    values: dict[str, dict[Labels, float]] = defaultdict(dict)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values[sample.name][tuple(sample.labels.items())] = sample.value
    except ValueError as error:
        raise Misconfigured(f"{address} does not answer with metrics: {error}") from None
    return values
