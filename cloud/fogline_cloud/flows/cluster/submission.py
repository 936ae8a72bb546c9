"""The command line of spark-submit that starts the flow on a cluster.

spark-submit starts Java before our code runs. What Java must know by then is on this line. All else comes from the settings, so
that no password is in a list of processes.
"""

import sys
from pathlib import Path

import msgspec
import pyspark

from fogline.errors import Misconfigured
from fogline_cloud.flows.driver.session import configuration, executor_python
from fogline_cloud.settings import CloudSettings

_AT_START = ("spark.archives", "spark.driver.", "spark.files", "spark.jars", "spark.pyspark.", "spark.submit.")
"""Beginnings of the settings that have no effect, or not all of it, once Java runs."""


class Submission(msgspec.Struct, frozen=True):
    """A command line in its parts. `options`: of spark-submit. `application`: the script and its arguments."""

    program: str
    options: list[str]
    application: list[str]

    @property
    def command(self) -> list[str]:
        """The whole command line."""
        return [self.program, *self.options, *self.application]


def submission(settings: CloudSettings, master: str, application: list[str]) -> Submission:
    """Return the command line that starts `application` with this master. Raises `Misconfigured`."""
    if settings.flow.master is not None:
        raise Misconfigured(
            f"[flow] master = {settings.flow.master}: spark-submit chooses the master: delete the setting, and pass --master"
        )
    flow = msgspec.structs.replace(settings.flow, master=master)
    chosen = {
        **configuration(msgspec.structs.replace(settings, flow=flow)),
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": executor_python(flow),
    }
    known = {key: value for key, value in chosen.items() if key.startswith(_AT_START)}
    options = [part for key, value in sorted(known.items()) for part in ("--conf", f"{key}={value}")]
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    return Submission(program, ["--master", master, *options], application)
