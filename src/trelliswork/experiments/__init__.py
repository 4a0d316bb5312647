"""The papers' experiments, run again: each takes sizes and seeds and returns a table, our figures beside theirs."""
