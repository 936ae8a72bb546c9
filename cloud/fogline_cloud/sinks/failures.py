"""Errors of databases, by the reaction that they need: wait and try again, or tell the user what to change. Pure."""

import re

from fogline.errors import FoglineError, Misconfigured, Unreachable
from fogline_cloud.sinks.place import Kind, Place

_WAITING = ("08", "40", "53", "57", "58")
"""Classes of SQLSTATE that pass by themselves or by an administrator: connection, conflict, resources, intervention, system."""
_WAITING_STATES = ("25006", "55P03")  # a standby that takes no writes yet; a lock
_RIGHTS = "42501"
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|does not exist|is not permitted to log in"
    r"|authentication failed|could not translate host name|certificate verify failed|invalid (URI|port|sslmode|connection)"
)
_PASSING = {
    Kind.SQLITE: re.compile(r"is locked|is full|disk I/O error"),
    Kind.DUCKDB: re.compile(r"Could not set lock|No space left|Could not write|Conflict|conflict"),
}
_NOISE = re.compile(r"^(?:[A-Z_]+: )?(?:\[(?:libpq|SQLite)\] )?")


def failure_of(place: Place, text: str, sqlstate: str | None, *, is_io: bool) -> FoglineError:
    """Return the error of a database's driver. `is_io`: the driver calls it an error of input and output."""
    if place.kind is Kind.POSTGRESQL:
        return _of_server(place, text, sqlstate, is_io=is_io)
    line = _first_line(text)
    if _PASSING[place.kind].search(text):
        return Unreachable(f"{place.product} {place.shown}: {line}")
    return Misconfigured(f"{place.product} {place.shown}: {line}")


def _of_server(place: Place, text: str, sqlstate: str | None, *, is_io: bool) -> FoglineError:
    where = f"PostgreSQL at {place.shown}"
    if sqlstate is None:  # libpq gives none for a connection that fails
        reason = _reason(text)
        if _REFUSED.search(text):
            return Misconfigured(f"{where} refuses the connection: {reason}: check url and password_file of the sink")
        return Unreachable(f"{where}: {reason}") if is_io else Misconfigured(f"{where}: {reason}")
    reason = _reason(text)
    if sqlstate[:2] in _WAITING or sqlstate in _WAITING_STATES:
        return Unreachable(f"{where}: {reason}")
    if sqlstate == _RIGHTS:
        return Misconfigured(f"{where}: {reason}: the user of the sink needs this right (docs/sinks.md)")
    return Misconfigured(f"{where}: {reason} (SQLSTATE {sqlstate})")


def _reason(text: str) -> str:
    """Return the server's words without those of libpq and of the driver."""
    found = re.search(r"(?:FATAL|ERROR|PANIC): +([^\n]+)", text)
    if found is not None:
        return found[1].strip()
    found = re.search(r"failed: ([^\n]+)", text)
    return found[1].strip() if found is not None else _first_line(text)


def _first_line(text: str) -> str:
    return _NOISE.sub("", text.strip().partition("\n")[0]).strip()
