"""Pipelines that users declare: Spark's Declarative Pipelines over Fogline's tables (docs/pipelines.md).

    from pyspark import pipelines as dp

    from fogline_cloud.pipelines import expect_or_drop, readings

    @dp.table
    @expect_or_drop("plausible", "value BETWEEN -60 AND 60")
    def temperatures():
        return readings(streaming=True).where("metric = 'temperature'")

`fogline pipeline run` runs the files that a spec (`spark-pipeline.yml`) names.

`changes`: streaming tables that a change of their source makes wrong
`declarations`: what the files of a pipeline declare, registered with Spark
`drawing`: the graph as SVG and Mermaid
`expected_rows`: rows of a table and expected ones
`expectations`: conditions on the rows of a table
`graph`: the tables of a pipeline and what they read, as values
`lag`: how far tables are behind their sources
`landing`: lands recorded events in tables
`notes`: what a pipeline remembers between two runs
`opened`: a pipeline that is ready to run
`pipeline`: a pipeline's folder and spec
`resolved_graph`: the graph as Spark resolves it
`run`: one run of a pipeline
`skeleton`: the files of a new pipeline
`sources`: Fogline's tables within a pipeline
`spark_connect`: the session that a pipeline needs
`stored_tables`: the tables as they are stored
`trial`: tests a pipeline on recorded events
"""

from fogline_cloud.pipelines.expectations import expect, expect_or_drop, expect_or_fail
from fogline_cloud.pipelines.sources import events, raw, readings

__all__ = ["events", "expect", "expect_or_drop", "expect_or_fail", "raw", "readings"]
