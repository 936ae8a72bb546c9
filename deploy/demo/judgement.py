"""Lost, twice, or never sent? Sets of ids, and what became of commands, against each other. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from demo.orders import Order, Recorded
from fogline.command import State, may_become

Id = tuple[str, int]
"""Device and its counter."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What each place holds. `acknowledged`: written down by the devices; `sent`: the highest counter of each device.

    `kafka`, `table`: how often each id is there.
    """

    acknowledged: AbstractSet[Id]
    sent: Mapping[str, int]
    kafka: Counter[Id]
    table: Counter[Id]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`lost`: acknowledged, and missing in Kafka or the table. `duplicate`: in one of them more than once.

    `phantom`: there, but never sent. `unequal`: in Kafka or the table, but not in the other. `unacknowledged`: landed
    without the device having been told, which is right for what was in flight when it was stopped.
    """

    acknowledged: int
    kafka: int
    table: int
    lost: list[Id]
    duplicate: list[Id]
    phantom: list[Id]
    unequal: list[Id]
    unacknowledged: int

    @property
    def holds(self) -> bool:
        """Whether nothing is lost, twice, or made up."""
        return not (self.lost or self.duplicate or self.phantom or self.unequal)

    @property
    def equal(self) -> bool:
        """Whether the three sets are the same."""
        return self.holds and not self.unacknowledged

    @property
    def counts(self) -> list[tuple[str, int]]:
        """The sets by their sizes, in words: the first lines of every report."""
        return [
            ("acknowledged by the devices", self.acknowledged),
            ("in Kafka", self.kafka),
            ("in the table", self.table),
            ("lost", len(self.lost)),
            ("duplicate", len(self.duplicate)),
        ]

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        line = (
            f"{self.acknowledged:,} acknowledged, {self.kafka:,} in Kafka, {self.table:,} in the table: "
            f"lost {len(self.lost)}, duplicate {len(self.duplicate)}"
        )
        if self.phantom:
            line += f", never sent {len(self.phantom)}"
        if self.unequal:
            line += f", in only one of Kafka and table {len(self.unequal)}"
        if self.unacknowledged:
            line += f" ({self.unacknowledged} landed that no device was told of)"
        return line


def judge(evidence: Evidence) -> Judgement:
    """Compare the sets."""
    kafka, table = evidence.kafka.keys(), evidence.table.keys()
    landed = kafka | table
    twice = {each for counts in (evidence.kafka, evidence.table) for each, count in counts.items() if count > 1}
    return Judgement(
        acknowledged=len(evidence.acknowledged),
        kafka=len(kafka),
        table=len(table),
        lost=sorted((evidence.acknowledged - kafka) | (evidence.acknowledged - table)),
        duplicate=sorted(twice),
        phantom=sorted(each for each in landed if not 1 <= each[1] <= evidence.sent.get(each[0], 0)),
        unequal=sorted((kafka ^ table) - evidence.acknowledged),
        unacknowledged=len(landed - evidence.acknowledged),
    )


FINAL = (State.SUCCEEDED, State.FAILED, State.EXPIRED, State.IN_DOUBT, State.REJECTED)
"""How a command of the demo may end."""
UNTOUCHED = (State.EXPIRED, State.REJECTED)
"""Certain: the device never saw it."""


@dataclass(frozen=True, slots=True)
class CommandJudgement:
    """What became of the commands. `by_state`: how they ended. `unanswered`: the operator was told nothing.

    `resolved`: told in doubt, and known by now. `effects_max`: the most often that a device did one that must not be
    done twice; `effects_max_idempotent`: of the others. `p50_ms`, `p99_ms`: of those that succeeded with an answer.
    """

    sent: int
    by_state: dict[str, int]
    unanswered: int
    in_doubt: int
    resolved: int
    effects_max: int
    effects_max_idempotent: int
    p50_ms: float | None
    p99_ms: float | None
    problems: list[str]


def judge_commands(
    orders: Sequence[Order], records: Iterable[Recorded], effects: Mapping[tuple[str, str], int]
) -> CommandJudgement:
    """Hold what the operator was told, what is written down, and what the devices did against each other.

    `effects`: by device and command, how often it was done.
    """
    written: dict[str, list[Recorded]] = {}
    for each in records:
        written.setdefault(each.name, []).append(each)
    problems, by_state, resolved = list[str](), Counter[str](), 0
    for sent in orders:
        found = written.pop(sent.name, [])
        done = effects.get((sent.device, sent.name), 0)
        end = _end(sent, found[0] if found else None)
        wrong = _wrong(sent, found, end, done)
        problems += [f"command {sent.name} to {sent.device}: {each}" for each in wrong]
        by_state[end or "none"] += 1
        resolved += sent.state is State.IN_DOUBT and end is not State.IN_DOUBT
    asked = {(each.device, each.name) for each in orders}
    problems += [f"command {name} is written down, and nobody sent it" for name in written]
    problems += [f"{device} did {name}, and nobody asked it to" for device, name in effects if (device, name) not in asked]
    took = sorted(each.took_s * 1000 for each in orders if each.state is State.SUCCEEDED)
    return CommandJudgement(
        sent=len(orders),
        by_state={state: by_state[state] for state in sorted(by_state)},
        unanswered=sum(each.state is None for each in orders),
        in_doubt=by_state[State.IN_DOUBT],
        resolved=resolved,
        effects_max=_most(orders, effects, idempotent=False),
        effects_max_idempotent=_most(orders, effects, idempotent=True),
        p50_ms=round(took[len(took) // 2], 1) if took else None,
        p99_ms=round(took[len(took) * 99 // 100], 1) if took else None,
        problems=problems,
    )


def _end(sent: Order, record: Recorded | None) -> State | None:
    """How a command ended: a record is the newest that is known; a refusal may be none."""
    return record.state if record is not None else sent.state


def _wrong(sent: Order, found: Sequence[Recorded], end: State | None, done: int) -> Iterable[str]:
    """What contradicts what, in words."""
    if len(found) > 1:
        yield f"it is written down {len(found)} times"
    if sent.state is None:
        yield "its operator was told nothing"
    elif not found and sent.state not in UNTOUCHED and not sent.provisional:
        yield f"its operator reads {sent.state}, and there is no record"
    elif end is not sent.state and not _may_differ(sent.state, end):
        yield f"its operator reads {sent.state}, and the record {end}"
    yield from _wrongly_done(sent, end, done)


def _may_differ(told: State, end: State | None) -> bool:
    """Whether this may have become of a command after the operator was told: it was taken (one-way), or in doubt."""
    return told in (State.ACCEPTED, State.IN_DOUBT) and end is not None and may_become(told, end)


def _wrongly_done(sent: Order, end: State | None, done: int) -> Iterable[str]:
    """What may not have ended so, or not with so many effects."""
    if end not in FINAL:
        yield f"it has no end: {end}"
    if end is State.REJECTED and sent.durable:
        yield "it was rejected, although it may wait"
    if done > 1 and not sent.idempotent:
        yield f"it was done {done} times"
    if done and end in UNTOUCHED:
        yield f"it is {end}, and was done"
    if not done and end is State.SUCCEEDED:
        yield "it succeeded, and was not done"


def _most(orders: Iterable[Order], effects: Mapping[tuple[str, str], int], *, idempotent: bool) -> int:
    counts = (effects.get((each.device, each.name), 0) for each in orders if each.idempotent is idempotent)
    return max(counts, default=0)
