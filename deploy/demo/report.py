"""Results of a run of the demo. Pure."""

from dataclasses import asdict, dataclass, field
from typing import Any

from demo.ble_judgement import BleJudgement
from demo.certificate_judgement import CertificateJudgement
from demo.freshness import Freshness
from demo.judgement import CommandJudgement, Judgement

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DemoReport:
    """Results of a run. `problems`: texts of everything else that went wrong.

    `ble` is `None` if there was no Bluetooth, `certificates` if there was no TLS.
    """

    judgement: Judgement
    refused: dict[str, int]
    kills: dict[str, int]
    problems: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    commands: CommandJudgement | None = None
    ble: BleJudgement | None = None
    certificates: CertificateJudgement | None = None
    freshness: Freshness | None = None

    @property
    def status(self) -> int:
        """The exit status: 1 if an event is lost or duplicated, or there is any other problem."""
        return 0 if self.judgement.holds and not self.all_problems else 1

    @property
    def all_problems(self) -> list[str]:
        """All problems: of the run, of the commands, of Bluetooth and of the certificates."""
        parts = (self.commands, self.ble, self.certificates)
        return [*self.problems, *(problem for each in parts if each is not None for problem in each.problems)]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found = asdict(self.judgement)
        commands = asdict(self.commands) if self.commands else {}
        lists = ("lost", "duplicate", "phantom", "unequal")
        examples = {name: [f"{device} {n}" for device, n in found[name][:_SHOWN]] for name in lists if found[name]}
        return {
            **found,
            **{name: len(found[name]) for name in lists},
            "equal": self.judgement.equal,
            "refused": self.refused,
            "kills": self.kills,
            "problems": self.all_problems,
            "examples": examples,
            "commands": {name: value for name, value in commands.items() if name != "problems"},
            "ble": self.ble.as_json() if self.ble else None,
            "certificates": self.certificates.as_json() if self.certificates else None,
            "freshness": self.freshness.as_json() if self.freshness else None,
            **self.details,
        }
