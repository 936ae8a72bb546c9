"""The log of deployments, and the files that it names, in the tables' folder: on a disk or in an object store.

    _parsers/files/SHA256.whl                    written first, never changed
    _parsers/entries/00000000000000000001.json   then the entry, put if absent

One put decides a deployment. Killed before it, a deployment leaves a file that nothing names, and the former set counts. Of two
deployments at once, one finds its number taken, and is made again on the newer set.
"""

import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from fogline.errors import Unreachable
from fogline_cloud.flows.deployed.parser_set import Change, ParserEntry, ParserSet, encode_entry, entry_digest
from fogline_cloud.flows.deployed.unpacked import checked_file, file_name
from fogline_cloud.flows.deployed.wheel import digest_of
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.object_folder import ObjectFolder, numbered

FOLDER = "_parsers"
"""Folder within the tables' folder."""
_ENTRIES = "entries"
_TRIES = 20

log = logging.getLogger(__name__)

Next = Callable[[ParserSet], ParserSet]
"""Returns the set after a deployment on the given one. Raises `Poison` if it is not possible there."""


class ParserLog:
    """The log of one tables' folder. Thread-safe. Raises `Unreachable` and `Misconfigured` if the store is away or refuses."""

    def __init__(self, settings: CloudSettings) -> None:
        self.place = f"{settings.flow.tables.rstrip('/')}/{FOLDER}"
        self._folder = ObjectFolder(settings, self.place)

    def newest(self) -> ParserEntry | None:
        """Return the newest entry, `None` if there is none. An entry that a power cut has cut off counts as none."""
        return self._newest_of(self._folder.numbers(_ENTRIES))

    def history(self) -> list[ParserEntry]:
        """Return all entries, oldest first."""
        return [each for each in (self._entry(number) for number in self._folder.numbers(_ENTRIES)) if each is not None]

    def newer(self, than: int) -> ParserEntry | None:
        """Return the newest entry if there is one after number `than`. One question to the store if there is none."""
        if self._folder.get(numbered(_ENTRIES, than + 1)) is None:
            return None
        found = self.newest()
        return found if found is not None and found.number > than else None

    def file(self, digest: str) -> bytes:
        """Return a file. Raises `WrongFile`."""
        return checked_file(self._folder.get(file_name(digest)), digest, f"{self.place}/{file_name(digest)}")

    def put_file(self, data: bytes) -> str:
        """Store a file, and return its digest. One that is there already is compared. Raises `WrongFile` if it differs."""
        digest = digest_of(data)
        if not self._folder.put(file_name(digest), data):
            self.file(digest)
        return digest

    def append(self, change: Change, name: str, who: str, why: str, following: Next) -> ParserEntry:
        """Append an entry behind the newest one, and return it. `following` is asked again if another entry came first.

        Returns the newest entry instead, and changes nothing, if the set stays the same. Raises `Poison` as `following` does,
        and `Unreachable`.
        """
        for _ in range(_TRIES):
            numbers = self._folder.numbers(_ENTRIES)  # once: an entry that comes after this look takes the number
            last = self._newest_of(numbers)
            now = ParserSet() if last is None else last.set
            new = following(now)
            if last is not None and new.parsers == now.parsers:
                return last
            entry = ParserEntry(
                number=max(numbers, default=0) + 1,
                previous="" if last is None else entry_digest(encode_entry(last)),
                at_ms=time.time_ns() // 1_000_000,
                who=who,
                change=change,
                name=name,
                digest=new.parsers[name].digest,
                why=why,
                parsers=new.parsers,
            )
            path, encoded = numbered(_ENTRIES, entry.number), encode_entry(entry)
            if self._folder.put(path, encoded) or self._folder.get(path) == encoded:
                return entry  # the second: the answer to the put was lost, and the client has repeated it
        raise Unreachable(f"{self.place}: other deployments came first {_TRIES} times")

    def _newest_of(self, numbers: Sequence[int]) -> ParserEntry | None:
        return next(filter(None, map(self._entry, reversed(numbers))), None)

    def _entry(self, number: int) -> ParserEntry | None:
        data = self._folder.get(numbered(_ENTRIES, number))
        try:
            return None if data is None else msgspec.json.decode(data, type=ParserEntry)
        except msgspec.MsgspecError as error:
            log.warning("%s/%s is passed over: %s", self.place, numbered(_ENTRIES, number), error)
            return None
