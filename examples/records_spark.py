"""Parse a column of a Spark data frame into fields: the model is loaded once per worker.

Run: python examples/records_spark.py MODEL table.csv COLUMN out_folder
"""

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def loaded(model: str) -> Any:
    """Return the parser of this worker."""
    from trelliswork.compute.threads import set_num_threads
    from trelliswork.records import RecordParser

    set_num_threads(1)  # Spark starts a worker for each core
    return RecordParser.load(model)


def parsing(model: str, column: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function for ``mapInPandas``: batches of pandas in, the same rows with fields out."""

    def parse(batches: Iterator[Any]) -> Iterator[Any]:
        from trelliswork.integrations.frames import parse_frame

        for batch in batches:
            yield parse_frame(loaded(model), batch, column)

    return parse


def parsed(table: Any, model: str, column: str) -> Any:
    """Return a Spark data frame with a column for each field, ``probability`` and ``problem``."""
    from pyspark.sql.types import DoubleType, StringType, StructField, StructType

    new = [StructField(name, StringType()) for name in loaded(model).fields_]
    new += [StructField("probability", DoubleType()), StructField("problem", StringType())]
    return table.mapInPandas(parsing(model, column), StructType([*table.schema.fields, *new]))


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    model, file, column, out = sys.argv[1:]
    spark = SparkSession.builder.appName("records").getOrCreate()
    table = spark.read.csv(file, header=True, multiLine=True, escape='"')
    parsed(table, model, column).write.csv(out, header=True, mode="overwrite")
