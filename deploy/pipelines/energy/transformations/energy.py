"""The energy that meters counted in each hour, in watt-hours."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fogline_cloud.pipelines import expect, readings


@dp.materialized_view
@expect("a whole hour", "quarters = 4")
def energy_hourly() -> DataFrame:
    """The sum of each meter's quarters of an hour, by the hour in which they were measured."""
    quarters = readings().where("metric = 'energy' AND NOT coalesce(again, false)")
    hour = F.window(F.coalesce("time", "ingested"), "1 hour")
    found = quarters.groupBy("device", hour.alias("hour")).agg(
        F.sum("value").alias("energy_wh"), F.count("*").alias("quarters")
    )
    return found.select("device", F.col("hour.start").alias("start"), F.col("hour.end").alias("end"), "energy_wh", "quarters")
