"""What each gateway heard of the fleet on each day, from the metadata of the events."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fogline_cloud.pipelines import events


@dp.materialized_view
def coverage() -> DataFrame:
    """Devices and events by gateway and the day on which it recorded them, and how many came more than an hour later."""
    heard = events().where("device IS NOT NULL AND outcome IN ('ok', 'skip', 'slow', 'dead')")
    return heard.groupBy("gateway", F.to_date("recordedtime").alias("recorded_on")).agg(
        F.countDistinct("device").alias("devices"),
        F.count("*").alias("events"),
        F.count_if(F.expr("ingested > recordedtime + INTERVAL 1 HOUR")).alias("late"),
        F.count_if(F.expr("outcome <> 'ok'")).alias("unread"),
    )
