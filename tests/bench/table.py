"""The rows of the table, with the goals that some of them have. docs/proofs/performance.md says how to read them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line. `goal` is a least value, or with `at_most` a greatest."""

    text: str
    goal: float | None = None
    at_most: bool = False
    digits: int = 0

    def word(self, value: float) -> str:
        """The goal and what became of it; empty without one."""
        if self.goal is None:
            return ""
        sign = "<=" if self.at_most else ">="
        return f"{sign} {self.goal:,.{self.digits}f}  {'met' if self.met(value) else 'SHORT'}"

    def met(self, value: float) -> bool:
        """Return True if a value reaches the goal."""
        return self.goal is None or (value <= self.goal if self.at_most else value >= self.goal)


ROWS = {
    "memory.rss": Row("gateway alone, RSS in MB after 25 times as many events", 60, at_most=True, digits=1),
    "memory.pss": Row("gateway alone, PSS in MB after 25 times as many events", 60, at_most=True, digits=1),
    "start.empty": Row("gateway, start until a device is served, empty outbox, s", 1.5, at_most=True, digits=2),
    "start.empty_cpu": Row("of it CPU time, s", digits=2),
    "start.empty_rss": Row("RSS then, MB", 60, at_most=True, digits=1),
    "start.empty_pss": Row("PSS then, MB", 60, at_most=True, digits=1),
    "start.killed": Row("the same after SIGKILL, 25 times as many events waiting, s", 1.5, at_most=True, digits=2),
    "start.killed_cpu": Row("of it CPU time, s", digits=2),
    "start.killed_rss": Row("RSS then, MB", 60, at_most=True, digits=1),
    "start.killed_pss": Row("PSS then, MB", 60, at_most=True, digits=1),
    "bridge.events": Row("bridge AMQP -> Kafka, settled events/s"),
    "bridge.cpu": Row("bridge, CPU s per 1000 events", digits=3),
    "bridge.producer": Row("bare idempotent producer, events/s"),
    "bridge.producer_cpu": Row("bare idempotent producer, CPU s per 1000 events", digits=3),
    "bridge.ratio": Row("bridge / bare producer", 0.5, digits=2),
    "bodies.stored": Row("body of 34 MB over HTTP until the gateway acknowledges it, MB/s", digits=1),
    "bodies.plain": Row("the same to a plain server that syncs a file, MB/s", digits=1),
    "bodies.stored_ratio": Row("gateway / plain copy, to the disk", digits=2),
    "bodies.line": Row("body of 17 MB over HTTP until it is in Kafka, line of 40 Mbit/s, MB/s", digits=2),
    "bodies.plain_line": Row("the same bytes copied over TCP on the same line, MB/s", digits=2),
    "bodies.line_ratio": Row("body / plain copy, over the line", digits=2),
    "bridges.one": Row("one bridge with a quarter of a core, settled events/s"),
    "bridges.two": Row("two bridges with a quarter of a core each, settled events/s"),
    "bridges.ratio": Row("two bridges / one", digits=2),
    "store.commit_folder": Row("a commit to a table in a folder, ms", digits=1),
    "store.commit_s3": Row("a commit to a table on an S3 server, ms", digits=1),
    "store.commit_ratio": Row("commit, S3 / folder", digits=2),
    "store.flow_folder": Row("flow, tables in a folder, events/s"),
    "store.flow_s3": Row("flow, tables on an S3 server, events/s"),
    "store.flow_ratio": Row("flow, S3 / folder", digits=2),
    "store.one": Row("flow on one executor with a quarter of a core, events/s"),
    "store.two": Row("flow on two executors with a quarter of a core each, events/s"),
    "store.executors": Row("two executors / one", digits=2),
    "reaction.gateway_p50": Row("a rule's command, from PUBLISH to the device's PUBLISH, median in ms", digits=2),
    "reaction.gateway_p99": Row("of it p99, ms", digits=2),
    "reaction.mosquitto_p50": Row("mosquitto's plain forward, from PUBLISH to PUBLISH, median in ms", digits=2),
    "reaction.mosquitto_p99": Row("of it p99, ms", digits=2),
    "scale.streams": Row("10,000 gateways: streams, MB", digits=1),
    "scale.routes": Row("200,000 devices: routes, MB", digits=1),
    "scale.registry": Row("200,000 devices: registry, MB", digits=1),
    "scale.commands": Row("200,000 open commands, MB", digits=1),
    "scale.process": Row("bridge's state of 10,000 gateways and 200,000 devices, RSS in MB", 1000, at_most=True, digits=1),
    "crowd.hellos": Row("10,000 gateways over TLS: hello, one event landed, gone; gateways/s"),
    "crowd.memory": Row("bridge with 10,000 gateways, 1,000 of them connected, peak RSS in MB", 1000, at_most=True, digits=1),
    "crowd.taken": Row("that bridge killed, until another one has taken all shards, s", 15, at_most=True, digits=1),
    "crowd.takeover": Row("until each shard has served a gateway again, s", digits=1),
    "crowd.last": Row("until the last of the 1,000 gateways is served again, s", digits=1),
    "crowd.heir": Row("the heir's peak RSS in MB", 1000, at_most=True, digits=1),
    **{
        f"way_out.{name}_{key}": Row(f"command beside a backlog, {text}, {what}", digits=1)
        for key, what in (("p50", "p50 ms"), ("p99", "p99 ms"), ("cpu", "CPU ms per MB, both ends"))
        for name, text in (
            ("plain", "plain text"),
            ("tls", "TLS"),
            ("websocket", "WebSocket"),
            ("wss", "WebSocket over TLS"),
            ("socks5", "TLS through SOCKS5"),
            ("http", "TLS through CONNECT"),
            ("wss_http", "WebSocket over TLS through CONNECT"),
        )
    },
    **{
        f"via.{key}_{name}": Row(f"outbox to Kafka {text}, {what}", digits=digits)
        for key, what, digits in (
            ("events", "settled events/s", 0),
            ("cpu_gateway", "gateway's CPU s per 1000 events", 3),
            ("cpu_bridge", "bridge's CPU s per 1000 events", 3),
            ("cpu_between", "CPU s per 1000 events of what is between", 3),
        )
        for name, text in (("direct", "direct, TLS"), ("router", "through a router"), ("broker", "through Artemis"))
        if (key, name) != ("cpu_between", "direct")
    },
    "via.router": Row("outbox to Kafka through a router / direct", digits=2),
    "via.broker": Row("outbox to Kafka through Artemis / direct", digits=2),
    "via.signature_100": Row("signature of a batch of 100 events, both ends, us per event", digits=2),
    "via.signature_500": Row("signature of a batch of 500 events, both ends, us per event", digits=2),
    "rules.events_plain": Row("gateway without rules, one connection, events/s"),
    "rules.events_rules": Row("gateway with 20 rules over 100 devices, events/s"),
    "rules.events": Row("gateway with 20 rules / without", 0.8, digits=2),
    "rules.cpu_plain": Row("gateway without rules, CPU s per 1000 events", digits=3),
    "rules.cpu_rules": Row("gateway with 20 rules, CPU s per 1000 events", digits=3),
    "rules.calm_cpu_plain": Row("the same without rules at 200 events/s", digits=3),
    "rules.calm_cpu_rules": Row("the same with 20 rules at 200 events/s", digits=3),
    "rules.calm": Row("CPU without rules / with 20 rules, at 200 events/s", 0.8, digits=2),
    "last_hop.cpu_plain": Row("gateway, plain CoAP, CPU s per 1000 events", digits=3),
    "last_hop.cpu_ccm_8": Row("gateway, CoAP over DTLS (PSK, AES-128-CCM-8), CPU s per 1000 events", digits=3),
    "last_hop.cpu_gcm": Row("gateway, CoAP over DTLS (ECDHE_PSK, AES-128-GCM), CPU s per 1000 events", digits=3),
    "last_hop.cpu_oscore": Row("gateway, CoAP under OSCORE (AES-CCM-16-64-128), CPU s per 1000 events", digits=3),
    "last_hop.oscore": Row("CPU under OSCORE / plain", 1.5, at_most=True, digits=2),
    "last_hop.ccm_8": Row("CPU over DTLS (CCM-8) / plain", 1.5, at_most=True, digits=2),
    "last_hop.gcm": Row("CPU over DTLS (GCM) / plain", 1.5, at_most=True, digits=2),
    "last_hop.handshake_ccm_8": Row("a handshake with PSK, CPU ms at the gateway", digits=2),
    "last_hop.handshake_gcm": Row("a handshake with ECDHE_PSK, CPU ms at the gateway", digits=2),
    "hot.gateway": Row("one hot gateway, events/s that it can send"),
    "hot.gateway_cpu": Row("the gateway, CPU s per 1000 events", digits=3),
    "hot.bridge": Row("its shard, settled events/s from one gateway"),
    "hot.bridge_cpu": Row("the bridge, CPU s per 1000 events", digits=3),
    "hot.shard": Row("its shard / the gateway", 1.0, digits=2),
    "hot.flow_one": Row("flow over its one partition, one task, events/s"),
    "hot.flow_split": Row("the same partition, a task for each CPU, events/s"),
    "hot.flow_spread": Row("as many events in as many partitions, events/s"),
    "hot.flow_cpu_one": Row("flow, one task, CPU s per 1000 events", digits=3),
    "hot.flow_cpu_split": Row("flow, a task for each CPU, CPU s per 1000 events", digits=3),
    "hot.spread": Row("a task for each CPU / one task", 1.3, digits=2),
    "hot.as_partitions": Row("split by tasks / spread over partitions", 0.85, digits=2),
    "tls.gateway_plain": Row("gateway in plain text, one connection, events/s"),
    "tls.gateway_tls": Row("gateway over TLS, one connection, events/s"),
    "tls.gateway": Row("gateway over TLS / in plain text", 0.8, digits=2),
    "tls.gateway_cpu_plain": Row("gateway in plain text, CPU s per 1000 events", digits=3),
    "tls.gateway_cpu_tls": Row("gateway over TLS, CPU s per 1000 events", digits=3),
    "tls.bridge_plain": Row("bridge in plain text, settled events/s"),
    "tls.bridge_tls": Row("bridge over TLS, settled events/s"),
    "tls.bridge": Row("bridge over TLS / in plain text", 0.8, digits=2),
    "tls.bridge_cpu_plain": Row("bridge in plain text, CPU s per 1000 events", digits=3),
    "tls.bridge_cpu_tls": Row("bridge over TLS, CPU s per 1000 events", digits=3),
    "flow.events": Row("flow Kafka -> Delta and Kafka, events/s"),
    "flow.cpu": Row("flow, CPU s per 1000 events", digits=3),
    "flow.raw": Row("flow with table raw, events/s until both are done"),
    "flow.raw_cpu": Row("flow with table raw, CPU s per 1000 events", digits=3),
    "flow.raw_ratio": Row("flow with table raw / without", digits=2),
    "flow.plain": Row("plain PySpark job Kafka -> Delta, events/s"),
    "flow.plain_cpu": Row("plain job, CPU s per 1000 events", digits=3),
    "flow.ratio": Row("flow / plain job", 1.0, digits=2),
    "flow.raw_plain": Row("flow with table raw / plain job", 0.8, digits=2),
    "replay.live": Row("flow with table raw, events/s, beside a replay"),
    "replay.events": Row("replay from table raw that changes every event, events/s"),
    "replay.ratio": Row("replay / flow", 0.8, digits=2),
    "commits.1000": Row("micro-batch of 2 events, tables with 1,000 commits, s", digits=2),
    "commits.10000": Row("the same, 10,000 commits, s", digits=2),
    "commits.50000": Row("the same, 50,000 commits, s", digits=2),
    "commits.ratio_10000": Row("10,000 commits / 1,000", 1.3, at_most=True, digits=2),
    "commits.ratio_50000": Row("50,000 commits / 1,000", 1.3, at_most=True, digits=2),
    "dedup.load_few": Row("writing 1 million rows of events, s", digits=1),
    "dedup.index_few": Row("maintenance that indexes their ids, s", digits=1),
    "dedup.load_many": Row("writing 99 million more, s", digits=1),
    "dedup.index_many": Row("maintenance that indexes their ids, s", digits=1),
    "dedup.few": Row("micro-batch of 1,000 events with own ids, 1 million rows, s", digits=2),
    "dedup.many": Row("the same, 100 million rows, s", digits=2),
    "dedup.ratio": Row("100 million rows / 1 million", 1.5, at_most=True, digits=2),
    "keys.fetched": Row("look-up of 1,000 ids in 150 million rows on S3, key files fetched each time, s", digits=2),
    "keys.first": Row("the same, first one with copies on this disk, s", digits=2),
    "keys.next": Row("the same, the next one, s", digits=3),
    "keys.restarted": Row("the same, the first one of a flow that was started again, s", digits=2),
    "keys.ratio": Row("look-up with copies / fetched each time", 0.2, at_most=True, digits=3),
    "closed_day.before": Row("files of a day at 200 events/s, a commit every 5 s, in the table that has most"),
    "closed_day.after": Row("the same after maintenance", 20, at_most=True),
    "closed_day.seconds": Row("that maintenance of both tables and their key files, s", digits=1),
    "ledger.load": Row("writing 100 million rows of events and as many of readings, s", digits=1),
    "ledger.first": Row("ledger over all of them, s", 300, at_most=True, digits=1),
    "ledger.peak": Row("the same, peak of memory, MB", 2000, at_most=True),
    "ledger.again": Row("ledger after 100,000 more rows in each, s", digits=1),
    "fleet.count": Row("maintenance that counts 10 million events of 10,000 devices, CPU s", digits=2),
    "fleet.coverage": Row("question to the fleet: coverage, CPU s", 5, at_most=True, digits=2),
    "fleet.coverage_bare": Row("the same question to DuckDB over events, CPU s", digits=2),
    "fleet.silent": Row("question to the fleet: silent, CPU s", 5, at_most=True, digits=2),
    "fleet.silent_bare": Row("the same question to DuckDB over events, CPU s", digits=2),
    "fleet.late": Row("question to the fleet: late, CPU s", 5, at_most=True, digits=2),
    "fleet.late_bare": Row("the same question to DuckDB over events, CPU s", digits=2),
    "fleet.sizes": Row("question to the fleet: sizes, CPU s", 5, at_most=True, digits=2),
    "fleet.sizes_bare": Row("the same question to DuckDB over events, CPU s", digits=2),
    "fleet.health": Row("question to the fleet: health, CPU s", 5, at_most=True, digits=2),
    "fleet.health_bare": Row("the same question to DuckDB over events, CPU s", digits=2),
    "fleet.direct": Row("question to the fleet: sizes, before the count, CPU s", digits=2),
    "fleet.ratio": Row("all five / DuckDB over events", digits=2),
    "sink.rows": Row("sink, table readings to PostgreSQL, rows/s"),
    "sink.cpu": Row("sink, CPU s per million rows", digits=2),
    "sink.bare": Row("bare ADBC ingestion of the same rows from memory, rows/s"),
    "sink.spark": Row("Spark's JDBC, the same rows, rows/s"),
    "sink.spark_cpu": Row("Spark's JDBC, CPU s per million rows", digits=2),
    "sink.ratio": Row("sink / Spark's JDBC", 2.0, digits=2),
    "sink.sqlite": Row("sink, to SQLite, rows/s"),
    "sink.duckdb": Row("sink, to DuckDB, rows/s"),
    "sink.replay": Row("sink, a version that replaces every row in PostgreSQL, rows/s"),
    "windows.plain": Row("hourly windows by one plain aggregate over all rows, s", digits=1),
    "windows.first": Row("frames.windows, the first time, s", digits=1),
    "windows.first_ratio": Row("frames.windows, the first time / plain", digits=2),
    "windows.nothing": Row("frames.windows, no changes, s", digits=1),
    "windows.late": Row("frames.windows, 1,000 late rows over 100 days, s", digits=1),
    "windows.late_ratio": Row("frames.windows, late rows / plain", digits=2),
    "windows.live": Row("frames.windows, 1,000 rows of the last day, s", digits=1),
    "windows.live_ratio": Row("frames.windows, rows of the last day / plain", digits=2),
    "killers.clean": Row("flow without records that hurt their parser, events/s"),
    "killers.events": Row("flow with five records that hurt their parser, events/s"),
    "killers.ratio": Row("with five such records / without", 0.8, digits=2),
    "pages.alone_p50": Row("command over HTTP (ten a second), p50 ms", digits=1),
    "pages.alone_p99": Row("command over HTTP (ten a second), p99 ms", digits=1),
    "pages.beside_p50": Row("the same beside 200 open pages, p50 ms", digits=1),
    "pages.beside_p99": Row("the same beside 200 open pages, p99 ms", digits=1),
    "pages.ratio": Row("p99 beside pages / without", 1.5, at_most=True, digits=2),
    "pages.mib": Row("memory of the API for 200 open pages, MiB", digits=0),
    "pages.cpu": Row("CPU of the API for 200 open pages, of one CPU", digits=2),
    "commands.idle_p50": Row("command there and back, idle (ten a second), p50 ms", 8, at_most=True, digits=1),
    "commands.idle_p99": Row("command there and back, idle (ten a second), p99 ms", 30, at_most=True, digits=1),
    "commands.http_p50": Row("command there and back over HTTP, idle (ten a second), p50 ms", digits=1),
    "commands.http_p99": Row("command there and back over HTTP, idle (ten a second), p99 ms", digits=1),
    "commands.http_more": Row("over HTTP more than over AMQP, p50 ms", 5, at_most=True, digits=1),
    "commands.busy_p50": Row("command there and back at 2,000 events/s, p50 ms", 15, at_most=True, digits=1),
    "commands.busy_p99": Row("command there and back at 2,000 events/s, p99 ms", 60, at_most=True, digits=1),
    "commands.series_p50": Row("commands, each at once after the other, p50 ms", digits=1),
    "commands.series_p99": Row("commands, each at once after the other, p99 ms", digits=1),
    "commands.busy_series_p50": Row("the same at 2,000 events/s, p50 ms", digits=1),
    "commands.busy_series_p99": Row("the same at 2,000 events/s, p99 ms", digits=1),
    "commands.many_s": Row("1,000 open commands to 1,000 devices, first to last verdict, s", 5, at_most=True, digits=2),
    "commands.10mbit_p50": Row("command behind 20 MB at 10 Mbit/s, p50 ms", digits=1),
    "commands.10mbit_p99": Row("command behind 20 MB at 10 Mbit/s, p99 ms", 200, at_most=True, digits=1),
    "commands.1mbit_p50": Row("command behind 20 MB at 1 Mbit/s, p50 ms", digits=1),
    "commands.1mbit_p99": Row("command behind 20 MB at 1 Mbit/s, p99 ms", 700, at_most=True, digits=1),
}


def table(values: Mapping[str, float]) -> str:
    """One line for each row that has a value."""
    shown = [(row.text, f"{values[key]:,.{row.digits}f}", row.word(values[key])) for key, row in ROWS.items() if key in values]
    widths = [max(len(line[column]) for line in shown) for column in (0, 1)]
    return "\n".join(f"{text:<{widths[0]}}  {value:>{widths[1]}}  {word}".rstrip() for text, value, word in shown)


def short(values: Mapping[str, float]) -> list[str]:
    """The rows that miss their goal."""
    return [ROWS[key].text for key, value in values.items() if not ROWS[key].met(value)]
