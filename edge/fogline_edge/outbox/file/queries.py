"""The named queries of `queries.sql`."""

import re
from importlib import resources

_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def _load() -> dict[str, str]:
    text = resources.files(__package__).joinpath("queries.sql").read_text("utf-8")
    return {name: sql.strip().rstrip(";") for name, sql in _NAMED.findall(text)}


SQL = _load()
