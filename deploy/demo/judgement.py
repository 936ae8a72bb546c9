"""Compares sets of event ids, and commands with their records and effects. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from demo.device_log import Effects
from demo.operator_commands import CommandRow, SentCommand
from fogline.commands.command import CommandState, may_become

Id = tuple[str, int]
"""Device and its counter."""


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """Event ids of a run. `acknowledged`: from the devices' file. `sent`: the highest counter of each device.

    `kafka`, `table`: the number of copies of each id.
    """

    acknowledged: AbstractSet[Id]
    sent: Mapping[str, int]
    kafka: Counter[Id]
    table: Counter[Id]

    def without(self, device: str) -> "RunEvidence":
        """Return the evidence of all other devices."""
        kafka, table = (
            Counter({each: n for each, n in counts.items() if each[0] != device}) for counts in (self.kafka, self.table)
        )
        return RunEvidence(self.acknowledged, self.sent, kafka, table)

    def of(self, device: str) -> tuple[Counter[int], Counter[int]]:
        """Return the counters of a device's events, with the number of copies: in Kafka, and in the table."""
        kafka, table = (
            Counter({each[1]: n for each, n in counts.items() if each[0] == device}) for counts in (self.kafka, self.table)
        )
        return kafka, table


@dataclass(frozen=True, slots=True)
class Judgement:
    """`lost`: acknowledged, and missing in Kafka or the table. `duplicate`: in one of them more than once.

    `phantom`: there, but never sent. `unequal`: in one of Kafka and table only. `unacknowledged`: there, but the device has
    no acknowledgement, which is right for events in flight when the device stopped.
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
        """True if no event is lost, duplicated or made up."""
        return not (self.lost or self.duplicate or self.phantom or self.unequal)

    @property
    def equal(self) -> bool:
        """True if the three sets are equal."""
        return self.holds and not self.unacknowledged

    @property
    def counts(self) -> list[tuple[str, int]]:
        """The sizes of the sets, as the first lines of every report."""
        return [
            ("acknowledged by the devices", self.acknowledged),
            ("in Kafka", self.kafka),
            ("in the table", self.table),
            ("lost", len(self.lost)),
            ("duplicate", len(self.duplicate)),
        ]

    @property
    def sentence(self) -> str:
        """The judgement in one line."""
        line = (
            f"{self.acknowledged:,} acknowledged, {self.kafka:,} in Kafka, {self.table:,} in the table: "
            f"lost {len(self.lost)}, duplicate {len(self.duplicate)}"
        )
        if self.phantom:
            line += f", never sent {len(self.phantom)}"
        if self.unequal:
            line += f", in only one of Kafka and table {len(self.unequal)}"
        if self.unacknowledged:
            line += f" ({self.unacknowledged} stored without an acknowledgement)"
        return line


def judge(evidence: RunEvidence) -> Judgement:
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


FINAL = (CommandState.SUCCEEDED, CommandState.FAILED, CommandState.EXPIRED, CommandState.IN_DOUBT, CommandState.REJECTED)
"""Final states of the demo's commands."""
LATE_S = 2.0
"""A gateway starts a command only in time; the device may get it so much later."""
UNTOUCHED = (CommandState.EXPIRED, CommandState.REJECTED)
"""Final states in which the device never received the command."""


@dataclass(frozen=True, slots=True)
class CommandJudgement:
    """Results of the commands. `by_state`: counts by final state. `unanswered`: the operator has no result.

    `resolved`: in doubt for the operator, and known by now. `effects_max`: the most executions of one command that is not
    idempotent; `effects_max_idempotent`: of one that is. `p50_ms`, `p99_ms`: time to the answer of commands that succeeded.
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


def judge_commands(commands: Sequence[SentCommand], records: Iterable[CommandRow], effects: Effects) -> CommandJudgement:
    """Hold what the operator was told, what is written down, and what the devices did against each other."""
    written: dict[str, list[CommandRow]] = {}
    for each in records:
        written.setdefault(each.name, []).append(each)
    problems, by_state, resolved = list[str](), Counter[str](), 0
    for sent in commands:
        found = written.pop(sent.name, [])
        done = effects.get((sent.device, sent.name), ())
        end = _end(sent, found[0] if found else None)
        wrong = _wrong(sent, found, end, done)
        problems += [f"command {sent.name} to {sent.device}: {each}" for each in wrong]
        by_state[end or "none"] += 1
        resolved += sent.state is CommandState.IN_DOUBT and end is not CommandState.IN_DOUBT
    asked = {(each.device, each.name) for each in commands}
    problems += [f"command {name} has a record, but was never sent" for name in written]
    problems += [f"{device} executed {name}, but it was never sent" for device, name in effects if (device, name) not in asked]
    took = sorted(each.took_s * 1000 for each in commands if each.state is CommandState.SUCCEEDED)
    return CommandJudgement(
        sent=len(commands),
        by_state={state: by_state[state] for state in sorted(by_state)},
        unanswered=sum(each.state is None for each in commands),
        in_doubt=by_state[CommandState.IN_DOUBT],
        resolved=resolved,
        effects_max=_most(commands, effects, idempotent=False),
        effects_max_idempotent=_most(commands, effects, idempotent=True),
        p50_ms=round(took[len(took) // 2], 1) if took else None,
        p99_ms=round(took[len(took) * 99 // 100], 1) if took else None,
        problems=problems,
    )


def _end(sent: SentCommand, record: CommandRow | None) -> CommandState | None:
    """Return the final state: the record's, else the operator's, because a refused command may have no record."""
    return record.state if record is not None else sent.state


def _wrong(sent: SentCommand, found: Sequence[CommandRow], end: CommandState | None, done: Sequence[float]) -> Iterable[str]:
    """Yield the contradictions between operator, record and effects."""
    if len(found) > 1:
        yield f"it has {len(found)} records"
    if sent.state is None:
        yield "its operator has no result"
    elif not found and sent.state not in UNTOUCHED and not sent.provisional:
        yield f"the operator has {sent.state}, and there is no record"
    elif end is not sent.state and not _may_differ(sent.state, end):
        yield f"the operator has {sent.state}, and the record {end}"
    yield from _wrongly_done(sent, end, done)


def _may_differ(told: CommandState, end: CommandState | None) -> bool:
    """Return True if a record may differ from the operator's state: a one-way command, or one in doubt."""
    return told in (CommandState.ACCEPTED, CommandState.IN_DOUBT) and end is not None and may_become(told, end)


def _wrongly_done(sent: SentCommand, end: CommandState | None, done: Sequence[float]) -> Iterable[str]:
    """Yield the contradictions between the final state and the number of effects."""
    if end not in FINAL:
        yield f"it has no final state: {end}"
    if end is CommandState.REJECTED and sent.durable:
        yield "it was rejected, although it is durable"
    if len(done) > 1 and not sent.idempotent:
        yield f"it was executed {len(done)} times"
    if done and (late_s := max(done) - sent.sent_s - sent.ttl_s) > LATE_S:
        yield f"it was executed {late_s:.1f} s after its time to live"
    if done and end in UNTOUCHED:
        yield f"it is {end}, and was executed"
    if not done and end is CommandState.SUCCEEDED:
        yield "it succeeded, and was not executed"


def _most(commands: Iterable[SentCommand], effects: Effects, *, idempotent: bool) -> int:
    counts = (len(effects.get((each.device, each.name), ())) for each in commands if each.idempotent is idempotent)
    return max(counts, default=0)
