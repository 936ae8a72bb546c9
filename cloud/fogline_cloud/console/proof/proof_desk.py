"""Makes proofs one after the other, in a process of their own: reading the ledger must not slow the API."""

import asyncio
import os
import signal
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from multiprocessing import get_context
from typing import Final

from fogline.errors import FoglineError, Misconfigured
from fogline_cloud.api.problems import not_at_present
from fogline_cloud.authority.signed_document import DocumentSigner, read_signer, sign
from fogline_cloud.ledger.period_rows import period_rows
from fogline_cloud.ledger.proof_document import KIND, ProofDocument, document_of, encode_document
from fogline_cloud.ledger.verification import Period, verify
from fogline_cloud.settings import CloudSettings

SILENT: Final = timedelta(hours=1)
"""A gateway without a statement for so long is silent, as for `fogline ledger verify`."""
MAX_WAITING: Final = 8
"""Proofs that wait for their turn. Further ones get 503."""
MAX_USERS: Final = 200
"""Users whose newest proof is kept."""
_NICE: Final = 10


@dataclass(frozen=True, slots=True)
class MadeProof:
    """A proof. `signed`: the document as it is handed over; "" if it cannot be signed, and `unsigned` says why."""

    document: ProofDocument
    signed: str
    unsigned: str = ""


@dataclass(slots=True)
class ProofOrder:
    """What a user asked for last, and what came of it: `made`, or `why` not; neither while it is being made."""

    day: date
    device: str | None
    asked: datetime
    made: MadeProof | None = None
    why: str = ""

    @property
    def is_over(self) -> bool:
        """True if nothing more happens."""
        return self.made is not None or bool(self.why)


class ProofDesk:
    """The newest proof of each user. Used on the loop. `make` runs in the other process."""

    def __init__(
        self, settings: CloudSettings, make: Callable[[CloudSettings, date, str | None], MadeProof] | None = None
    ) -> None:
        self._settings = settings
        self._make = make or make_proof
        self._process: ProcessPoolExecutor | None = None
        self._orders: OrderedDict[str, ProofOrder] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def newest(self, user: str) -> ProofOrder | None:
        """Return what a user asked for last."""
        return self._orders.get(user)

    def order(self, user: str, day: date, device: str | None) -> ProofOrder:
        """Begin to make a proof. The same question, while it is being answered, is the same order. Raises `Problem` (503)."""
        known = self._orders.get(user)
        if known is not None and not known.is_over and (known.day, known.device) == (day, device):
            return known
        if len(self._tasks) >= MAX_WAITING:
            raise not_at_present("too many proofs are being made")
        order = self._orders[user] = ProofOrder(day, device, datetime.now(UTC))
        self._orders.move_to_end(user)
        while len(self._orders) > MAX_USERS:
            self._orders.popitem(last=False)
        task = asyncio.create_task(self._answer(order), name="proof")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return order

    def close(self) -> None:
        """Stop, and end what is being made."""
        for task in self._tasks:
            task.cancel()
        if self._process is not None:
            for process in tuple(self._process._processes.values()):  # noqa: SLF001 - the executor would wait for its end
                process.terminate()
            self._process.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, order: ProofOrder) -> None:
        if self._process is None:
            self._process = ProcessPoolExecutor(1, get_context("spawn"), _begin)
        process = self._process
        try:
            order.made = await asyncio.get_running_loop().run_in_executor(
                process, self._make, self._settings, order.day, order.device
            )
        except FoglineError as error:
            order.why = str(error)
        except BrokenProcessPool:
            order.why = "the process that makes proofs has ended: ask again"
            if self._process is process:
                self._process = None


def _begin() -> None:
    """Let the process give way to all others, and leave Ctrl-C to the API, which ends it."""
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def make_proof(settings: CloudSettings, day: date, device: str | None) -> MadeProof:
    """Verify a day (UTC), and sign what it says. Raises `Misconfigured`, `Unreachable`."""
    now = datetime.now(UTC)
    begin = datetime.combine(day, time(), UTC)
    period = Period(begin, min(begin + timedelta(days=1), now - SILENT))
    document = document_of(settings.tenant, verify(settings, period, device=device), period_rows(settings, period, device))
    try:
        return MadeProof(document, sign(encode_document(document), KIND, signer_of(settings), now))
    except Misconfigured as error:
        return MadeProof(document, "", str(error))


def signer_of(settings: CloudSettings) -> DocumentSigner:
    """Return the signer: the certificate of the API, or of the bridge on the same machine. Raises `Misconfigured`."""
    why = "set [api.tls] or [bridge.tls] with a certificate of `fogline ca issue bridge`"
    for tls in (settings.api.tls, settings.bridge.tls):
        if tls is not None and tls.certificate is not None and tls.key is not None:
            try:
                return read_signer(tls.certificate, tls.key)
            except Misconfigured as error:
                why = str(error)
    raise Misconfigured(why)
