"""Alarms of a cold chain: temperatures that are higher than their place allows (`places.csv`)."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fogline_cloud.pipelines import expect, expect_or_drop, expect_or_fail, readings

PLACES = Path(__file__).parents[1] / "places.csv"
spark = SparkSession.active()


@dp.table
@expect("has a unit", "unit IS NOT NULL")
@expect_or_drop("plausible", "value BETWEEN -60 AND 60")
@expect_or_fail("has a device", "device IS NOT NULL")
def temperatures() -> DataFrame:
    """The temperatures of probes. What is not plausible is in `temperatures_rejected`."""
    found = readings(streaming=True).where("metric = 'temperature' AND NOT coalesce(again, false)")
    return found.select("device", F.coalesce("time", "ingested").alias("time"), "value", "unit", "gateway")


@dp.table
def alarms() -> DataFrame:
    """Each temperature that is higher than its place allows."""
    places = spark.read.csv(PLACES.as_uri(), header=True, schema="device STRING, place STRING, highest DOUBLE")
    warm = spark.readStream.table("temperatures").join(F.broadcast(places), "device").where("value > highest")
    return warm.select("device", "place", "time", "value", "highest")
