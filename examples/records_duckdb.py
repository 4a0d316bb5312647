"""Parse a column of a table in DuckDB into fields, batch by batch, as Arrow.

Run: python examples/records_duckdb.py MODEL table.csv COLUMN out.parquet
"""

import sys
from typing import Any

from trelliswork.integrations.frames import parse_frame
from trelliswork.records import RecordParser

ROWS = 50_000  # of a batch


def parsed(rows: Any, parser: RecordParser, column: str) -> Any:
    """Return an Arrow reader: the rows of a query with a column for each field, ``probability`` and ``problem``."""
    import pyarrow as pa

    batches = rows.to_arrow_reader(ROWS)
    empty = parse_frame(parser, batches.schema.empty_table(), column)
    made = (batch for part in batches for batch in parse_frame(parser, pa.table(part), column).to_batches())
    return pa.RecordBatchReader.from_batches(empty.schema, made)


if __name__ == "__main__":
    import duckdb

    model, file, column, out = sys.argv[1:]
    connection = duckdb.connect()
    rows = connection.cursor().sql(f"select * from '{file}'")  # read while the connection writes
    found = parsed(rows, RecordParser.load(model), column)
    connection.register("found", found)
    connection.sql(f"copy (select * from found) to '{out}'")
