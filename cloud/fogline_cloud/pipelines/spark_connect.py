"""The session that a pipeline needs: Fogline's Spark session with Spark Connect's server in it, and a client of that server.

Declarative pipelines exist in Spark Connect alone. The server listens on loopback, on a port of its own, and takes no client
without the token, which is in the environment of this process and its children.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fogline.errors import Misconfigured
from fogline_cloud.flows.driver.session import spark_session
from fogline_cloud.settings import CloudSettings, Scalar
from fogline_cloud.store.failure import first_line

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable
_MODE = "SPARK_CONNECT_MODE_ENABLED"
_SERVICE = "org.apache.spark.sql.connect.service"
SERVER: dict[str, Scalar] = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": 0,
}
"""Settings of a session beside which pipelines can run."""
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_OF_PIPELINES = {
    "spark.sql.sources.default": "delta",  # Spark refuses the second run of a table that names its format itself
    "spark.sql.pipelines.maxFlowRetryAttempts": "0",  # what breaks an expectation breaks it again
}


class PipelineSession(msgspec.Struct, frozen=True):
    """A session of Spark Connect in this process. `classic`: the session of its server."""

    classic: SparkSession
    spark: Any

    def declared(self, graph_id: str) -> Any:
        """Return what a graph was declared with, as Spark's server keeps it."""
        return self._holder().dataflowGraphRegistry().getDataflowGraphOrThrow(graph_id)

    def expect_few_rows(self) -> None:
        """Let Spark interpret queries from now on: for the few rows of a test, to compile them takes half as long again."""
        for key, value in _INTERPRETED.items():
            self.spark.conf.set(key, value)

    def may_start_again(self, graph_id: str) -> None:
        """Let a declared pipeline start once more, after a start has ended."""
        self._holder().removeCachedPipelineExecution(graph_id)

    def _holder(self) -> Any:
        jvm: Any = self.classic._jvm  # noqa: SLF001 - PySpark has no other name for its JVM
        key = getattr(jvm, _SERVICE).SessionKey(self.spark.client._user_id or "", self.spark.session_id)  # noqa: SLF001
        none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
        return _service(self.classic).sessionManager().getIsolatedSession(key, none)


def make_token() -> None:
    """Make the token of the server. It must be there before Java starts."""
    os.environ.setdefault(_TOKEN, secrets.token_urlsafe(32))


@contextmanager
def pipeline_session(settings: CloudSettings, log: Path) -> Iterator[PipelineSession]:
    """Start Spark for pipelines, and stop it at the end of the block. Raises `Misconfigured`. `log`: Spark's own."""
    flow = settings.flow
    more = {**SERVER, "spark.app.name": "fogline-pipeline", **flow.spark}
    make_token()
    with (
        spark_session(msgspec.structs.replace(settings, flow=msgspec.structs.replace(flow, spark=more)), log) as classic,
        connected(classic) as session,
    ):
        yield session


@contextmanager
def connected(classic: SparkSession) -> Iterator[PipelineSession]:
    """Open a session of Spark Connect beside one that was started with `SERVER`. Raises `Misconfigured`."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415 - it needs the extra `pipelines`

    port = _service(classic).localPort()
    former = os.environ.get(_MODE)
    os.environ[_MODE] = "1"  # `pyspark.sql.functions` then makes columns of Spark Connect
    try:
        spark = ConnectSession.builder.remote(f"sc://localhost:{port}").create()
        try:
            for key, value in _OF_PIPELINES.items():
                spark.conf.set(key, value)
            yield PipelineSession(classic, spark)
        finally:
            with suppress(PySparkException, Py4JError, OSError):
                spark.stop()
    except PySparkException as error:
        raise Misconfigured(f"Spark Connect does not start: {first_line(error)}") from error
    finally:
        os.environ.pop(_MODE, None) if former is None else os.environ.__setitem__(_MODE, former)


def _service(classic: SparkSession) -> Any:
    package = getattr(classic._jvm, _SERVICE)  # noqa: SLF001 - PySpark has no other name for its JVM
    return getattr(getattr(package, "SparkConnectService$"), "MODULE$")
