"""Record of all calls and results of an outbox, compared with a file that is found later."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field

from fogline.commands.command import CommandState
from fogline.events.codec import decode_event
from fogline.events.event import Arrival, Lane, Receipt
from fogline.events.gap import GAP_CONTENT_TYPE
from fogline.events.identity import Retransmission, UniqueId
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.outbox.rows.streams import COMMIT_ID_BYTES, Streams
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival

ORDER = [CommandState.QUEUED, CommandState.SENDING, CommandState.SUCCEEDED]


def arrival(n: int, *, again: bool = False) -> Arrival:
    """Arrival number n: by turns with a slot, with nothing, with a slot and an id; each fifth is an alarm."""
    return make_arrival(
        n,
        lane=Lane.TELEMETRY if n % 5 else Lane.ALARM,
        retransmission=Retransmission(b"mqtt", again, number=n) if n % 3 != 1 else None,
        evidence=UniqueId(b"%d" % n) if n % 3 == 2 else None,
    )


@dataclass(frozen=True)
class Note:
    """Something said outside. `what`: one of the lists of `Books`; `of`: what it is about."""

    what: str
    of: object
    value: object = None


@dataclass
class Found:
    """Errors of a file. `lost`: acknowledged, not handed on, not there."""

    lost: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Books:
    """All that was said up to a moment. Asked: it may be in the file. Told: it must be."""

    put: set = field(default_factory=set)
    acknowledged: set = field(default_factory=set)
    may_go: set = field(default_factory=set)
    forgotten: set = field(default_factory=set)
    set_aside: set = field(default_factory=set)
    asked: dict = field(default_factory=dict)
    told: dict = field(default_factory=dict)
    commands: dict = field(default_factory=dict)

    def take(self, note: Note) -> None:
        held = getattr(self, note.what)
        if isinstance(held, dict):
            held.setdefault(note.of, []).append(note.value)
        else:
            held |= note.of if isinstance(note.of, frozenset) else {note.of}

    def judge(self, connection) -> Found:
        """Hold an outbox's file that was just opened against what was said."""
        found = Found()
        found.wrong += [f"integrity: {text}" for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
        self._judge_events(connection, found)
        judge_streams(connection, found)
        self._judge_journal(connection, found)
        self._judge_kept(connection, found)
        return found

    async def judge_resends(self, outbox: Outbox) -> Found:
        """Send everything that was acknowledged once more, marked as sent before: each has to be recognised."""
        marked = sorted(n for n in self.acknowledged - self.forgotten if n % 3 != 1)
        told = [asyncio.get_running_loop().create_future() for _ in marked]
        for n, done in zip(marked, told, strict=True):
            outbox.port.put(arrival(n, again=True), done.set_result)
        receipts = zip(marked, await within(asyncio.gather(*told), "not acknowledged"), strict=True)
        return Found(wrong=[f"resend of {n}: {receipt}" for n, receipt in receipts if receipt is not Receipt.DUPLICATE])

    def _judge_events(self, connection, found: Found) -> None:
        bodies = connection.execute("SELECT body FROM event UNION ALL SELECT body FROM quarantine").fetchall()
        times = Counter(numbers(body for (body,) in bodies))
        aside = set(numbers(body for (body,) in connection.execute("SELECT body FROM quarantine")))
        found.lost |= self.acknowledged - self.may_go - set(times)
        found.wrong += [f"event {n} is there {count} times" for n, count in times.items() if count > 1]
        found.wrong += [f"event {n} was never put" for n in times.keys() - self.put]
        found.wrong += [f"event {n} is not set aside" for n in self.set_aside - aside]

    def _judge_journal(self, connection, found: Found) -> None:
        there = dict(connection.execute("SELECT id, state FROM command").fetchall())
        for command, states in self.commands.items():
            asked = [state for state, is_told in states if not is_told]
            told = [state for state, is_told in states if is_told]
            if told and (command not in there or ORDER.index(there[command]) < ORDER.index(told[-1])):
                found.wrong.append(f"command {command} is {there.get(command)}, was {told[-1]}")
            if command in there and there[command] not in asked:
                found.wrong.append(f"command {command} is {there[command]}, which nobody asked for")
        replies = [decode_event(unpack_body(body)) for (body,) in connection.execute("SELECT body FROM event")]
        of_replies = sorted(event.commandid for event in replies if event.lane is Lane.REPLY)
        over = sorted(command for command, state in there.items() if state == CommandState.SUCCEEDED)
        if of_replies != over:
            found.wrong.append(f"commands {over} are over, there are replies of {of_replies}")

    def _judge_kept(self, connection, found: Found) -> None:
        there = dict(connection.execute("SELECT key, value FROM kept").fetchall())
        for key, asked in self.asked.items():
            known = len(self.told.get(key, ()))
            if there.get(key) not in ([None] if not known else [asked[known - 1]]) + asked[known:]:
                found.wrong.append(f"kept under {key}: {there.get(key)}, asked {asked}, told {known} times")


def judge_streams(connection, found: Found) -> None:
    """Sequences without holes from what is settled to the head, and a commit id of every row."""
    for stream in Streams(connection).everything():
        rows = connection.execute("SELECT sequence, commit_id FROM event WHERE stream = ? ORDER BY sequence", (stream.number,))
        sequences, commit_ids = zip(*rows.fetchall(), strict=True) if stream.backlog else ((), ())
        if list(sequences) != list(range(stream.settled + 1, stream.head + 1)):
            found.wrong.append(f"stream {stream.stream} holds {sequences}, settled {stream.settled}, head {stream.head}")
        elif {len(each) for each in commit_ids} - {COMMIT_ID_BYTES}:
            found.wrong.append(f"stream {stream.stream}: the commit ids are {commit_ids}")
        elif stream.counts.stored != stream.head:
            found.wrong.append(f"stream {stream.stream}: {stream.counts.stored} counted, head {stream.head}")


def numbers(bodies) -> list[int]:
    """The numbers of the arrivals among events."""
    events = map(decode_event, map(unpack_body, bodies))
    plain = [event for event in events if event.adapter == "mqtt" and event.content_type != GAP_CONTENT_TYPE]
    return [json.loads(event.data)["n"] for event in plain]
