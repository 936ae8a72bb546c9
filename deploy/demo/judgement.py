"""Lost, twice, or never sent? Sets of ids against each other. Pure."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Any

Id = tuple[str, int]
"""Device and its counter."""

_SHOWN = 20


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


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the demo found. `problems`: in words, what else went wrong; empty if nothing did."""

    judgement: Judgement
    refused: dict[str, int]
    kills: dict[str, int]
    problems: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The exit status: 1 if anything is lost, twice, or not as it should be."""
        return 0 if self.judgement.holds and not self.problems else 1

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found = asdict(self.judgement)
        lists = ("lost", "duplicate", "phantom", "unequal")
        examples = {name: [f"{device} {n}" for device, n in found[name][:_SHOWN]] for name in lists if found[name]}
        return {
            **found,
            **{name: len(found[name]) for name in lists},
            "equal": self.judgement.equal,
            "refused": self.refused,
            "kills": self.kills,
            "problems": self.problems,
            "examples": examples,
            **self.details,
        }
