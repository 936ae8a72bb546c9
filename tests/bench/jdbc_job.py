"""Spark writes a Delta table into PostgreSQL by JDBC, as its documentation shows it, for comparison with a sink.

    python tests/bench/jdbc_job.py TABLE JDBC_URL

With multi-row INSERTs, which the driver makes of Spark's batches (`reWriteBatchedInserts`). A failure in the middle would
leave rows that the next try inserts again. Prints a JSON line when Spark is warm, and one at the end.
"""

import json
import sys
import time

from pyspark.sql import SparkSession

from fogline.installed import find_jars


def main() -> None:
    """Count the rows, then write them."""
    table, url = sys.argv[1:]
    jars = ",".join(str(each) for name in ("spark", "postgresql") for each in find_jars(name))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    spark = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog").getOrCreate()
    rows = spark.read.format("delta").load(table)
    print(json.dumps({"rows": rows.count()}), flush=True)
    began = time.perf_counter()
    options = {"url": f"{url}?reWriteBatchedInserts=true", "user": "fog", "dbtable": "by_spark", "batchsize": "10000"}
    rows.write.format("jdbc").options(**options, driver="org.postgresql.Driver").mode("append").save()
    seconds = time.perf_counter() - began
    written = spark.read.format("jdbc").options(**options, driver="org.postgresql.Driver").load().count()
    print(json.dumps({"written": written, "seconds": seconds}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
