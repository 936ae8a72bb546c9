"""Every metric of Fogline: name, type, meaning. docs/reference/metrics.md is generated from `METRICS`.

Names follow Prometheus: base units, `_total` for counters. The parts of a process count in plain objects with typed fields
(`MqttCounters`, `ShardCounters`, ...); `fogline.process.monitoring.metrics_server` reads them when it is asked.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple


class MetricType(StrEnum):
    """Prometheus' metric types, as far as Fogline uses them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric. `name` ends in `_total` for a counter. `labels` are the names of its labels, in order."""

    name: str
    type: MetricType
    meaning: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """The present value of a metric for one set of label values."""

    name: str
    value: "float | Histogram"
    labels: tuple[str, ...] = ()


BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of latencies, in seconds."""


@dataclass(slots=True)
class Histogram:
    """Latencies in seconds. Used on one thread; another thread may read it and may miss the latest observation."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one latency."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, as Prometheus wants them."""
        bounds, seen, found = (*map(str, BUCKETS_S), "+Inf"), 0, []
        for bound, count in zip(bounds, self.counts, strict=True):
            seen += count
            found.append((bound, float(seen)))
        return found


def samples_of(prefix: str, counters: Any, labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    """Yield a sample for each field of a dataclass of counters. A dictionary's keys become its last label.

    Field `received` of prefix `mqtt` is `fogline_mqtt_received_total`, or `fogline_mqtt_received` if `METRICS` has that.
    """
    for each in fields(counters):
        stem = f"fogline_{prefix}_{each.name}"
        name = stem if stem in METRICS else f"{stem}_total"
        value = getattr(counters, each.name)
        if isinstance(value, dict):
            yield from (Sample(name, count, (*labels, str(key))) for key, count in list(value.items()))
        else:
            yield Sample(name, value, labels)


_COUNTER, _GAUGE, _HISTOGRAM = MetricType
_MEANINGS = {  # Meaning by name, for each part of a process and each type. A part or a name may be followed by its label.
    ("process", _GAUGE): {
        "tasks": "asyncio tasks of the event loop",
        "connections": "open AMQP connections",
        "unsettled": "AMQP messages that were sent or wait to be sent, and are not settled",
    },
    ("process", _COUNTER): {"spans_dropped": "spans that were not exported, as the trace collector was away or refused them"},
    ("outbox lane", _COUNTER): {
        "acknowledged": "messages of devices (arrivals) that the gateway acknowledged",
        "stored": "events that got a sequence",
        "duplicate": "retransmissions of devices that the outbox recognised and did not store again",
        "dead": "arrivals that were stored as a dead letter",
        "sent": "events handed to the connection, retransmissions included",
        "settled": "events that the bridge accepted",
        "quarantined": "events that the bridge rejected",
        "filtered": "arrivals that report-on-change discarded as unchanged",
        "dropped": "sequences that were removed because the disk was full or because they expired",
    },
    ("outbox lane", _GAUGE): {
        "backlog": "events that are stored and not yet settled",
        "oldest_seconds": "age of the oldest event that is not yet settled",
    },
    ("outbox", _GAUGE): {"file_bytes": "size of the outbox file, in bytes"},
    ("outbox", _COUNTER): {
        "rule_events rule outcome": "events with which a rule of the settings did something (docs/rules.md has the outcomes)",
    },
    ("credentials", _GAUGE): {
        "devices": "devices that have, or had, keys, as far as this gateway may hear them",
        "complete": "0 while the gateway has lost these keys, and refuses all CoAP messages without protection",
    },
    ("history", _GAUGE): {
        "events": "events that a rule kept back, and that keep_days keeps at the gateway",
        "file_bytes": "size of the file of these events, in bytes",
    },
    ("history", _COUNTER): {"forgotten": "kept events that were deleted before their time, because the file was full"},
    ("uplink", _GAUGE): {"connected": "1 while a bridge serves this gateway, else 0"},
    ("uplink", _COUNTER): {"connections": "connections on which a bridge answered hello"},
    ("uplink", _HISTOGRAM): {"settlement_seconds": "time from sending a batch to its settlement"},
    ("downlink", _COUNTER): {
        "received": "commands that the bridge sent",
        "known": "commands that were in the journal already",
        "refused": "commands that the gateway did not accept",
        "executed": "commands handed to an adapter",
        "succeeded": "commands that ended SUCCEEDED",
        "failed": "commands that ended FAILED",
        "rejected": "commands that ended REJECTED",
        "expired": "commands that ended EXPIRED",
        "cancelled": "commands that ended CANCELLED",
        "in_doubt": "commands that ended IN_DOUBT",
        "unknown": "replies of devices that belong to no command",
    },
    ("mqtt", _GAUGE): {"connected": "clients that are connected"},
    ("mqtt", _COUNTER): {
        "connections": "TCP connections accepted",
        "received": "PUBLISH packets, wills, presence events and command responses handed to the outbox",
        "acknowledged": "PUBACK and PUBREC packets sent",
        "completed": "PUBCOMP packets sent",
        "refused": "CONNECT packets that were refused",
        "over_limit": "connections closed because there were too many, or no room for their unfinished packets",
        "left": "connections that ended with DISCONNECT",
        "lost": "connections that ended without DISCONNECT",
        "malformed": "connections closed because the client violated the protocol",
        "taken_over": "connections closed because the same client connected again",
        "timed_out": "connections closed for want of a CONNECT or because the Keep Alive passed",
        "slow_reader": "connections closed because the client did not read",
        "stalled_command": "connections closed because a command was not acknowledged by its deadline",
        "shut_down": "connections closed because the gateway stopped",
        "logins_postponed": 'CONNECT packets answered "server busy", because too many passwords waited to be checked',
        "slowed": "pauses in reading a connection that exceeded its rate",
        "notes_dropped": "presence events discarded because too many waited",
        "properties_dropped": "events whose user properties were left out because they were too long",
        "subscribed": "topic filters granted",
        "subscriptions_refused": "topic filters refused",
        "sessions_restored": "sessions that survived a restart of the gateway",
        "sessions_unreadable": "stored sessions that could not be decoded",
        "sessions_dropped": "sessions discarded because there were too many",
        "commands": "commands handed to the MQTT server",
        "commands_taken": "commands that the device acknowledged",
        "commands_not_sent": "commands that were certainly not sent",
        "commands_lost": "commands whose connection ended before the acknowledgement",
        "commands_refused": "commands that cannot be sent to the device",
        "commands_resent": "PUBLISH and PUBREL packets sent again on a new connection",
        "answers": "command responses of devices",
        "forwarded": "PUBLISH packets with events or messages of rules that were sent to subscribers",
        "forward_discarded reason": "events that a subscriber did not get: `queue` or `qos0`, as it was too slow or away, or "
        "`size`, as it accepts no packet of that size",
    },
    ("coap", _COUNTER): {
        "datagrams": "datagrams read",
        "dropped": "datagrams discarded because there were too many",
        "cut": "datagrams discarded because they were too long",
        "malformed": "datagrams that are not CoAP",
        "duplicates": "messages with a Message ID that was seen before",
        "unsent": "responses that the system did not send",
        "received": "requests handed to the outbox",
        "acknowledged": "requests answered after the event was stored",
        "blocks": "blocks answered 2.31 Continue",
        "slowed": "requests answered 5.03 because the outbox had no room",
        "too_many": "requests answered 4.29",
        "separate": "separate responses",
        "undelivered": "separate responses that were reset or not acknowledged in time",
        "asks": "requests that waited for a command",
        "asks_over_limit": "requests for a command that were refused because too many waited",
        "observations": "registrations of devices that observe their commands",
        "observations_over_limit": "registrations that were refused because too many devices observed",
        "commands": "commands sent",
        "answers": "responses of devices to commands",
        "unsealed": "requests that came under OSCORE",
        "challenges": "requests under OSCORE answered with a challenge, because they could be recorded ones",
        "synchronized": "challenges that a device has answered",
        "refused reason": "requests answered with another error",
    },
    ("bodies", _GAUGE): {"uploads": "large bodies that devices send at this time"},
    ("bodies", _COUNTER): {
        "whole": "large bodies that came whole",
        "given_up": "large bodies that did not come whole",
        "bytes": "bytes of large bodies that came whole",
        "refused reason": "large bodies that could not begin: too large, or with private fields",
    },
    ("coap_dtls", _GAUGE): {"sessions": "DTLS sessions that are open"},
    ("coap_dtls", _COUNTER): {
        "hellos": "ClientHello messages, with and without a cookie",
        "handshakes": "handshakes in which a device proved its key",
        "dropped": "datagrams without a session or a handshake that were discarded because there were too many",
        "retransmitted": "flights of handshakes that were sent again because the client was silent",
        "replaced": "sessions that ended for a new one: of the same address or device, or because there were too many",
        "moved": "changes of the address of a device with a connection id",
        "ended": "sessions that ended, for any reason",
        "idle": "sessions that ended because the device was silent for too long",
        "revoked": "sessions that ended because their key was revoked, or its time was over",
        "refused reason": "handshakes, records and datagrams that were refused",
    },
    ("http", _GAUGE): {"connected": "connections that are open"},
    ("http", _COUNTER): {
        "connections": "TCP connections accepted",
        "over_limit": "connections beyond `max_connections`: one of them was closed",
        "timed_out": "connections closed because a request did not come whole in time",
        "malformed": "requests that are not HTTP",
        "handshakes_refused": "connections closed because the TLS handshake failed, or did not end in time",
        "received": "requests handed to the outbox",
        "acknowledged": "requests answered after the event was stored",
        "slowed": "requests answered 503 because the outbox had no room",
        "limited": "requests answered 429 because the device was too fast",
        "logins_refused": "requests answered 401",
        "logins_postponed": "requests answered 503, because too many passwords waited to be checked",
        "asks": "requests that waited for a command",
        "asks_over_limit": "requests for a command that were answered at once because too many waited",
        "commands": "commands sent in a response",
        "commands_taken": "commands that the device has read",
        "commands_lost": "commands whose connection ended before the device had certainly read them",
        "answers": "responses of devices to commands",
        "refused reason": "requests answered with an error, 503 for want of room excepted",
    },
    ("mqtt_client client", _GAUGE): {"connected": "1 while connected to the broker, else 0"},
    ("mqtt_client client", _COUNTER): {
        "connections": "CONNACK packets that accepted the connection",
        "failures": "attempts and connections that ended with an error",
        "sessions_lost": "connections on which the broker no longer had the session",
        "received": "PUBLISH packets received",
        "again": "PUBLISH packets received with the DUP flag",
        "stored": "messages stored as events",
        "duplicate": "messages that the outbox recognised as retransmissions",
        "dead": "messages stored as dead letters",
        "learned": "lists that name the devices of a broker, such as those of Zigbee2MQTT",
        "ignored reason": "messages that are not events",
        "acknowledged": "PUBACK packets sent",
        "unacknowledged": "messages stored after their connection had ended",
        "paused": "pauses in reading because the outbox had no room",
    },
    ("mqtt_client_commands client", _COUNTER): {
        "published": "commands published at the broker",
        "confirmed": "commands that the broker has confirmed (PUBACK)",
        "refused": "commands that the broker or the profile refused",
        "answered": "commands that a message of the device or its program decided",
        "doubted": "commands whose outcome is not known",
    },
    ("ble", _GAUGE): {
        "scan reason": "1 for the reason of the present scan: `passive`, or what makes it active: `setting`, `profile`, "
        "`unsupported` or `refused` by BlueZ, `silent` (the passive scan was), `sensor`",
    },
    ("ble", _COUNTER): {
        "heard": "advertisements that BlueZ reported",
        "taken": "advertisements that a profile accepts",
        "stored": "advertisements and values stored as events",
        "duplicate": "advertisements and values recognised as repeated",
        "filtered": "advertisements and values discarded as unchanged",
        "dead": "advertisements and values stored as dead letters",
        "unreadable": "advertisements that cannot be encoded",
        "slowed": "advertisements discarded because the outbox had no room",
        "crowded": "advertisements of devices beyond `max_devices`",
        "limited": "advertisements of one device beyond `device_events_s`",
        "silent": "times that a device was silent for longer than it may be",
        "connected": "connections to devices",
        "disconnected": "connections to devices that ended",
        "connect_failures": "attempts to connect that failed",
        "stale_links": "connections of a former run that were closed",
        "notify_retries": "repeated requests for notifications",
        "values": "values of characteristics handed to the outbox",
        "read_failures": "reads of characteristics that failed",
        "commands": "writes to characteristics",
    },
    ("ble_supervisor", _COUNTER): {
        "bus_lost": "losses of the system bus",
        "daemon_lost": "times that bluetoothd ended or was replaced",
        "adapter_lost": "times that the adapter was unplugged",
        "powered_off": "times that the adapter was switched off",
        "silences": "times that the scanner received nothing for too long",
        "scan_stopped": "times that another program stopped the scan",
        "start_failures": "scanners that did not start",
        "scanners": "scanners started",
        "new_scanner": "recoveries by a new scanner",
        "new_clients": "recoveries by new connections to BlueZ",
        "power_cycle": "recoveries by switching the adapter off and on",
        "power_on": "times that the adapter was switched on",
        "reported": "faults that no recovery step removed",
        "recovered": "faults that ended",
    },
    ("bridge", _GAUGE): {
        "shards": "shards of the tenant, owned by this bridge or not",
        "gateways": "gateways that are connected",
        "clients": "operators and other AMQP clients that are connected",
        "keyed_devices": "devices that have, or had, keys",
        "gateways_behind": "connected gateways that do not have the newest keys of their devices",
        "queued_bytes": "bytes that wait for a Kafka transaction",
        "unfinished_bytes": "bytes of messages that have not come whole",
        "handshakes": "connections whose peers have not been let in yet",
        "commands state": "commands that this bridge holds, by state",
        "via_connected via": "1 while this bridge is connected to a router or broker of `[[bridge.via]]`, else 0",
        "via_gateways": "gateways that are connected by way of them",
        "silent_devices type lane": "registered devices that are silent for longer than `[[fleet.silent]]` allows, by type (at "
        "most 100, then `other`) and lane (empty: any). Each bridge counts all devices of the tenant",
    },
    ("bridge", _COUNTER): {
        "connections_refused": "AMQP connections refused because there were too many",
        "via_refused": "messages by way of a router or broker that did not count; the audit has the reasons",
        "unknown_devices": "commands refused because no gateway reaches the device",
    },
    ("api", _GAUGE): {
        "connections": "HTTP connections that are open",
        "streams": "event streams that are open",
        "waits": "requests that wait for a command",
        "users": "users that are logged in at the bridge",
        "commands": "commands that can be listed and read",
    },
    ("api", _COUNTER): {
        "requests status": "responses, by the first digit of their status",
        "connections_refused": "HTTP connections closed because there were too many",
        "logins_refused": "requests with a wrong user name or password",
    },
    ("gateway gateway", _GAUGE): {
        "connected": "1 while the gateway is connected to this bridge, else 0",
        "last_seen_timestamp_seconds": "time of its last message; after a bridge's start, of its last event in Kafka",
        "certificate_end_timestamp_seconds": "time at which the certificate of its last connection ends",
        "version_info version": "1, for the version of its last statistics",
        "uptime_seconds": "time since its process started",
        "clock_synchronized": "1 while it knows that its clock is right, else 0",
        "clock_ahead_seconds": "its clock compared with the bridge's; positive if it is ahead",
        "outbox_used_bytes": "bytes of its outbox file that are in use",
        "outbox_max_bytes": "its `outbox.max_bytes`",
        "outbox_events lane": "events that are stored and not yet settled",
        "outbox_oldest_seconds lane": "age of the oldest event that is not yet settled",
        "disk_size_bytes": "size of the disk that holds the outbox",
        "disk_free_bytes": "free bytes of the file system that holds the outbox",
        "disk_life_used_ratio": "share of its life that an eMMC reports as used, in steps of 0.1",
        "temperature_celsius": "temperature of its processor",
        "undervoltage": "1 while the supply voltage of a Raspberry Pi is too low, else 0",
        "throttled": "1 while a Raspberry Pi is slowed down by heat or low voltage, else 0",
        "bluetooth_working": "1 while its Bluetooth adapter works, else 0; absent without `[ble]`",
    },
    ("gateway gateway", _COUNTER): {
        "statistics": "statistics that the bridge received from it",
        "dead": "arrivals that it stored as a dead letter since it started",
        "dropped": "sequences that it removed because the disk was full or because they expired, since it started",
        "quarantined": "events that the bridge rejected since it started",
        "commands state": "commands that ended since it started, by final state",
        "disk_written_bytes": "bytes that all programs wrote to the disk that holds the outbox, since boot",
        "written_bytes": "bytes that the gateway's process wrote since it started",
    },
    ("shard shard", _GAUGE): {"ready": "1 while the shard accepts batches, else 0"},
    ("shard shard", _COUNTER): {
        "landed": "events committed to Kafka",
        "duplicate": "retransmissions of gateways below the high-water mark",
        "loose": "events of AMQP clients without a stream",
        "transactions": "Kafka transactions committed",
        "retaken": "times that the shard was taken again after an error",
    },
    ("shard shard", _HISTOGRAM): {
        "commit_seconds": "time that a commit of a Kafka transaction took",
        "settlement_seconds": "time from a committed transaction until consumers can read it and its deliveries are settled",
    },
    ("flow", _GAUGE): {
        "lag topic": "records in the raw topic that the flow has not processed",
        "last_commit_timestamp_seconds": "time of the last micro-batch, in seconds since 1970",
        "maintenance_failed": "runs of the tables' maintenance beside the flow that failed",
        "raw_lag topic": "records in the raw topic that are not in table `raw`",
        "raw_last_commit_timestamp_seconds": "time of the last commit to table `raw`, in seconds since 1970",
    },
    ("flow", _COUNTER): {
        "raw_records": "records written to table `raw`",
        "batches": "micro-batches finished",
        "events outcome": "events written to the table, by outcome",
        "readings": "readings written to the table",
        "parsers_returned": "times that the flow went back from a deployed parser to the former one",
    },
    ("flow", _HISTOGRAM): {"batch_seconds": "time that a micro-batch took"},
}


def _metrics() -> Iterator[Metric]:
    for (part, kind), meanings in _MEANINGS.items():
        prefix, *labels = part.split()
        for name, meaning in meanings.items():
            stem, *own = name.split()
            end = "_total" if kind is MetricType.COUNTER else ""
            yield Metric(f"fogline_{prefix}_{stem}{end}", kind, meaning, (*labels, *own))


METRICS: dict[str, Metric] = {each.name: each for each in _metrics()}
