"""A folder of small objects beside the tables, on a disk or in the object store. An object is put once, if it is absent."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, S3Store

from fogline.errors import Misconfigured
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.failure import failure_of
from fogline_cloud.store.options import is_stored
from fogline_cloud.store.probe import object_client

T = TypeVar("T")


class StoredObject(NamedTuple):
    """An object in the folder, and when it was written last."""

    path: str
    modified: datetime


class ObjectFolder:
    """The folder `place`. Thread-safe. Raises `Unreachable` and `Misconfigured` if the store is away or refuses."""

    def __init__(self, settings: CloudSettings, place: str) -> None:
        self.place = place
        self._settings = settings
        self._opened: S3Store | LocalStore | None = None

    def numbers(self, prefix: str) -> list[int]:
        """Return the numbers of the objects `{prefix}/{number}.json`, in order."""
        found = self._do(lambda store: obstore.list(store, prefix=prefix).collect()) or ()
        stems = [each["path"].removeprefix(f"{prefix}/").removesuffix(".json") for each in found]
        return sorted(int(each) for each in stems if each.isascii() and each.isdecimal())

    def folders(self, prefix: str = "") -> list[str]:
        """Return the paths of the folders right below a path, in order."""
        return sorted(self._do(lambda store: obstore.list_with_delimiter(store, prefix)["common_prefixes"]) or ())

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield all objects below a path."""
        found = self._do(lambda store: obstore.list(store, prefix=prefix))
        while found is not None and (some := self._do(lambda _: next(found, None))):
            yield from (StoredObject(each["path"], each["last_modified"]) for each in some)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects. One that is absent is no error."""

        def delete(store: S3Store | LocalStore) -> None:
            for path in paths:
                with suppress(FileNotFoundError):
                    obstore.delete(store, path)

        self._do(delete)

    def get(self, path: str) -> bytes | None:
        """Return an object, `None` if it is absent."""

        def get(store: S3Store | LocalStore) -> bytes | None:
            try:
                return bytes(obstore.get(store, path).bytes())
            except FileNotFoundError:
                return None

        return self._do(get)

    def put(self, path: str, data: bytes) -> bool:
        """Put an object. Return False, and change nothing, if it exists."""

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
                self._opened = self._open()
            return work(self._opened)
        except (BaseError, OSError) as error:
            raise failure_of(error, self.place) from None

    def _open(self) -> S3Store | LocalStore:
        if is_stored(self.place):
            return object_client(self._settings, self.place)
        if "://" in self.place:
            raise Misconfigured(f"{self.place}: [flow] tables must be a folder, or at s3://")
        return LocalStore(prefix=self.place, mkdir=True, automatic_cleanup=True)


def numbered(prefix: str, number: int) -> str:
    """Return the path of an object with a number."""
    return f"{prefix}/{number:020}.json"
