"""Judges the commands of a soak beside its faults. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from demo.judgement import CommandJudgement
from demo.operator_commands import CommandRow, SentCommand
from demo.payload import Device
from fogline.commands.command import CommandState
from soak.breaker import AppliedFault
from soak.schedule import GATEWAYS, FaultKind

WANTED_SHARE = 0.95
"""The least share of SUCCEEDED among durable commands to devices that nothing happened to."""
CALM_S = 30.0
"""Time after the sending of a calm command in which nothing happens to its device.

It does not depend on when the command ends, so no failure excuses itself by lasting longer."""
_AT_GATEWAY = (FaultKind.KILL, FaultKind.FREEZE, FaultKind.RESTORE, FaultKind.CARD, FaultKind.DATAGRAMS)
"""Faults that can leave a gateway without knowledge of what its device did."""
_RETRANSMISSION_S = 45.0
"""Time for which CoAP may retransmit what was lost (RFC 7252, section 4.8.2: MAX_TRANSMIT_SPAN), and sends nothing else."""

Span = tuple[float, float]
"""Begin and end of a disturbance, by `time.time()`."""


@dataclass(frozen=True, slots=True)
class CommandCounts:
    """Counts of a soak's commands. `wanted`: the least number. `durable`, `succeeded`: of the durable ones.

    `calm`, `calm_succeeded`: of the durable ones to devices that nothing happened to for `CALM_S`. `doubts`: commands that are
    IN_DOUBT although nothing had happened until then.
    """

    judgement: CommandJudgement
    wanted: int
    durable: int
    succeeded: int
    calm: int
    calm_succeeded: int
    doubts: Sequence[str]

    @property
    def share(self) -> float:
        """The share of SUCCEEDED among the calm commands."""
        return self.calm_succeeded / self.calm if self.calm else 0.0

    def problems(self, *, stopped: bool) -> list[str]:
        """Return the problems as text. `stopped`: the run was stopped early, so fewer commands are right."""
        problems = [*self.judgement.problems, *self.doubts]
        if not stopped and self.judgement.sent < self.wanted:
            problems.append(f"{self.judgement.sent} commands were sent, at least {self.wanted} are wanted")
        if self.calm and self.share < WANTED_SHARE:
            text = f"{self.share:.1%} of the durable commands to devices that nothing happened to succeeded"
            problems.append(f"{text}, at least {WANTED_SHARE:.0%} are wanted")
        return problems

    @property
    def rows(self) -> list[tuple[str, object]]:
        """Lines of the report."""
        return [
            ("commands", self.judgement.sent),
            *((f"commands {state}", count) for state, count in self.judgement.by_state.items()),
            ("durable commands", self.durable),
            ("durable commands that succeeded", self.succeeded),
            ("durable commands to devices that nothing happened to", self.calm),
            ("of these, succeeded", self.calm_succeeded),
        ]


def count_commands(
    judgement: CommandJudgement,
    commands: Iterable[SentCommand],
    records: Iterable[CommandRow],
    happened: Mapping[str, Sequence[Span]],
    wanted: int,
) -> CommandCounts:
    """Count the commands. `happened`: the disturbances of each device."""
    ends = {each.name: each.state for each in records}
    doubts, durable, calm = list[str](), list[bool](), list[bool]()
    for sent in commands:
        end = ends.get(sent.name, sent.state)
        spans = happened.get(sent.device, ())
        if end is CommandState.IN_DOUBT and not _meets(spans, sent.sent_s, _latest_end_s(sent)):
            doubts.append(f"command {sent.name} to {sent.device} is IN_DOUBT, and nothing had happened to its gateway or line")
        if sent.durable:
            durable.append(end is CommandState.SUCCEEDED)
            if not _meets(spans, sent.sent_s, sent.sent_s + CALM_S):
                calm.append(end is CommandState.SUCCEEDED)
    return CommandCounts(judgement, wanted, len(durable), sum(durable), len(calm), sum(calm), doubts)


def disturbances(
    devices: Iterable[Device],
    applied: Sequence[AppliedFault],
    lost: Mapping[str, Sequence[float]],
    wall: Callable[[float], float],
) -> dict[str, list[Span]]:
    """Return what happened to each device: faults of its gateway and lost connections.

    `wall`: converts the seconds of a fault to those of `time.time()`.
    """
    by_gateway: dict[str, list[Span]] = {}
    for each in applied:
        if each.fault.target in GATEWAYS and each.fault.kind in _AT_GATEWAY:
            over = float("inf") if each.over_s is None else wall(each.over_s)
            over += _RETRANSMISSION_S if each.fault.kind is FaultKind.DATAGRAMS else 0.0
            by_gateway.setdefault(each.fault.target, []).append((wall(each.began_s), over))
    return {
        each.name: [*by_gateway.get(GATEWAYS[each.gateway], ()), *((at_s, at_s) for at_s in lost.get(each.name, ()))]
        for each in devices
    }


def _latest_end_s(sent: SentCommand) -> float:
    """Return the latest time at which the command may have ended. Its operator knows it, unless it had only an ACCEPTED."""
    deadline_s = sent.sent_s + sent.ttl_s
    return deadline_s if sent.ended_s is None or sent.state is CommandState.ACCEPTED else sent.ended_s


def _meets(spans: Iterable[Span], begin_s: float, end_s: float) -> bool:
    """Return True if one of the spans meets this one."""
    return any(began <= end_s and begin_s <= over for began, over in spans)
