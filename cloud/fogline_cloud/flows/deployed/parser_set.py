"""The parsers that are deployed, and how a deployment, a roll-back or a return changes them. Pure.

A deployment is an entry of a log. Each entry holds the whole set after it, so the newest entry alone says what counts.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from fogline.errors import Poison
from fogline_cloud.flows.parsers import essence

Digest = str
"""SHA-256 of a wheel, 64 hex digits; "" for none: the installed parser of the name, if there is one."""


class DeployedParser(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the set says of one name. `content_types`: those that the parser is chosen for, if no other parser takes them.

    `former`: the parser that takes over if this one fails; `None` if this one is no longer compared with another.
    `accept_dead`: an event that only the former one reads does not make this one fail. `since`: tells this deployment from one
    of the same file at another time.
    """

    digest: Digest
    content_types: tuple[str, ...] = ()
    former: Digest | None = None
    accept_dead: bool = False
    since: int = 0


class ParserSet(msgspec.Struct, frozen=True, omit_defaults=True):
    """The deployed parsers by name. `number`: of the entry that made the set; 0 before the first one."""

    number: int = 0
    parsers: dict[str, DeployedParser] = {}

    @property
    def settled(self) -> "ParserSet":
        """The same parsers, none beside a former one: for a replay, whose user sees what is different."""
        return ParserSet(self.number, {name: replace(each, former=None) for name, each in self.parsers.items()})

    @property
    def content_types(self) -> dict[str, str]:
        """The name of the parser of each content type that a deployment asks for."""
        return {kind: name for name, each in self.parsers.items() if each.digest for kind in each.content_types}


class Change(StrEnum):
    """The kind of an entry."""

    DEPLOY = "deploy"
    """A team gave a new parser."""
    ROLLBACK = "rollback"
    """A team took the former parser again."""
    RETURN = "return"
    """A flow took the former parser again, because the new one failed."""


class ParserEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the log. `previous`: SHA-256 of the entry before it, "" of the first. `who`: a principal, or a flow.

    `at_ms`: milliseconds since 1970, on the clock of who wrote it.
    """

    number: int
    previous: str = ""
    at_ms: int
    who: str
    change: Change
    name: str
    digest: Digest
    why: str = ""
    parsers: dict[str, DeployedParser]

    @property
    def set(self) -> ParserSet:
        """The set after this entry."""
        return ParserSet(self.number, self.parsers)


def encode_entry(entry: ParserEntry) -> bytes:
    """Return the entry as JSON."""
    return msgspec.json.encode(entry)


def entry_digest(encoded: bytes) -> str:
    """Return the SHA-256 of an entry's bytes, which the next entry names."""
    return hashlib.sha256(encoded).hexdigest()


def with_parser(given: ParserSet, name: str, digest: Digest, content_types: Iterable[str], *, accept_dead: bool) -> ParserSet:
    """Return the set after a deployment. Raises `Poison` if another parser is deployed for one of the content types.

    Without content types, those of the former deployment go on.
    """
    former = given.parsers.get(name, DeployedParser(digest=""))
    kinds = tuple(dict.fromkeys(map(essence, content_types))) or former.content_types
    for kind in kinds:
        other = given.content_types.get(kind, name)
        if other != name:
            raise Poison("conflict", f"parser {other} is deployed for content type {kind} already")
    if (digest, kinds, accept_dead) == (former.digest, former.content_types, former.accept_dead):
        return given  # a repeated request
    before = former.former if digest == former.digest else former.digest
    return _with(given, name, DeployedParser(digest=digest, content_types=kinds, former=before, accept_dead=accept_dead))


def without_trial(given: ParserSet, name: str, digest: Digest) -> ParserSet:
    """Return the set in which `name` is a parser that was in use before."""
    return _with(given, name, replace(given.parsers[name], digest=digest, former=None, accept_dead=False))


def _with(given: ParserSet, name: str, parser: DeployedParser) -> ParserSet:
    number = given.number + 1
    return ParserSet(number, {**given.parsers, name: replace(parser, since=number)})


def former_digest(history: Sequence[ParserEntry], name: str) -> Digest:
    """Return what `name` was before its present parser was deployed. Raises `Poison` if it was never deployed.

    A parser to which a flow returned does not count as deployed anew: a roll-back goes on to what was before that one.
    """
    now = next((each.parsers[name].digest for each in reversed(history) if name in each.parsers), None)
    if not now:
        raise Poison("unknown-parser", f"parser {name} is not deployed")
    for each in history:
        if each.change is Change.DEPLOY and each.name == name and each.digest == now:
            return each.parsers[name].former or ""
    raise Poison("unknown-parser", f"parser {name} has no former parser")


def newest_changes(history: Iterable[ParserEntry]) -> list[ParserEntry]:
    """Return the newest entry of each parser, by name. `history`: oldest first."""
    return [each for _, each in sorted({each.name: each for each in history}.items())]


def retained(present: Mapping[str, DeployedParser]) -> set[Digest]:
    """Return the digests of the files that a set needs."""
    return {digest for each in present.values() for digest in (each.digest, each.former) if digest}
