"""Settings of the maintenance of tables and large bodies. docs/reference/settings.md is generated from them."""

from typing import Annotated

import msgspec
from msgspec import Meta


class TablesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Maintenance of the tables (`fogline table maintain`)."""

    maintain_every_min: Annotated[float, Meta(ge=0)] = 10.0
    """How often a running flow starts the maintenance of its tables, in minutes. 0: never; run it from a timer then."""
    keep_days: Annotated[int, Meta(ge=8)] | None = None
    """How many days rows of `events` and `readings` are kept, longer than Kafka keeps its records. Default: for ever."""
    vacuum_days: Annotated[float, Meta(ge=1)] = 7.0
    """How many days files are kept that the newest version of a table does not need, for readers of earlier versions, as far as
    the log goes back. For readers that note their version (`fogline table readers`) up to 30 days."""
    keep_commits: Annotated[int, Meta(ge=1000)] = 10_000
    """Number of versions of a table that its log goes back to: 2.8 hours at a commit a second, 7 days at one a minute. The time
    of a commit grows with it on a local disk. For readers that note their version the log goes back up to 30 days."""
    sort_closed_days: bool = False
    """If true, maintenance sorts the rows of each closed day of `readings` by device, so that a query for one device reads few
    files. It writes each day once more, and takes some 500 MiB of memory (docs/operations.md)."""
    body_days: Annotated[int, Meta(ge=1)] = 90
    """How many days a large body is kept after its event has come, or, while neither event nor end has come, after its last
    chunk: longer than gateways are offline (docs/large-bodies.md)."""
    ended_body_hours: Annotated[float, Meta(ge=1)] = 24.0
    """How many hours the chunks of a body are kept after its gateway said that no event comes."""
