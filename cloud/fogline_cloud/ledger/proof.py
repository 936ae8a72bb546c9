"""What the evidence proves: that the tables are complete for a period, for all devices or for one. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fogline_cloud.ledger.balance import LedgerFinding
from fogline_cloud.ledger.coverage import GatewayCoverage


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof for events that gateways stored before `until_ms`. `left_out`: the gateways that somebody excepts.

    `silent`: the gateways that may hold such events. `holes`: the findings of the gateways that are looked at.
    """

    until_ms: int
    gateways: list[GatewayCoverage]
    silent: list[GatewayCoverage]
    holes: list[LedgerFinding]
    left_out: list[str]

    @property
    def proven(self) -> bool:
        """True if every event from before `until_ms` is in the tables once. Without a gateway nothing is proven."""
        return bool(self.gateways) and not self.silent and not self.holes

    @property
    def complete_ms(self) -> int:
        """The moment until which all gateways but the silent ones are complete, 0 if there are none."""
        return min((each.complete_ms for each in self.gateways if each not in self.silent), default=0)


def prove(
    coverage: Iterable[GatewayCoverage],
    findings: Iterable[LedgerFinding],
    until_ms: int,
    *,
    may_hear: Callable[[str], bool] = lambda _: True,
    left_out: Sequence[str] = (),
) -> Proof:
    """Return the proof for the gateways that may have got the events: `may_hear` of their names, and not `left_out`.

    A hole in any stream of such a gateway leaves all of its devices unproven, because nobody knows whose event is missing.
    """
    gateways = [each for each in coverage if may_hear(each.gateway) and each.gateway not in left_out]
    names = {each.gateway for each in gateways}
    silent = [each for each in gateways if each.complete_ms < until_ms]
    holes = [each for each in findings if each.gateway in names]
    return Proof(until_ms, gateways, silent, holes, sorted(left_out))
