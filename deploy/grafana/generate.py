"""Writes the Grafana dashboards of this folder. `make docs` runs it.

A dashboard is a table of panels: title, unit, kind of panel, and an expression of PromQL with a legend, or several.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
_T = 'tenant=~"$tenant"'
_G = f'{_T}, gateway=~"$gateway"'


class PanelQuery(NamedTuple):
    """One expression. `legend` is text with `{{label}}`."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """One panel: `kind` is `timeseries`, `stat` or `table` of Grafana, `unit` one of its units."""

    title: str
    unit: str
    queries: tuple[PanelQuery, ...]
    kind: str = "timeseries"


class Dashboard(NamedTuple):
    """One dashboard. `variables`: a label by the metric from which its values come."""

    title: str
    variables: dict[str, str]
    panels: tuple[Panel, ...]


def _graph(title: str, unit: str, *queries: tuple[str, str]) -> Panel:
    return Panel(title, unit, tuple(PanelQuery(*each) for each in queries))


def _stat(title: str, unit: str, expression: str) -> Panel:
    return Panel(title, unit, (PanelQuery(expression),), "stat")


def _table(title: str, unit: str, expression: str) -> Panel:
    return Panel(title, unit, (PanelQuery(expression),), "table")


def _by_gateway(title: str, unit: str, expression: str) -> Panel:
    return _graph(title, unit, (expression, "{{gateway}}"))


def _quantile(quantile: float, metric: str, *, by: str = "") -> str:
    labels = ", ".join(filter(None, (by, "le")))
    return f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}_bucket{{{_T}}}[$__rate_interval])))"


_TENANT = {"tenant": "fogline_bridge_shards"}
_GATEWAYS = {**_TENANT, "gateway": "fogline_gateway_last_seen_timestamp_seconds"}

DASHBOARDS = {
    "fleet": Dashboard(
        "Fogline: fleet",
        _TENANT,
        (
            _stat("Gateways", "none", f"count(max by (gateway) (fogline_gateway_connected{{{_T}}}))"),
            _stat("Connected", "none", f"sum(max by (gateway) (fogline_gateway_connected{{{_T}}}))"),
            _stat(
                "Shards without owner",
                "none",
                f"sum(max by (tenant) (fogline_bridge_shards{{{_T}}}))"
                f" - sum(max by (tenant, shard) (fogline_shard_ready{{{_T}}}))",
            ),
            _table(
                "Silent for", "s", f"topk(20, time() - max by (gateway) (fogline_gateway_last_seen_timestamp_seconds{{{_T}}}))"
            ),
            _table(
                "Fullest outboxes",
                "percentunit",
                f"topk(20, max by (gateway) (fogline_gateway_outbox_used_bytes{{{_T}}}"
                f" / fogline_gateway_outbox_max_bytes{{{_T}}}))",
            ),
            _table(
                "Certificates that end first",
                "s",
                f"bottomk(20, min by (gateway) (fogline_gateway_certificate_end_timestamp_seconds{{{_T}}}) - time())",
            ),
            _table(
                "Years until a card is worn (300 times its size)",
                "none",
                f"bottomk(20, max by (gateway) (fogline_gateway_disk_size_bytes{{{_T}}}) * 300"
                f" / (max by (gateway) (rate(fogline_gateway_disk_written_bytes_total{{{_T}}}[1d])) * 86400 * 365))",
            ),
            _table("Versions", "none", f"count by (version) (fogline_gateway_version_info{{{_T}}})"),
            _graph("Events that wait", "none", (f"sum by (lane) (fogline_gateway_outbox_events{{{_T}}})", "{{lane}}")),
            _graph(
                "Silent devices",
                "none",
                (f"max by (type, lane) (fogline_bridge_silent_devices{{{_T}}})", "{{type}} {{lane}}"),
            ),
        ),
    ),
    "gateway": Dashboard(
        "Fogline: gateway",
        _GATEWAYS,
        (
            _by_gateway("Connected", "none", f"fogline_gateway_connected{{{_G}}}"),
            _graph("Events that wait", "none", (f"fogline_gateway_outbox_events{{{_G}}}", "{{gateway}} {{lane}}")),
            _graph("Oldest event that waits", "s", (f"fogline_gateway_outbox_oldest_seconds{{{_G}}}", "{{gateway}} {{lane}}")),
            _by_gateway(
                "Outbox", "percentunit", f"fogline_gateway_outbox_used_bytes{{{_G}}} / fogline_gateway_outbox_max_bytes{{{_G}}}"
            ),
            _graph(
                "Written to the disk",
                "Bps",
                (f"rate(fogline_gateway_disk_written_bytes_total{{{_G}}}[$__rate_interval])", "{{gateway}}, all programs"),
                (f"rate(fogline_gateway_written_bytes_total{{{_G}}}[$__rate_interval])", "{{gateway}}, Fogline"),
            ),
            _by_gateway("Free on the disk", "bytes", f"fogline_gateway_disk_free_bytes{{{_G}}}"),
            _by_gateway("Life of an eMMC that is used", "percentunit", f"fogline_gateway_disk_life_used_ratio{{{_G}}}"),
            _graph(
                "Lost or set aside",
                "none",
                (f"increase(fogline_gateway_dead_total{{{_G}}}[1h])", "{{gateway}} dead"),
                (f"increase(fogline_gateway_dropped_total{{{_G}}}[1h])", "{{gateway}} dropped"),
                (f"increase(fogline_gateway_quarantined_total{{{_G}}}[1h])", "{{gateway}} quarantined"),
            ),
            _by_gateway("Temperature", "celsius", f"fogline_gateway_temperature_celsius{{{_G}}}"),
            _graph(
                "Power",
                "none",
                (f"fogline_gateway_undervoltage{{{_G}}}", "{{gateway}} undervoltage"),
                (f"fogline_gateway_throttled{{{_G}}}", "{{gateway}} slowed down"),
            ),
            _graph(
                "Clock",
                "s",
                (f"fogline_gateway_clock_ahead_seconds{{{_G}}}", "{{gateway}} ahead of the bridge"),
                (f"fogline_gateway_clock_synchronized{{{_G}}}", "{{gateway}} synchronized"),
            ),
            _by_gateway("Bluetooth works", "none", f"fogline_gateway_bluetooth_working{{{_G}}}"),
            _by_gateway("Running for", "s", f"fogline_gateway_uptime_seconds{{{_G}}}"),
            _by_gateway("Statistics received", "none", f"increase(fogline_gateway_statistics_total{{{_G}}}[5m])"),
        ),
    ),
    "bridge": Dashboard(
        "Fogline: bridge",
        _TENANT,
        (
            _graph("Shards that accept events", "none", (f"sum by (instance) (fogline_shard_ready{{{_T}}})", "{{instance}}")),
            _graph("Gateways connected", "none", (f"fogline_bridge_gateways{{{_T}}}", "{{instance}}")),
            _graph("Clients connected", "none", (f"fogline_bridge_clients{{{_T}}}", "{{instance}}")),
            _graph(
                "Events",
                "ops",
                (f"sum by (instance) (rate(fogline_shard_landed_total{{{_T}}}[$__rate_interval]))", "{{instance}} landed"),
                (
                    f"sum by (instance) (rate(fogline_shard_duplicate_total{{{_T}}}[$__rate_interval]))",
                    "{{instance}} duplicate",
                ),
                (f"sum by (instance) (rate(fogline_shard_loose_total{{{_T}}}[$__rate_interval]))", "{{instance}} of clients"),
            ),
            _graph(
                "Commit to Kafka, 99th percentile",
                "s",
                (_quantile(0.99, "fogline_shard_commit_seconds", by="instance"), "{{instance}}"),
            ),
            _graph(
                "Settlement after a commit, 99th percentile",
                "s",
                (_quantile(0.99, "fogline_shard_settlement_seconds", by="instance"), "{{instance}}"),
            ),
            _graph("Bytes that wait for Kafka", "bytes", (f"fogline_bridge_queued_bytes{{{_T}}}", "{{instance}}")),
            _graph(
                "Shards taken again", "none", (f"increase(fogline_shard_retaken_total{{{_T}}}[10m])", "{{instance}} {{shard}}")
            ),
            _graph(
                "Transactions",
                "ops",
                (f"sum by (instance) (rate(fogline_shard_transactions_total{{{_T}}}[$__rate_interval]))", "{{instance}}"),
            ),
            _graph(
                "Connections refused",
                "none",
                (f"increase(fogline_bridge_connections_refused_total{{{_T}}}[10m])", "{{instance}}"),
            ),
            _graph("AMQP messages not settled", "none", (f"fogline_process_unsettled{{{_T}}}", "{{instance}}")),
            _graph("Tasks", "none", (f"fogline_process_tasks{{{_T}}}", "{{instance}}")),
        ),
    ),
    "flow": Dashboard(
        "Fogline: flow",
        {"tenant": "fogline_flow_lag"},
        (
            _graph("Lag", "none", (f"fogline_flow_lag{{{_T}}}", "{{topic}}")),
            _graph("Lag of table raw", "none", (f"fogline_flow_raw_lag{{{_T}}}", "{{topic}}")),
            _stat("Since the last commit", "s", f"time() - max(fogline_flow_last_commit_timestamp_seconds{{{_T}}})"),
            _graph(
                "Events by outcome",
                "ops",
                (f"sum by (outcome) (rate(fogline_flow_events_total{{{_T}}}[$__rate_interval]))", "{{outcome}}"),
            ),
            _graph("Readings", "ops", (f"rate(fogline_flow_readings_total{{{_T}}}[$__rate_interval])", "readings")),
            _graph(
                "Records of table raw", "ops", (f"rate(fogline_flow_raw_records_total{{{_T}}}[$__rate_interval])", "records")
            ),
            _graph(
                "Micro-batch",
                "s",
                (_quantile(0.5, "fogline_flow_batch_seconds"), "median"),
                (_quantile(0.99, "fogline_flow_batch_seconds"), "99th percentile"),
            ),
            _graph("Micro-batches", "ops", (f"rate(fogline_flow_batches_total{{{_T}}}[$__rate_interval])", "micro-batches")),
            _stat("Maintenance runs that failed", "none", f"max(fogline_flow_maintenance_failed{{{_T}}})"),
        ),
    ),
    "commands": Dashboard(
        "Fogline: commands",
        _GATEWAYS,
        (
            _graph("Open commands", "none", (f"sum by (state) (fogline_bridge_commands{{{_T}}})", "{{state}}")),
            _graph(
                "Commands that ended",
                "none",
                (f"sum by (state) (increase(fogline_gateway_commands_total{{{_G}}}[10m]))", "{{state}}"),
            ),
            _table(
                "In doubt in the last day",
                "none",
                f'topk(20, sum by (gateway) (increase(fogline_gateway_commands_total{{{_G}, state="IN_DOUBT"}}[1d])))',
            ),
            _table(
                "Failed in the last day",
                "none",
                f'topk(20, sum by (gateway) (increase(fogline_gateway_commands_total{{{_G}, state="FAILED"}}[1d])))',
            ),
            _graph(
                "Commands for unknown devices",
                "none",
                (f"increase(fogline_bridge_unknown_devices_total{{{_T}}}[10m])", "{{instance}}"),
            ),
            _by_gateway("Gateways that are reached", "none", f"fogline_gateway_connected{{{_G}}}"),
        ),
    ),
}


def render(name: str) -> str:
    """Return the JSON of a dashboard, as Grafana imports it."""
    dashboard = DASHBOARDS[name]
    document = {
        "uid": f"fogline-{name}",
        "title": dashboard.title,
        "tags": ["fogline"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(*each) for each in dashboard.variables.items())]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(label: str, metric: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": f"label_values({metric}, {label})",
        "query": {"query": f"label_values({metric}, {label})", "refId": "variable"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    instant = panel.kind == "table"
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": _DATASOURCE,
        "gridPos": {"x": number % _COLUMNS * _WIDTH, "y": number // _COLUMNS * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": None if panel.unit in {"s", "celsius"} else 0},
            "overrides": [],
        },
        "options": {},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "instant": instant,
                "range": not instant,
                "format": "table" if instant else "time_series",
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def write() -> None:
    """Write all dashboards."""
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(render(name), "utf-8")


if __name__ == "__main__":
    write()
