"""A table's Delta log, written by delta-rs: one commit adds the files that workers wrote to the table.

See the Delta protocol, "Add File and Remove File" and "Transaction Identifiers". Spark's own writer would move all rows again.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.tables.batch import File, MicroBatch
from fogline_cloud.flows.tables.files import TableFolder, missing_files, require_files
from fogline_cloud.flows.tables.own_commits import OwnCommit, OwnCommits, removed_paths
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.table_history import COMMIT_ID, COMMITTED_BY, has_restore, restored
from fogline_cloud.flows.tables.table_log import TableLog

log = logging.getLogger(__name__)

RETRY_S = 60.0
"""Time for which a commit is repeated while others commit what is in its way."""
_HOOK = PostCommitHookProperties(cleanup_expired_logs=False)  # it would list the log five times; maintenance does it


class DeltaLog(TableLog):
    """The log of one existing table, to which a flow commits. Not thread-safe.

    If another program overwrites a commit of this object, a later call repeats it (docs/decisions/0046).
    `former`: an object for the same table that this process does not use any more. Its commits are this object's too.
    """

    def __init__(self, table: str, folder: TableFolder, former: "DeltaLog | None" = None) -> None:
        super().__init__(table, folder)
        self._seen = self._table.version()
        self._own = 0  # commits of this object since `_seen`
        self.own_commits: OwnCommits = former.own_commits if former else OwnCommits(self.read_entry)

    def read_back(self) -> None:
        """Repeat commits of this process that another program has overwritten, so that the table can be asked what it has.

        Raises `Misconfigured` if that is not possible, or another flow has taken over.
        """
        if self.own_commits.owner is not None:
            self._recommit_overwritten(self.own_commits.owner)

    def take_over(self, owner: Owner, marks: Mapping[str, int], files: Sequence[File] = (), at: int | None = None) -> None:
        """Commit this owner, with further transactions `marks` and `files`. Raises `Misconfigured` if another flow came first.

        `at`: the only version of the table that the commit may follow.
        """

        def require() -> bool:
            if self.epoch_of(owner) >= owner.epoch:
                raise owner.superseded(self.folder.path)
            if at is not None and self._table.version() != at:
                remedy = "stop the flow and `fogline table maintain`, then run this again"
                raise Misconfigured(f"{self.folder.path}: the table has changed meanwhile: {remedy}")
            return True

        self._commit(OwnCommit(id=_new_id(), files=files, marks={**owner.marks, **marks}), owner, require)

    def append(self, files: Sequence[File], batch: MicroBatch, owner: Owner) -> bool:
        """Commit files (or none) as the rows of one batch. Returns False, and does nothing, if the batch is committed already.

        Raises `Misconfigured` if `owner` is not the owner any more, the table was restored, or a file is incomplete,
        `FilesGone` if one is missing, `Unreachable` if other commits came first each time.
        """
        application = batch.application(self.table)

        def require() -> bool:
            self._require(owner)
            newest = self._table.transaction_version(application)
            if newest is not None and newest >= batch.number:
                return False
            require_files(self.folder, files)
            return True

        marks = {**owner.marks, application: batch.number}
        return self._commit(OwnCommit(id=_new_id(), files=files, marks=marks, batch=application), owner, require)

    def _require(self, owner: Owner) -> None:
        """Raise unless `owner` owns this snapshot, and the table was not restored since the last commit."""
        if any(self._table.transaction_version(application) != owner.epoch for application in owner.applications):
            raise owner.superseded(self.folder.path)
        self._require_unrestored()

    def _require_unrestored(self) -> None:
        version = self._table.version()
        # Reading the history lists the log, so only if others have committed.
        if version > self._seen + self._own:
            if has_restore(self._table.history(version - self._seen)):
                raise restored(self.folder.path)
            self.require_usable()
        self._seen, self._own = version, 0

    def _commit(self, commit: OwnCommit, owner: Owner, require: Callable[[], bool], *, look_back: bool = True) -> bool:
        """Commit on the newest version. Returns False, and does nothing, if `require` returns False.

        `require` is asked again after each conflict: a concurrent commit had the same transactions, changed the metadata, or
        deleted rows. If the answer to a commit was lost, delta-rs repeats it, and finds its own one as the conflict.
        """
        began = time.monotonic()
        while time.monotonic() - began < RETRY_S:
            if look_back:
                self._recommit_overwritten(owner)
            else:
                self.snapshot()
            if not require():
                return False
            after = self._table.version()
            try:
                self._write(commit, owner)
            except CommitFailedError as error:
                if not self.own_commits.holds(commit, after, self.version()):
                    log.info("%s: repeating a commit: %s", self.folder.path, str(error).partition("\n")[0])
                    continue
            self._own += 1
            self.own_commits.add(commit, after, time.monotonic())
            self.own_commits.owner = owner
            return True
        raise Unreachable(f"{self.folder.path}: other programs' commits came first for {RETRY_S:.0f} s")

    def _write(self, commit: OwnCommit, owner: Owner) -> None:
        now_ms = int(time.time() * 1000)
        properties = CommitProperties(
            app_transactions=[Transaction(application, version, now_ms) for application, version in commit.marks.items()],
            custom_metadata={COMMITTED_BY: owner.name, COMMIT_ID: commit.id},
        )
        self._table.create_write_transaction(
            _actions(commit.files),
            mode="append",
            schema=self._table.schema(),
            partition_by=["day"],
            commit_properties=properties,
            post_commithook_properties=_HOOK,
        )

    def _recommit_overwritten(self, owner: Owner) -> None:
        """Repeat commits of this object that another program has overwritten. Raises `Misconfigured` if files are gone."""
        newest = self.version()
        for commit, version in self.own_commits.overwritten(newest, time.monotonic()):
            self._table = DeltaTable(self.folder.uri, storage_options=self.folder.storage)  # it remembers the former entry
            self._own = max(0, self._own - 1)
            log.error(
                "%s: another program has overwritten version %d of the table, and so removed %s. It does not write with "
                "put-if-absent: give each Spark session that writes here Fogline's log store (docs/store.md). "
                "Repeating the commit.",
                *(self.folder.path, version, commit.text),
            )
            if has_restore(self._table.history(newest - version + 1)):
                raise restored(self.folder.path)
            # Files that a later commit has removed are in the table in another form: that commit saw them.
            removed = removed_paths(self.read_entry(each) for each in range(version, newest + 1))
            files = [each for each in commit.files if each.path not in removed]
            if missing := missing_files(self.folder, files):
                raise Misconfigured(
                    f"{self.folder.path}: another program has overwritten version {version} of the table, and so removed "
                    f"{commit.text}, and the file {missing[0]} was deleted meanwhile: run `fogline ledger verify`, and "
                    "`fogline flow replay` for these days, which lands the records again from table raw"
                )
            self._commit(
                OwnCommit(id=_new_id(), files=files, marks=self._not_less(commit.marks), batch=commit.batch),
                owner,
                partial(self._may_repeat, owner),
                look_back=False,
            )
            self.own_commits.forget(commit)
            newest = self.version()

    def _may_repeat(self, owner: Owner) -> bool:
        """Return True. Raises `Misconfigured` if the table has a newer owner, or was restored."""
        if self.epoch_of(owner) > owner.epoch:
            raise owner.superseded(self.folder.path)
        self._require_unrestored()
        return True

    def _not_less(self, marks: Mapping[str, int]) -> dict[str, int]:
        """Return marks that set none of the table's back."""
        known = {application: self._table.transaction_version(application) for application in marks}
        return {application: max(version, known[application] or version) for application, version in marks.items()}


def _new_id() -> str:
    return uuid4().hex


def _actions(files: Sequence[File]) -> list[AddAction]:
    return [AddAction(each.path, each.size, {"day": each.day}, each.modified_ms, True, each.stats) for each in files]
