"""The commits of a table: who made them, and what they did."""

from typing import Any

from deltalake import DeltaTable

from fogline.errors import Misconfigured

COMMITTED_BY = "foglineFlow"
"""Key of the flow's name (`Owner.name`) in the commit information."""
COMMIT_ID = "foglineCommit"
"""Key of a commit's unique id in the commit information."""
_CHANGES_NO_ROW = {"OPTIMIZE", "VACUUM START", "VACUUM END"}
_RECENT = 20  # number of commits that are read first; all of them only if these do not suffice


def since_commit_of(table: DeltaTable, name: str) -> list[dict[str, Any]] | None:
    """Return the commits from the newest one to the last one of the flow `name`, `None` if it has none."""
    for limit in (_RECENT, None):
        commits: list[dict[str, Any]] = table.history(limit)
        last = next((at for at, commit in enumerate(commits) if commit.get(COMMITTED_BY) == name), None)
        if last is not None:
            return commits[: last + 1]
    return None


def last_commit_s(table: DeltaTable, name: str) -> float | None:
    """Return the time of the last commit of the flow `name`, in seconds since 1970; `None` if there is none."""
    commits = since_commit_of(table, name)
    return None if commits is None else float(commits[-1]["timestamp"]) / 1000


def others_since(table: DeltaTable, version: int) -> list[str]:
    """Return the operations of commits after a version, except flows' batches and what changes no row."""
    count = table.version() - version
    commits = table.history(count) if count else []
    return [
        str(each["operation"]) for each in commits if COMMITTED_BY not in each and each.get("operation") not in _CHANGES_NO_ROW
    ]


def has_restore(commits: list[dict[str, Any]]) -> bool:
    """Return True if one of the commits restored the table to an earlier version."""
    return any(commit.get("operation") == "RESTORE" for commit in commits)


def restored(path: str) -> Misconfigured:
    """Return the error for a table that was restored."""
    return Misconfigured(
        f"{path}: the table was restored to an earlier version, so rows of finished batches are missing: "
        "restore events and readings to the same moment, then delete the folder of [flow] checkpoint, and the flow "
        "continues after the last rows of the tables"
    )
