"""Spark's daemon of Python workers, with the flow's modules loaded: its workers are forks, which need not load them again.

Loading them takes more than a second of each worker's time, and the first rows of a started flow would wait for it. Parsers
are not loaded here: they are other people's code, and a fork must not inherit their threads.
"""

import gc

from pyspark import daemon

from fogline_cloud.flows.driver import (
    raw_sink,  # noqa: F401 - they load what workers need
)

if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage after each task, and need not look at these modules
    daemon.manager()
