"""Which rows that a gateway could not prove unsent are there already. DataFrame in, DataFrame out."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud.flows import schema
from fogline_cloud.flows.schema import Outcome
from fogline_cloud.flows.shared import Place

IDENTITY = ("source", "id")


def mark_replayed(contested: DataFrame, settled: DataFrame) -> DataFrame:
    """Contested rows, made duplicates if their event is there already, or came before among them.

    `settled`: rows that stand, in the table and in the same micro-batch, with at least `outcome` and the identity. Of
    several contested ones the first in Kafka stays. `contested` is read twice.
    """
    known = (
        settled.where(F.col("outcome") != Outcome.DUPLICATE.value)
        .join(F.broadcast(contested.select(*IDENTITY).distinct()), list(IDENTITY), "left_semi")
        .select(*IDENTITY, F.lit(True).alias("known"))
        .distinct()
    )
    in_order = Window.partitionBy(*IDENTITY).orderBy("ingested", *Place._fields)
    is_known = F.coalesce(F.col("known"), F.lit(False)) | (F.row_number().over(in_order) > 1)
    marked = contested.join(F.broadcast(known), list(IDENTITY), "left").withColumn("is_known", is_known)
    instead = {
        "outcome": F.lit(Outcome.DUPLICATE.value),
        "reason": F.lit("replayed"),
        "detail": F.lit(None),
        "readings": F.array().cast(schema.READINGS_TYPE),
        "data": F.lit(None),
    }
    return marked.select(
        *(
            F.when(F.col("is_known"), instead[name]).otherwise(F.col(name)).alias(name) if name in instead else F.col(name)
            for name in schema.names(schema.in_file(schema.EVENTS))
        )
    )
