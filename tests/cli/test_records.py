"""``trelliswork records``: tables in, tables out; broken rows, Ctrl-C, accepted records and those to review."""

import csv
import io
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import COMMAND, run
from tests.records.test_parser import EXAMPLES
from trelliswork.records import RecordParser, read_records
from trelliswork.records.parser import BATCH


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    RecordParser(rules="once", l2=0.1).fit(EXAMPLES).save(folder / "model")
    return folder


def table(text):
    return list(csv.DictReader(io.StringIO(text), strict=True))


ROWS = [
    ("a", "12 Oak St, Troy 10012"), ("b", ""), ("c", 'the "big"\nhouse, Elm Street, Salem'),
    ("d", "x " * 500_000), ("é", "  "), ("f", "8 Main Rd, Salem 10008"),
]  # fmt: skip


def write_rows(path, rows, header=("id", "address")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows([header, *rows])


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_table_keeps_its_rows_and_gets_columns(folder, tmp_path, ending):
    write_rows(tmp_path / f"in.{ending}", ROWS)
    out = tmp_path / f"out.{ending}"
    done = run("records", "parse", folder / "model", tmp_path / f"in.{ending}", "--column", "address", "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    delimiter = "\t" if ending == "tsv" else ","
    limit = csv.field_size_limit(10_000_000)
    text = out.read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter))
    csv.field_size_limit(limit)
    assert [(row["id"], row["address"]) for row in rows] == ROWS
    assert [row["problem"] for row in rows] == ["", "empty", "", "longer than 100,000 characters", "empty", ""]
    assert (rows[0]["street"], rows[0]["zip"], rows[1]["street"], rows[1]["probability"]) == ("Oak St", "10012", "", "")
    assert 0 < float(rows[0]["probability"]) <= 1


def test_rows_with_other_cells_are_marked(folder):
    text = 'id,address,more\n1,"5 Oak St, Troy 10005",x\n2,5 Oak St\n\n3,5 Elm Street, Troy,y\n'
    rows = table(run("records", "parse", folder / "model", "-", "--column", "address", input=text).stdout)
    assert [row["problem"] for row in rows] == ["", "2 cells instead of 3", "empty", "4 cells instead of 3"]
    assert [row["id"] for row in rows] == ["1", "2", "", "3"]
    assert rows[3]["more"] == " Troy,y"


def test_a_missing_column_and_broken_quotes_are_errors(folder, tmp_path):
    model = folder / "model"
    done = run("records", "parse", model, "-", "--column", "street", input="id,address\n")
    assert (done.returncode, "<stdin>:1: no column 'street'; it has id, address" in done.stderr) == (1, True)
    done = run("records", "parse", model, "-", "--column", "address", input="id,city,address\n")
    assert done.returncode == 2
    assert "choose another --prefix" in " ".join(done.stderr.replace("│", " ").split())
    done = run("records", "parse", model, "-", "--column", "address", "--prefix", "new_", input="city,address\n")
    new = [*RecordParser.load(model).fields_, "probability", "problem"]
    names = ["city", "address", *(f"new_{name}" for name in new)]
    assert done.stdout.strip().split(",") == names
    text = "id,address\n" + "1,5 Oak St\n" * BATCH + '2,5 Oak St\n3,"never closed\n4,x\n'
    done = run("records", "parse", model, "-", "--column", "address", input=text)
    assert done.returncode == 1
    assert f"<stdin>:{BATCH + 3}: the row that starts here is broken" in done.stderr
    assert f"--skip {BATCH}" in done.stderr
    assert len(table(done.stdout)) == BATCH
    rest = run("records", "parse", model, "-", "--column", "address", "--skip", BATCH, input=text.replace('"', ""))
    assert [row["id"] for row in table(rest.stdout)] == ["2", "3", "4"]


def test_json_lines(folder, tmp_path):
    lines = ['{"t": "5 Oak St, Troy 10005", "n": 1}', "no json", '{"n": 2}', "", '{"t": ""}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    done = run("records", "parse", folder / "model", tmp_path / "in.jsonl", "--column", "t")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (rows[0]["street"], rows[0]["n"]) == ("Oak St", 1)
    assert [row.get("problem", "")[:7] for row in rows] == ["", "no JSON", "no text", "empty"]
    assert rows[1]["line"] == "no json"
    done = run(
        "records", "parse", folder / "model", tmp_path / "in.jsonl", "--column", "t", "--out", tmp_path / "o.csv"
    )
    assert done.returncode == 2


def test_a_table_becomes_json_lines(folder, tmp_path):
    write_rows(tmp_path / "in.csv", ROWS[:2])
    options = ["--column", "address", "--out", tmp_path / "out.jsonl"]
    assert run("records", "parse", folder / "model", tmp_path / "in.csv", *options).returncode == 0
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["id"], first["street"], second) == ("a", "Oak St", {"id": "b", "address": "", "problem": "empty"})


