"""Root acts in another user's folder as that user: whatever links the user plants there lead to nothing of root's.

A check of each path would come before its use, and the user can exchange what is there in between. So the command gives up its
rights before it touches the folder: for good (`become_owner`), or in a child process (`run_as`).
"""

import codecs
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from fogline.errors import FoglineError, Misconfigured

codecs.lookup("utf-8-sig")  # of settings files: the user may be unable to read the interpreter's modules

T = TypeVar("T")


class FolderOwner(NamedTuple):
    """A user other than root, and its group."""

    user: int
    group: int


class _Told(msgspec.Struct):
    """What a child process has to say. `error`: why it failed, "" if it did not."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""


def become_owner(folder: Path) -> None:
    """Give up root's rights for good, if this process is root and the folder is another user's."""
    if (owner := owner_of(folder)) is not None:
        _become(owner)


def run_as(owner: FolderOwner, work: Callable[[], object]) -> bytes:
    """Do `work` in a child process with the rights of `owner`, and return its result as JSON.

    Raises `Misconfigured` with the text of the child's error. Call it while the process has one thread.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(owner, work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    found = msgspec.json.decode(told, type=_Told) if told else _Told(error=f"the process of user {owner.user} has ended early")
    if found.error:
        raise Misconfigured(found.error)
    return bytes(found.result)


def as_owner(folder: Path, work: Callable[[], object], kind: type[T]) -> T:
    """Do `work` with the rights of the user to whom root leaves a folder. Returns its result, a JSON value of `kind`.

    Raises what `work` raises, from a child process as `Misconfigured`.
    """
    owner = owner_of(folder)
    told = msgspec.json.encode(work()) if owner is None else run_as(owner, work)
    return msgspec.json.decode(told, type=kind)


def _work(owner: FolderOwner, work: Callable[[], object], writing: int) -> None:
    told = _Told()
    try:
        _become(owner)
        told.result = msgspec.Raw(msgspec.json.encode(work()))
    except (FoglineError, OSError) as error:
        told.error = str(error)
    except Exception as error:  # noqa: BLE001 - this process ends here, and its parent has to learn why
        told.error = f"{type(error).__name__}: {error}"
    finally:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(msgspec.json.encode(told))
        os._exit(0)  # without the parent's clean-up


def owner_of(folder: Path) -> FolderOwner | None:
    """Return the user to whom root leaves a folder: whoever owns it or, first of all, one above it, as far as they exist.

    None if all are root's, or if this process is not root.
    """
    if os.geteuid() != 0:
        return None
    path = folder.absolute()
    for each in (*reversed(path.parents), path):
        try:
            found = each.lstat()
        except FileNotFoundError:
            return None
        if found.st_uid != 0:
            return FolderOwner(found.st_uid, found.st_gid)
    return None


def _become(owner: FolderOwner) -> None:
    try:
        os.initgroups(pwd.getpwuid(owner.user).pw_name, owner.group)
    except KeyError:  # a number without a name
        os.setgroups([owner.group])
    os.setgid(owner.group)
    os.setuid(owner.user)
