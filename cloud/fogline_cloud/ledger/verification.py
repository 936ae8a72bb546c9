"""Verifies a period, for all devices or for one: gathers the evidence, judges each stream, and says what that proves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fogline_cloud.access.access_file import read_permissions
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.balance import LedgerFinding, StreamEvidence, judge
from fogline_cloud.ledger.coverage import coverage_of
from fogline_cloud.ledger.proof import Proof, prove
from fogline_cloud.ledger.sources import GatheredEvidence, gather
from fogline_cloud.settings import CloudSettings


@dataclass(frozen=True, slots=True)
class Period:
    """What is asked about: the events that gateways stored from `begin` on (None: from the first one), and before `end`."""

    begin: datetime | None
    end: datetime

    @property
    def begin_ms(self) -> int | None:
        """The first moment in milliseconds since 1970."""
        return None if self.begin is None else _ms(self.begin)

    @property
    def end_ms(self) -> int:
        """The end in milliseconds since 1970."""
        return _ms(self.end)


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict. `streams`: those with events of the period, or with events that are still to come.

    `findings`: what does not balance in them. `device`: the only one that was asked about, None for all.
    """

    period: Period
    device: str | None
    gathered: GatheredEvidence
    streams: list[StreamEvidence]
    findings: list[LedgerFinding]
    proof: Proof

    @property
    def complete(self) -> bool:
        """True if every event of the period is in the tables once, and no mark of an earlier run was wrong."""
        return self.proof.proven and not self.gathered.tables.wrong and not self.gathered.kafka.wrong


def verify(
    settings: CloudSettings, period: Period, *, device: str | None = None, left_out: Sequence[str] = (), full: bool = False
) -> Verification:
    """Verify a period. `left_out`: gateways that somebody excepts. `full`: read again what an earlier run has read.

    A device is proven by the gateways that may send its events: `bridge.access` names them. Raises `Misconfigured` if Kafka or
    a topic is missing, `Unreachable` if reading fails.
    """
    may_hear = _may_hear(settings, device)
    gathered = gather(KafkaClients(settings.kafka), settings, full=full)
    streams = [each for each in gathered.streams if _is_in(each, period)]
    findings = [finding for stream in streams for finding in judge(stream)]
    proof = prove(coverage_of(gathered.streams), findings, period.end_ms, may_hear=may_hear, left_out=left_out)
    return Verification(period, device, gathered, streams, findings, proof)


def _may_hear(settings: CloudSettings, device: str | None) -> Callable[[str], bool]:
    if device is None or settings.bridge.access is None:
        return lambda _: True
    permissions = read_permissions(settings.bridge.access)
    return lambda gateway: permissions.may_speak_for(gateway, device)


def _is_in(stream: StreamEvidence, period: Period) -> bool:
    """Return False if the last event of a stream, of which everything has arrived, is from before the period."""
    last_ms = stream.newest[1]
    return period.begin_ms is None or not last_ms or last_ms >= period.begin_ms or bool(stream.pending)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
