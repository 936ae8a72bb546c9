"""The log of deployments, and the files that it names, in the tables' folder: on a disk or in an object store.

    _parsers/files/SHA256.whl                    written first, never changed
    _parsers/entries/00000000000000000001.json   then the entry, put if absent

One put decides a deployment. Killed before it, a deployment leaves a file that nothing names, and the former set counts. Of two
deployments at once, one finds its number taken, and is made again on the newer set.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, S3Store

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.deployed.parser_set import Change, ParserEntry, ParserSet, encode_entry, entry_digest
from fogline_cloud.flows.deployed.unpacked import checked_file, file_name
from fogline_cloud.flows.deployed.wheel import digest_of
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.failure import failure_of
from fogline_cloud.store.options import is_stored
from fogline_cloud.store.probe import object_client

FOLDER = "_parsers"
"""Folder within the tables' folder."""
_ENTRIES = "entries"
_TRIES = 20

T = TypeVar("T")

log = logging.getLogger(__name__)

Next = Callable[[ParserSet], ParserSet]
"""Returns the set after a deployment on the given one. Raises `Poison` if it is not possible there."""


class ParserLog:
    """The log of one tables' folder. Thread-safe. Raises `Unreachable` and `Misconfigured` if the store is away or refuses."""

    def __init__(self, settings: CloudSettings) -> None:
        self.place = f"{settings.flow.tables.rstrip('/')}/{FOLDER}"
        self._settings = settings
        self._opened: S3Store | LocalStore | None = None

    def newest(self) -> ParserEntry | None:
        """Return the newest entry, `None` if there is none. An entry that a power cut has cut off counts as none."""
        return self._newest_of(self._numbers())

    def history(self) -> list[ParserEntry]:
        """Return all entries, oldest first."""
        return [each for each in (self._entry(number) for number in self._numbers()) if each is not None]

    def newer(self, than: int) -> ParserEntry | None:
        """Return the newest entry if there is one after number `than`. One question to the store if there is none."""
        if self._get(_entry_name(than + 1)) is None:
            return None
        found = self.newest()
        return found if found is not None and found.number > than else None

    def file(self, digest: str) -> bytes:
        """Return a file. Raises `WrongFile`."""
        return checked_file(self._get(file_name(digest)), digest, f"{self.place}/{file_name(digest)}")

    def put_file(self, data: bytes) -> str:
        """Store a file, and return its digest. One that is there already is compared. Raises `WrongFile` if it differs."""
        digest = digest_of(data)
        if not self._put(file_name(digest), data):
            self.file(digest)
        return digest

    def append(self, change: Change, name: str, who: str, why: str, following: Next) -> ParserEntry:
        """Append an entry behind the newest one, and return it. `following` is asked again if another entry came first.

        Returns the newest entry instead, and changes nothing, if the set stays the same. Raises `Poison` as `following` does,
        and `Unreachable`.
        """
        for _ in range(_TRIES):
            numbers = self._numbers()  # once: an entry that comes after this look takes the number
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
            encoded = encode_entry(entry)
            if self._put(_entry_name(entry.number), encoded) or self._get(_entry_name(entry.number)) == encoded:
                return entry  # the second: the answer to the put was lost, and the client has repeated it
        raise Unreachable(f"{self.place}: other deployments came first {_TRIES} times")

    def _newest_of(self, numbers: Sequence[int]) -> ParserEntry | None:
        return next(filter(None, map(self._entry, reversed(numbers))), None)

    def _entry(self, number: int) -> ParserEntry | None:
        data = self._get(_entry_name(number))
        try:
            return None if data is None else msgspec.json.decode(data, type=ParserEntry)
        except msgspec.MsgspecError as error:
            log.warning("%s/%s is passed over: %s", self.place, _entry_name(number), error)
            return None

    def _numbers(self) -> list[int]:
        found = self._do(lambda store: obstore.list(store, prefix=_ENTRIES).collect()) or ()
        stems = [each["path"].removeprefix(f"{_ENTRIES}/").removesuffix(".json") for each in found]
        return sorted(int(each) for each in stems if each.isascii() and each.isdecimal())

    def _get(self, path: str) -> bytes | None:
        def get(store: S3Store | LocalStore) -> bytes | None:
            try:
                return bytes(obstore.get(store, path).bytes())
            except FileNotFoundError:
                return None

        return self._do(get)

    def _put(self, path: str, data: bytes) -> bool:
        """Put an object. Returns False, and changes nothing, if it exists."""

        def put(store: S3Store | LocalStore) -> bool:
            try:
                obstore.put(store, path, data, mode="create")
            except AlreadyExistsError:
                return False
            return True

        return bool(self._do(put, create=True))

    def _do(self, work: Callable[[S3Store | LocalStore], T], *, create: bool = False) -> T | None:
        """Return what `work` does in the store; `None` if there is no folder yet, and it is not to be made."""
        try:
            if self._opened is None:
                if not (create or is_stored(self.place) or Path(self.place).is_dir()):
                    return None
                self._opened = _store(self._settings, self.place)
            return work(self._opened)
        except (BaseError, OSError) as error:
            raise failure_of(error, self.place) from None


def _entry_name(number: int) -> str:
    return f"{_ENTRIES}/{number:020}.json"


def _store(settings: CloudSettings, place: str) -> S3Store | LocalStore:
    if is_stored(place):
        return object_client(settings, place)
    if "://" in place:
        raise Misconfigured(f"{place}: parsers can be deployed with tables in a folder, or at s3://")
    return LocalStore(prefix=place, mkdir=True)
