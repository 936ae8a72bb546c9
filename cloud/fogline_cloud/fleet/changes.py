"""The days of table `events` that changed after the version that table `fleet` stands for. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from fogline_cloud.ledger.day_changes import Commit


class DayChange(msgspec.Struct, frozen=True):
    """Changes of one day. `added`: files with new rows. `is_counted_anew`: rows were removed, or nobody knows what changed."""

    added: tuple[str, ...] = ()
    is_counted_anew: bool = False


ANEW = DayChange(is_counted_anew=True)


def changed_days(entries: Iterable[Mapping[str, Commit]]) -> dict[str, DayChange]:
    """Return the days that these entries of the log touch. A compaction touches a day, too: its rows must still be as many."""
    found: dict[str, DayChange] = {}
    for entry in entries:
        for day, commit in entry.items():
            former = found.get(day, DayChange())
            added = tuple(each.path for each in commit.added if each.changes_rows)
            removed = any(each.changes_rows for each in commit.removed)
            found[day] = DayChange((*former.added, *added), former.is_counted_anew or removed)
    return found
