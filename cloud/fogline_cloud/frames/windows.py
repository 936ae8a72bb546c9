"""Windows over table `readings` that stay exact: late events, replays and deletions reach the windows that they change.

    from fogline_cloud.frames import session
    from fogline_cloud.frames.windows import windows

    hourly = windows(["device", "metric"], "1 hour", {"mean": "avg(value)", "values": "count(*)"})
    hourly.keep(session("cloud.toml"), "cloud.toml", into="hourly", once=True)

A watermark drops what comes after it: the events of a gateway that was offline for three days are in `readings`, and in none
of its windows. Here each change of `readings` names the windows that it touches, and these are computed again from `readings`
(`kept_windows`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from fogline.errors import Misconfigured
from fogline_cloud import frames
from fogline_cloud.frames.kept_windows import KeptWindows
from fogline_cloud.frames.windows_folder import WindowsFolder
from fogline_cloud.frames.windows_query import END, START, WindowsQuery


def windows(
    keys: Sequence[str], size: str, aggregates: Mapping[str, str], where: str = "true", *, slide: str | None = None
) -> "Windows":
    """Return windows over `readings`: for each of `keys` and each time of the length `size`, such as "1 hour".

    `aggregates`: expressions of Spark SQL by the name of their column. `where`: a condition on the rows, in SQL. `slide`: time
    between the starts of two windows, if they overlap. The time of a row is `time`, or `ingested` if it has none.
    """
    taken = {START, END} & {*keys, *aggregates}
    if taken or not keys or not aggregates or {*keys} & {*aggregates}:
        raise Misconfigured("windows: expected keys and aggregates with different names, and neither `start` nor `end`")
    return Windows(tuple(keys), size, dict(aggregates), where, slide)


class Windows(WindowsQuery):
    """See `windows`."""

    def keep(
        self,
        spark: SparkSession,
        config: frames.Config = "cloud.toml",
        *,
        into: str,
        once: bool = False,
        every: str = "1 minute",
    ) -> KeptWindows:
        """Keep the windows in a Delta table in the folder `into`, which is made.

        `once`: bring them up to date, and return when that is done; else they follow at intervals of `every`, on a thread.
        All windows are computed again if the folder has those of another definition, or if the reader was away for longer
        than the tables' history. Raises `Misconfigured` if another process keeps the folder.
        """
        # Java keeps the folder in which it began.
        path = into.rstrip("/") if "://" in into else str(Path(into).absolute())
        kept = KeptWindows(self, spark, config, WindowsFolder(path, frames.storage(config)))
        kept.run(once=once, every=every)
        return kept
