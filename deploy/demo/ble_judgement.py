"""Judgement of Bluetooth devices, which get no acknowledgements. Pure.

Advertisements that no gateway receives are not counted as lost. The guarantee begins at the gateway: each value that it has
stored is in Kafka (the ledger counts that) and in the table. No value is there that was never advertised, and none is there
twice, however often a device repeats itself or a gateway restarts.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import Any

from demo.judgement import CommandJudgement, Id

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class BleEvidence:
    """`on_air`: advertised values. `kafka`: copies of each gateway and value. `table`: copies of each value."""

    on_air: AbstractSet[Id]
    kafka: Counter[tuple[str, Id]]
    table: Counter[Id]


@dataclass(frozen=True, slots=True)
class BleJudgement:
    """`kafka`: values from any gateway; `copies`: values from two gateways, which are one row. `commands`: to these devices.

    `lost`: in Kafka, and not in the table. `duplicate`: twice in the table, or twice from one gateway. `phantom`: never
    advertised, or in the table and not in Kafka. `unheard`: devices without any value.
    """

    on_air: int
    kafka: int
    copies: int
    table: int
    lost: list[Id]
    duplicate: list[Id]
    phantom: list[Id]
    unheard: list[str]
    commands: CommandJudgement

    @property
    def share(self) -> float:
        """Share of advertised values that arrived. The rest was advertised while no gateway listened."""
        return self.table / self.on_air if self.on_air else 0.0

    @property
    def problems(self) -> list[str]:
        """Problems as text, without those of the commands."""
        found = {
            "in Kafka and not in the table": self.lost,
            "twice": self.duplicate,
            "never advertised, or in the table only": self.phantom,
        }
        problems = [f"Bluetooth: {len(ids)} {what}, for example {_text(ids[0])}" for what, ids in found.items() if ids]
        return problems + [f"Bluetooth: nothing of {device} arrived" for device in self.unheard]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found = asdict(self)
        lists = {"lost": self.lost, "duplicate": self.duplicate, "phantom": self.phantom}
        return {
            **found,
            **{name: len(ids) for name, ids in lists.items()},
            "share": round(self.share, 4),
            "examples": {name: [_text(each) for each in ids[:_SHOWN]] for name, ids in lists.items() if ids},
        }


def judge_ble(evidence: BleEvidence, advertisers: Iterable[str], commands: CommandJudgement) -> BleJudgement:
    """Compare the advertised values, Kafka and the table."""
    told = Counter(each for _, each in evidence.kafka)
    table = evidence.table.keys()
    twice = {each for (_, each), count in evidence.kafka.items() if count > 1}
    twice |= {each for each, count in evidence.table.items() if count > 1}
    arrived = {device for device, _ in table}
    return BleJudgement(
        on_air=len(evidence.on_air),
        kafka=len(told),
        copies=sum(count > 1 for count in told.values()),
        table=len(table),
        lost=sorted(told.keys() - table),
        duplicate=sorted(twice),
        phantom=sorted(((told.keys() | table) - evidence.on_air) | (table - told.keys())),
        unheard=sorted(set(advertisers) - arrived),
        commands=commands,
    )


def _text(each: Id) -> str:
    return f"{each[0]} {each[1]}"