def test_accepted_records_and_those_to_review(folder, tmp_path):
    write_rows(tmp_path / "in.csv", ROWS[:2] + ROWS[4:])
    options = ["--column", "address", "--out", tmp_path / "out.csv", "--accept", 0.3]
    assert run("records", "parse", folder / "model", tmp_path / "in.csv", *options).returncode == 0
    good, other = (table((tmp_path / name).read_text()) for name in ("out.csv", "out.review.csv"))
    assert [row["row"] for row in good] + [row["row"] for row in other] == ["1", "4", "2", "3"]
    assert all(float(row["probability"]) >= 0.3 for row in good)
    done = run("records", "parse", folder / "model", tmp_path / "in.csv", "--column", "address", "--accept", 0.3)
    assert done.returncode == 2


def test_the_output_never_replaces_the_input(folder, tmp_path):
    write_rows(tmp_path / "in.csv", ROWS[:1])
    before = (tmp_path / "in.csv").read_text()
    done = run(
        "records", "parse", folder / "model", tmp_path / "in.csv", "--column", "address", "--out", tmp_path / "in.csv"
    )
    assert (done.returncode, (tmp_path / "in.csv").read_text()) == (1, before)


def test_train_and_evaluate(tmp_path):
    rows = [{"text": e.text, "label": [[s.start, s.stop, s.type] for s in e.spans]} for e in EXAMPLES]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rules").write_text("AtMostOnce(city)\n")
    options = ["--dev", tmp_path / "train.jsonl", "--rules", tmp_path / "rules", "--out", tmp_path / "model", "--json"]
    done = run("records", "train", tmp_path / "train.jsonl", *options)
    assert json.loads(done.stdout)["rules"] == 'AtMostOnce("city")'
    done = run("records", "evaluate", tmp_path / "model", tmp_path / "train.jsonl", "--json", "--target-precision", 0.9)
    found = json.loads(done.stdout)
    assert found["accuracy"] == 1
    assert 0 <= found["accept"] <= 1
    done = run("records", "evaluate", tmp_path / "model", tmp_path / "train.jsonl")
    assert "16 records" in done.stdout
    assert run("tag", tmp_path / "model", input="5 Oak St\n").returncode == 0  # it is a CRF


def test_the_commands_of_the_page(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```bash\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    records = [
        "".join(f"<{s.type}>{e.text[s.start : s.stop].replace(' ', '_')}</{s.type}> " for s in e.spans)
        for e in EXAMPLES
    ]  # fmt: skip
    for name in ("train", "dev", "test"):
        text = "".join(f"<Address>{record}</Address>" for record in records)
        (tmp_path / f"{name}.xml").write_text(f"<All>{text}</All>")
    write_rows(tmp_path / "table.csv", ROWS[:2])
    for line in block.splitlines():
        done = run(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert len(table((tmp_path / "parsed.csv").read_text()) + table((tmp_path / "parsed.review.csv").read_text())) == 2


@pytest.mark.programs
def test_ctrl_c_leaves_complete_rows_and_says_where_to_go_on(folder, tmp_path):
    out = tmp_path / "out.csv"
    words = ["records", "parse", folder / "model", "-", "--column", "address", "--out", out]
    lines = '"1 Oak St,\nTroy"\n' * (2 * BATCH)
    with subprocess.Popen([*COMMAND, *map(str, words)], stdin=-1, stderr=-1, text=True) as process:
        process.stdin.write("address\n" + lines)
        process.stdin.flush()  # and no more, so that the command waits
        for _ in range(600):
            if out.exists() and out.stat().st_size > 100_000:
                break
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    rows = table(out.read_text())
    assert len(rows) in (BATCH, 2 * BATCH)
    assert f"--skip {len(rows)}" in said
    assert all(row["address"] == "1 Oak St,\nTroy" for row in rows)


WITH_PEAK = """
import runpy
try:
    runpy.run_module("trelliswork", run_name="__main__")
finally:
    print(*(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow  # 2 x 1,000,000 strings
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak memory that Linux tells")
def test_a_million_strings_in_bounded_memory(data_dir, tmp_path):
    """The peak is at most 1.2 times what a tenth of the strings needs; ``-s`` shows the rate.

    The command tells its own peak: what ``wait4`` returns includes the memory of this process.
    """
    examples = [e for e in read_records(data_dir / "records" / "usaddress" / "train.xml") if e.text]
    RecordParser().fit(examples).save(tmp_path / "model")
    rng, peaks = random.Random(0), []
    for n in (100_000, 1_000_000):
        texts = rng.choices([e.text for e in examples], k=n)
        write_rows(tmp_path / "in.csv", enumerate(texts))
        began = time.perf_counter()
        words = ["records", "parse", tmp_path / "model", tmp_path / "in.csv", "--column", "address"]
        command = [sys.executable, "-c", WITH_PEAK, *map(str, words), "--out", tmp_path / "out.csv"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-2]))  # VmHWM: 200000 kB
        print(f"{n:,} strings: {n / (time.perf_counter() - began):,.0f} per second, {peaks[-1] / 1024:.0f} MB")
        with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
            for (k, text), row in zip(enumerate(texts), csv.DictReader(file), strict=True):
                assert (row["id"], row["address"], row["problem"]) == (str(k), text, "")
    assert peaks[1] < 1.2 * peaks[0]
