"""The address of a database, `url` of a sink. Pure."""

from enum import StrEnum
from urllib.parse import quote, urlsplit

import msgspec

from fogline.errors import Misconfigured


class Kind(StrEnum):
    """A kind of database."""

    POSTGRESQL = "postgresql"
    DUCKDB = "duckdb"
    SQLITE = "sqlite"


_NAMES = {Kind.POSTGRESQL: "PostgreSQL", Kind.DUCKDB: "DuckDB", Kind.SQLITE: "SQLite"}


class Place(msgspec.Struct, frozen=True):
    """Where a database is. `address`: for its driver, a URL or the path of a file. `shown`: for people, without a password."""

    kind: Kind
    address: str
    shown: str

    @property
    def product(self) -> str:
        """The name of the database's software."""
        return _NAMES[self.kind]


def place_of(url: str, password: str | None = None) -> Place:
    """Return the place of a URL: `postgresql://user@host/database`, `duckdb:///file` or `sqlite:///file`.

    `password`: of a PostgreSQL user. Raises `Misconfigured`.
    """
    scheme, found, rest = url.partition("://")
    kind = {"postgresql": Kind.POSTGRESQL, "postgres": Kind.POSTGRESQL, "duckdb": Kind.DUCKDB, "sqlite": Kind.SQLITE}.get(
        scheme
    )
    if kind is None or not found:
        raise Misconfigured(f"url = {url!r}: expected postgresql://user@host/database, duckdb:///file or sqlite:///file")
    if kind is Kind.POSTGRESQL:
        return _server(url, password)
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path:
        raise Misconfigured(f"url = {url!r}: expected {scheme}:///file, or {scheme}:////folder/file from the root")
    if password is not None:
        raise Misconfigured(f"password_file: a file of {_NAMES[kind]} has no password")
    return Place(kind, path, path)


_DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "60000", "application_name": "fogline-sink"}
"""Options of libpq, without which a server that falls silent is not noticed for hours."""


def _server(url: str, password: str | None) -> Place:
    parts = urlsplit(url)
    if parts.password is not None or "password=" in parts.query:
        raise Misconfigured("url: the password belongs in password_file, not in the URL")
    shown = f"{parts.netloc}{parts.path}"
    more = "&".join(f"{name}={value}" for name, value in _DEFAULTS.items() if f"{name}=" not in parts.query)
    parts = parts._replace(query="&".join(filter(None, (parts.query, more))))
    if password is None:
        return Place(Kind.POSTGRESQL, parts.geturl(), shown)
    if parts.username is None:
        raise Misconfigured(f"url = {url!r}: password_file needs a user: postgresql://user@host/database")
    user, at, host = parts.netloc.rpartition("@")
    return Place(Kind.POSTGRESQL, parts._replace(netloc=f"{user}:{quote(password, safe='')}{at}{host}").geturl(), shown)
