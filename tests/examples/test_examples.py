"""The scripts in ``examples/`` run as they say."""

import csv
import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from trelliswork import bundled

pytestmark = pytest.mark.programs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, *arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_names_lists_the_least_certain_first(tmp_path, monkeypatch, capsys):
    for name, part in (("train.txt", "train"), ("new.txt", "test")):
        sentences = bundled.load(part)[: 200 if part == "train" else 5]
        text = "\n".join("".join(f"{w} {c}\n" for w, c in zip(s.words, s.chunks, strict=True)) for s in sentences)
        (tmp_path / name).write_text(text, encoding="utf-8")
    lines = run("names.py", tmp_path / "train.txt", tmp_path / "new.txt", monkeypatch=monkeypatch, capsys=capsys)
    probabilities = [float(line.split()[0]) for line in lines]
    assert len(lines) > 10
    assert probabilities == sorted(probabilities)


def test_active_learning_beats_chance(monkeypatch, capsys):
    lines = run("active_learning.py", monkeypatch=monkeypatch, capsys=capsys)
    random, chosen = ([float(x) for x in re.findall(r"0\.\d+", line)] for line in lines)
    assert random[0] == chosen[0]
    assert chosen[-1] > random[-1]


def test_demo_conditions_on_what_is_known(monkeypatch, capsys):
    best, given, *alternatives = run("demo.py", monkeypatch=monkeypatch, capsys=capsys)
    assert "duck/NN" in best
    assert given.split()[-5:] == ["PRP", "VBD", "PRP", "VBP", "."]
    probabilities = [float(line.split()[2].rstrip(":")) for line in alternatives]
    assert len(probabilities) == 3
    assert probabilities == sorted(probabilities, reverse=True)


def test_own_factor_agrees_with_enumeration(monkeypatch, capsys):
    bp, exact, *steps = run("own_factor.py", monkeypatch=monkeypatch, capsys=capsys)
    assert bp.removeprefix("bp") == exact.removeprefix("exact")
    log_probs = [float(line.split()[1]) for line in steps]
    assert log_probs == sorted(log_probs)
    assert log_probs[-1] > log_probs[0] + 1


def table(folder, n):
    """A parser, a CSV file with a text for each number up to n, and their records."""
    from tests.records.test_parser import EXAMPLES
    from trelliswork.records import RecordParser

    parser = RecordParser(l2=0.1).fit(EXAMPLES)
    parser.save(folder / "model")
    texts = [f"{k} {EXAMPLES[k % 16].text.partition(' ')[2]}" for k in range(n)]
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "address"], *enumerate(texts)])
    return folder / "model", folder / "table.csv", parser, texts


def test_duckdb_gives_the_fields_of_a_table(tmp_path, monkeypatch, capsys):
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    model, file, parser, texts = table(tmp_path, 2_000)
    out = tmp_path / "out.parquet"
    run("records_duckdb.py", model, file, "address", out, monkeypatch=monkeypatch, capsys=capsys)
    rows = duckdb.sql(f"select id, street, probability from '{out}' order by id").fetchall()
    expected = parser.parse(texts)
    assert [row[:2] for row in rows] == [(n, record.values.get("street")) for n, record in enumerate(expected)]
    assert [row[2] for row in rows] == pytest.approx([record.probability for record in expected], rel=1e-4)


@pytest.mark.slow  # starts Java, and parses a million strings
def test_spark_gives_the_answers_of_one_process_although_a_worker_is_killed(tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES), *filter(None, sys.path)]))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spark_example = __import__("records_spark")
    n = int(os.environ.get("TRELLISWORK_SPARK_ROWS", "1000000"))
    model, file, parser, texts = table(tmp_path, n)
    mark = tmp_path / "killed"
    original = spark_example.parsing

    def killing(model, column, mark=str(mark), make=original):
        def parse(batches):
            for batch in make(model, column)(batches):
                if not os.path.exists(mark):  # noqa: PTH110, in a worker
                    open(mark, "w").close()  # noqa: PTH123
                    os.kill(os.getpid(), 9)
                yield batch

        return parse

    monkeypatch.setattr(spark_example, "parsing", killing)
    builder = sql.SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", False)
    spark = builder.config("spark.driver.memory", "3g").getOrCreate()
    try:
        rows = spark.read.csv(str(file), header=True)
        found = (
            spark_example.parsed(rows, str(model), "address").select("id", "street", "city", "probability").collect()
        )
    finally:
        spark.stop()
    assert mark.exists()
    found = {int(row[0]): row[1:] for row in found}
    assert len(found) == n
    at = 0
    for part in parser.tables(texts):
        columns = part.columns()
        for street, city, p in zip(columns["street"], columns["city"], columns["probability"], strict=True):
            assert found[at][:2] == (street, city)
            assert found[at][2] == pytest.approx(p, rel=1e-3)
            at += 1


def test_every_example_is_run():
    assert sorted(p.name for p in EXAMPLES.glob("*.py")) == [
        "active_learning.py",
        "demo.py",
        "names.py",
        "own_factor.py",
        "records_duckdb.py",
        "records_spark.py",
    ]
