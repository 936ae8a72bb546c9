"""Writes docs/reference/columns.md from `fogline_cloud.flows.tables.schema`: the columns of the tables. For `make docs`."""

from pathlib import Path

from fogline_cloud.flows.tables.schema import EVENTS, FLEET, RAW, READINGS, Column

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "columns.md"

_TABLES = {"events": EVENTS, "readings": READINGS, "raw": RAW, "fleet": FLEET}
_HEAD = """\
# Columns

The columns of the Delta tables, as `DESCRIBE TABLE` shows them. [tables](../tables.md) explains the tables. This page is
generated from the schema by `make docs`.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *(_table(name, columns) for name, columns in _TABLES.items())])


def _table(name: str, columns: tuple[Column, ...]) -> str:
    rows = "".join(f"| `{each.name}` | {each.type} | {each.meaning} |\n" for each in columns)
    return f"## `{name}`\n\n| column | type | meaning |\n|---|---|---|\n{rows}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
