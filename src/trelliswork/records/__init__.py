"""Records: short strings such as addresses, names and references, split into fields that know how sure they are.

============== ==================================================================================
`RecordParser` a tokenizer, a CRF and rules: texts to fields, with the probability of each
`read_records` labeled texts of parserator and anystyle (XML), JSON lines and CSV with spans
`read_texts`   a column of texts of CSV or JSON lines, row by row
============== ==================================================================================
"""

from trelliswork.records.parser import Field, Record, RecordParser, RecordReport
from trelliswork.records.reading import Example, read_records, read_texts

__all__ = ["Example", "Field", "Record", "RecordParser", "RecordReport", "read_records", "read_texts"]
