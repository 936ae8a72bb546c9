"""Counts of the MQTT listener."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class MqttCounters:
    """Counts since the listener started. `fogline.process.monitoring.metrics` has their meanings."""

    connections: int = 0
    connected: int = 0
    received: int = 0
    acknowledged: int = 0
    completed: int = 0
    refused: int = 0
    over_limit: int = 0
    left: int = 0
    lost: int = 0
    malformed: int = 0
    taken_over: int = 0
    timed_out: int = 0
    slow_reader: int = 0
    stalled_command: int = 0
    shut_down: int = 0
    logins_postponed: int = 0
    slowed: int = 0
    notes_dropped: int = 0
    properties_dropped: int = 0
    subscribed: int = 0
    subscriptions_refused: int = 0
    sessions_restored: int = 0
    sessions_unreadable: int = 0
    sessions_dropped: int = 0
    commands: int = 0
    commands_taken: int = 0
    commands_not_sent: int = 0
    commands_lost: int = 0
    commands_refused: int = 0
    commands_resent: int = 0
    answers: int = 0
    forwarded: int = 0
    forward_discarded: dict[str, int] = field(default_factory=dict)
