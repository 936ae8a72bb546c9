"""A pipeline that is ready to run: its folder is read and locked, and Spark has started."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fogline_cloud.flows.start.lease import held
from fogline_cloud.pipelines.pipeline import Pipeline, read_pipeline
from fogline_cloud.pipelines.run import PipelineRun, Say
from fogline_cloud.pipelines.spark_connect import pipeline_session
from fogline_cloud.pipelines.trial import TrialResult, try_pipeline
from fogline_cloud.settings import CloudSettings

_LOG = "spark.log"


@contextmanager
def opened(folder: Path, settings: CloudSettings, say: Say) -> Iterator[PipelineRun]:
    """Open a pipeline. Raises `Misconfigured`, also if another process runs it. `say`: as of `PipelineRun`."""
    pipeline = read_pipeline(folder)
    lease = held(f"{pipeline.storage}/run", str(pipeline.file), "run", "Wait until it has ended")
    with lease, pipeline_session(settings, log_of(pipeline)) as session:
        yield PipelineRun(session, pipeline, settings, say)


def tested(folders: Sequence[Path], settings: CloudSettings, say: Say) -> dict[str, TrialResult]:
    """Test pipelines one after the other. Returns the results by folder. Raises `Misconfigured`."""
    pipelines = {str(each): read_pipeline(each) for each in folders}
    results = {}
    with TemporaryDirectory(prefix="fogline-log-") as scratch, pipeline_session(settings, Path(scratch, _LOG)) as session:
        session.expect_few_rows()
        for name, pipeline in pipelines.items():
            results[name] = try_pipeline(session, pipeline, settings, say)
    return results


def log_of(pipeline: Pipeline) -> Path:
    """Return the path of Spark's log: in the storage, or in the working folder if that is a URL."""
    return Path(
        f"fogline-pipeline-{pipeline.database}.log" if "://" in pipeline.storage else f"{pipeline.storage}/{_LOG}"
    ).absolute()
