"""A process that keeps windows, to be killed.

    python tests/chaos/windows_keeper.py CLOUD_TOML FOLDER MERGES

Prints a JSON line when Spark has started, and one for each commit of windows. After `MERGES` micro-batches it kills itself,
between the commit of the last one and the query's checkpoint; with 0 never. With -1 it brings the windows up to date, and ends.
"""

import json
import os
import signal
import sys

from fogline_cloud.frames import session
from fogline_cloud.frames.windows import windows
from fogline_cloud.frames.windows_folder import WindowsFolder

SUMS = windows(["device"], "1 hour", {"sum": "sum(value)", "n": "count(*)"})


def main() -> None:
    """Keep windows until this process is killed."""
    config, into, merges = sys.argv[1], sys.argv[2], int(sys.argv[3])
    require_committed, made = WindowsFolder.require_committed, 0

    def die(folder: WindowsFolder, mark: int) -> None:
        nonlocal made
        require_committed(folder, mark)
        made += folder.mark(0) != mark
        print(json.dumps({"merges": made}), flush=True)
        if made == merges:
            os.kill(os.getpid(), signal.SIGKILL)

    WindowsFolder.require_committed = die  # type: ignore[method-assign]
    spark = session(config)
    print(json.dumps({"session": "started"}), flush=True)
    SUMS.keep(spark, config, into=into, once=merges < 0, every="100 milliseconds").wait()
    spark.stop()


if __name__ == "__main__":
    main()
