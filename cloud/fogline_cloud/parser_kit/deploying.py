"""Deploys parsers: checks a wheel, asks who may, stores it, and appends the entry that makes it count.

| step | killed before it |
|---|---|
| the file is stored by its digest | nothing happened |
| it is checked, in a process of its own | a file is there that nothing names |
| the bridge is asked, and writes the audit | the same |
| the entry is appended | the audit says that the deployment was allowed; the former set counts |
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.metadata import entry_points

import msgspec

from fogline.errors import Misconfigured, Poison
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import (
    Change,
    ParserEntry,
    ParserSet,
    former_digest,
    with_parser,
    without_trial,
)
from fogline_cloud.flows.deployed.unpacked import WrongFile
from fogline_cloud.flows.deployed.wheel import Wheel, read_wheel
from fogline_cloud.flows.parsers import GROUP
from fogline_cloud.parser_kit.parser_check import LIMIT_S, CheckRequest, ParserCheck
from fogline_cloud.settings import CloudSettings

Allow = Callable[[str], Awaitable[None]]
"""Asks the bridge if the user may deploy the wheel of this digest. Raises if not."""


class CheckFailed(Exception):
    """The parser must not be deployed; `check` says why."""

    def __init__(self, check: ParserCheck) -> None:
        super().__init__("; ".join(check.problems))
        self.check = check


class ParserDeployments:
    """The deployments of one tables' folder. Used on one loop. Raises `Unreachable` and `Misconfigured` as `ParserLog` does."""

    def __init__(self, settings: CloudSettings) -> None:
        self._settings = settings
        self._log = ParserLog(settings)
        self._checking = asyncio.Lock()

    async def deploy(
        self, name: str, data: bytes, content_types: Sequence[str], who: str, allow: Allow, *, accept_dead: bool
    ) -> tuple[ParserEntry, ParserCheck]:
        """Deploy a wheel. Raises `Poison` (`wheel`, `conflict`) and `CheckFailed`. Safe to cancel at any point."""
        wheel = await asyncio.to_thread(self._store, name, data)

        def following(now: ParserSet) -> ParserSet:
            return with_parser(now, name, wheel.digest, content_types, accept_dead=accept_dead)

        newest = await asyncio.to_thread(self._log.newest)
        wanted = following(ParserSet() if newest is None else newest.set)
        async with self._checking:
            check = await run_check(CheckRequest(self._settings, name, wanted))
        if check.problems:
            raise CheckFailed(check)
        await allow(wheel.digest)
        entry = await asyncio.to_thread(self._log.append, Change.DEPLOY, name, who, "", following)
        return entry, check

    async def roll_back(self, name: str, who: str, allow: Allow) -> ParserEntry:
        """Take the parser that was in use before the present one. Raises `Poison` (`unknown-parser`)."""
        digest = former_digest(await asyncio.to_thread(self._log.history), name)
        if digest:
            await asyncio.to_thread(self._checked_file, digest)
        await allow(digest)

        def following(now: ParserSet) -> ParserSet:
            return without_trial(now, name, digest)

        return await asyncio.to_thread(self._log.append, Change.ROLLBACK, name, who, "", following)

    async def history(self) -> list[ParserEntry]:
        """Return all entries, oldest first."""
        return await asyncio.to_thread(self._log.history)

    def _checked_file(self, digest: str) -> None:
        try:
            self._log.file(digest)
        except WrongFile as error:
            raise Poison("wheel", str(error)) from None

    def _store(self, name: str, data: bytes) -> Wheel:
        wheel = read_wheel(data)
        if name not in wheel.parsers:
            raise Poison("wheel", f"the wheel has no parser {name}, but {', '.join(sorted(wheel.parsers))}")
        if name in {
            each.name for each in entry_points(group=GROUP) if each.dist is not None and each.dist.name == "fogline-cloud"
        }:
            raise Poison("wheel", f"parser {name} is one of Fogline's: give yours another name")
        try:
            self._log.put_file(data)
        except WrongFile as error:
            raise Poison("wheel", str(error)) from None
        return wheel


def _of_fogline() -> set[str]:
    points = entry_points(group=GROUP)
    return {each.name for each in points if each.dist is not None and each.dist.name == "fogline-cloud"}


async def run_check(request: CheckRequest) -> ParserCheck:
    """Check a parser in a process of its own, within `LIMIT_S`. Raises `Misconfigured` if that process fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fogline_cloud.parser_kit.parser_check"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, errors = await process.communicate(msgspec.json.encode(request))
    except TimeoutError:
        return ParserCheck(problems=[f"the check did not end within {LIMIT_S:.0f} s"])
    finally:
        with suppress(ProcessLookupError):
            process.kill()  # its children end with it
        await process.wait()
    try:
        return msgspec.json.decode(out, type=ParserCheck)
    except msgspec.MsgspecError:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise Misconfigured(f"the check of the parser failed (exit status {process.returncode}): {last}") from None
