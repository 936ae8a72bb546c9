"""A look at the object store: whether it answers, takes these keys, has the bucket, and knows put-if-absent.

The client is on the same crate as that of delta-rs, which makes the commits.
"""

import re
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from fogline.errors import Misconfigured
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.failure import failure_of
from fogline_cloud.store.options import client_options, is_plain, is_stored, keys_of

if TYPE_CHECKING:
    from obstore.store import RetryConfig

_ANSWER = "10s"
_RETRIES: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
_UNKNOWN_REQUEST = re.compile(r"status code: 501|NotImplemented\b")
_FOLDER = "_fogline_probe"


def check_store(settings: CloudSettings) -> None:
    """Look at each URL of the settings; folders need no look. Raises `Misconfigured`, or `Unreachable` if the store is away."""
    for key, url in (("tables", settings.flow.tables), ("checkpoint", settings.flow.checkpoint)):
        if is_stored(url):
            _check(settings, f"[flow] {key} = {url}", url)


def _check(settings: CloudSettings, where: str, url: str) -> None:
    store = object_client(settings, url)
    path = f"{_FOLDER}/{uuid.uuid4()}"
    try:
        obstore.list(store, prefix=_FOLDER).collect()
        with suppress(AlreadyExistsError):  # the first answer was lost, and the client has repeated its request
            obstore.put(store, path, b"probe", mode="create")
        try:
            obstore.put(store, path, b"overwritten", mode="create")
        except AlreadyExistsError:
            return
        finally:
            obstore.delete(store, path)
    except BaseError as error:
        if _UNKNOWN_REQUEST.search(str(error)):
            raise _without_put_if_absent(where, "does not know") from None
        raise failure_of(error, where) from None
    raise _without_put_if_absent(where, "does not obey")


def object_client(settings: CloudSettings, url: str) -> S3Store:
    """Return a client for the objects below a URL. Raises `Misconfigured` for keys that cannot be read."""
    parts, store = urlsplit(url), settings.store
    options: Any = client_options(store, keys_of(settings))  # its type names each key
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        config=options,
        client_options={"allow_http": is_plain(store), "timeout": _ANSWER},
        retry_config=_RETRIES,
    )


def _without_put_if_absent(where: str, how: str) -> Misconfigured:
    return Misconfigured(
        f"{where}: the object store {how} put-if-absent (PUT with If-None-Match: *), so one commit could erase another: "
        "update the store, take one that docs/store.md names, or a folder"
    )
