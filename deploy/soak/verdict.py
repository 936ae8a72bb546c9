"""Results of a soak, and its verdict. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from demo.judgement import Judgement
from soak.command_judgement import CommandCounts
from soak.flat import Held

MISSING = ("lost", "table-missing")
"""Findings of the ledger for missing sequences without a gap record."""
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Load:
    """`offered`: events that devices sent, in `seconds`. `wanted`: the least events/s."""

    offered: int
    acknowledged: int
    seconds: float
    wanted: float

    @property
    def rate(self) -> float:
        """Events offered per second, outages included."""
        return self.offered / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class CertificateCounts:
    """Certificates of a run. `minutes`: validity of a gateway's. `renewed`: by gateway; `wanted`: the least of each.

    `ended`: connections that bridges closed because the certificate had expired: the gateway then connects with its new one.
    `expired`: connections that bridges refused as expired. `failed`: attempts to renew that failed, and were made again.
    `replaced`: of `bridges`, those that showed a new certificate without a restart for it.
    """

    minutes: float
    renewed: dict[str, int]
    wanted: int
    ended: int
    expired: int
    failed: int
    replaced: int
    bridges: int

    def problems(self, *, stopped: bool) -> list[str]:
        """Return the problems as text. `stopped`: the run was stopped early, so that bridges may have their former ones."""
        problems = [
            f"{gateway} renewed its certificate {count} times, at least {self.wanted} are wanted"
            for gateway, count in self.renewed.items()
            if count < self.wanted
        ]
        if self.expired:
            problems.append(f"{self.expired} connections were refused because a certificate had expired")
        if self.replaced < self.bridges and not stopped:
            problems.append(f"{self.replaced} of {self.bridges} bridges show the certificate that was issued last")
        return problems

    @property
    def rows(self) -> list[tuple[str, object]]:
        """Lines of the report."""
        return [
            *((f"renewals of {gateway}, each for {self.minutes:g} min", count) for gateway, count in self.renewed.items()),
            ("attempts to renew that failed", self.failed),
            ("connections that ended with their certificate", self.ended),
            ("connections refused as expired", self.expired),
            ("bridges with a new certificate", self.replaced),
        ]


@dataclass(frozen=True, slots=True)
class SoakVerdict:
    """`kills`: by kind of part, of `planned`. `reconnects`: connections that failed, by fault.

    `stopped`: the run was stopped early, so fewer kills and reconnects are right. `ledger`: output of `ledger verify`.
    `certificates`: if they were short ones. `commands`: if there were some.
    """

    judgement: Judgement
    load: Load
    ledger: Mapping[str, Any] | None
    problems: Sequence[str]
    kills: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    reconnects: Mapping[str, int] = field(default_factory=dict)
    reconnects_wanted: int = 0
    stopped: bool = False
    held: Sequence[Held] = ()
    certificates: CertificateCounts | None = None
    commands: CommandCounts | None = None

    @property
    def gaps(self) -> int:
        """Number of missing sequences without a gap record."""
        findings = self.ledger["findings"] if self.ledger else ()
        return sum(last - first + 1 for each in findings if each["kind"] in MISSING for first, last in each["spans"])

    @property
    def refused(self) -> dict[str, int]:
        """Retransmissions that gateways and bridges discarded: each would have been a duplicate."""
        counts: Counter[str] = Counter()
        for stream in self.ledger["streams"] if self.ledger else ():
            counts.update({side: count or 0 for side, count in stream["refused"].items()})
        return {side: counts[side] for side in ("edge", "bridge")}

    @property
    def all_problems(self) -> list[str]:
        """All problems as text."""
        problems = list(self.problems)
        if self.load.rate < self.load.wanted:
            problems.append(f"the devices offered {self.load.rate:.0f} events/s, at least {self.load.wanted:.0f} are wanted")
        if self.certificates is not None:
            problems += self.certificates.problems(stopped=self.stopped)
        if self.commands is not None:
            problems += self.commands.problems(stopped=self.stopped)
        if not self.stopped:
            missing = {part: count - self.kills.get(part, 0) for part, count in self.planned.items()}
            problems += [f"{part} was killed {count} times less than planned" for part, count in missing.items() if count > 0]
            if (count := sum(self.reconnects.values())) < self.reconnects_wanted:
                problems.append(f"there were {count} reconnects, {self.reconnects_wanted} are wanted")
        return problems

    @property
    def holds(self) -> bool:
        """True if no event is lost, duplicated, made up or missing without a gap record, and there is no other problem."""
        return self.judgement.holds and not self.gaps and not self.all_problems

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        many = f"{sum(self.reconnects.values())} reconnects" if self.reconnects_wanted else f"{sum(self.kills.values())} kills"
        early = "stopped early: " if self.stopped else ""
        commands = f", {self.commands.judgement.sent:,} commands" if self.commands else ""
        return f"{early}{many}, {self.judgement.sentence}, unexplained gaps {self.gaps}{commands}"

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found = asdict(self.judgement)
        lists = ("lost", "duplicate", "phantom", "unequal")
        return {
            "holds": self.holds,
            "sentence": self.sentence,
            "problems": self.all_problems,
            **found,
            **{name: len(found[name]) for name in lists},
            "examples": {name: [f"{device} {n}" for device, n in found[name][:_SHOWN]] for name in lists if found[name]},
            "unexplained_gaps": self.gaps,
            "refused": self.refused,
            "kills": dict(self.kills),
            "reconnects": dict(self.reconnects),
            "stopped": self.stopped,
            "load": {**asdict(self.load), "rate": round(self.load.rate, 1)},
            "held": [asdict(each) for each in self.held],
            "commands": asdict(self.commands) if self.commands else None,
            "certificates": asdict(self.certificates) if self.certificates else None,
            "ledger": self.ledger,
        }
