"""The metrics of a process of Fogline, as its `/metrics` and `/readyz` on this machine show them."""

import http.client
from collections import defaultdict
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from fogline.errors import Misconfigured, Unreachable
from fogline.process.files.settings_file import split_endpoint

_LIMIT_S = 10.0

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


def read_metrics(address: str | None, key: str) -> LineMetrics:
    """Ask a process. `address`: `host:port`, None if the settings have none; `key`: that of the settings.

    Raises `Misconfigured` without an address, `Unreachable` if nothing answers.
    """
    if address is None:
        raise Misconfigured(f"{key} is not set, so nothing can be asked here: for example 127.0.0.1:9465")
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


def _values(text: str, address: str) -> dict[str, dict[Labels, float]]:
    values: dict[str, dict[Labels, float]] = defaultdict(dict)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values[sample.name][tuple(sample.labels.items())] = sample.value
    except ValueError as error:
        raise Misconfigured(f"{address} does not answer with metrics: {error}") from None
    return values
