"""The folder of results: pages, figures, and results of earlier runs."""

import json
import math

import pytest

from experiments.record import FINISHED, Record, json_lines, number, update_records
from experiments.registry import find
from experiments.tables import Figure, Table
from trelliswork.errors import DataError

KEYS = ["reproduce", "row", "paper", "ours", "unit", "seconds", "note"]


def table(ours=92.0, note="another | split"):
    figures = [Figure("letters", 91.5, ours, "%", 2.25, note), Figure("more", None, None, "%", None, "why not")]
    return Table("Letters", ["a"], notes=["A note."], figures=figures)


@pytest.fixture
def record(tmp_path):
    record = Record(tmp_path / "deep" / "out")
    record.add(find("nettalk"), table(), {"seed": 3, "orders": (1, 2), "n_words": None}, False, 61.0)
    return record


def test_a_page_has_machine_settings_and_the_difference(record):
    page = (record.folder / "paper-2.md").read_text()
    assert page.startswith("# Paper 2: Sparse forward-backward")
    for part in (" cores, ", "Python 3.", "numpy ", "| nettalk | seed=3, orders=1 2 | ", "| 61.0 | finished |"):
        assert part in page
    assert "| nettalk | letters | 91.50 | 92.00 | +0.5000 | % | 2.2 | another \\| split |" in page
    assert "| nettalk | more |  |  |  | % |  | why not |" in page
    assert "**nettalk**: Letters. A note." in page
    rows = [json.loads(line) for line in (record.folder / "figures.jsonl").read_text().splitlines()]
    assert [list(row) for row in rows] == [KEYS, KEYS]
    assert rows[0] == dict(zip(KEYS, ["nettalk", "letters", 91.5, 92.0, "%", 2.25, "another | split"], strict=True))
    assert sorted(path.name for path in record.folder.iterdir()) == ["figures.jsonl", "paper-2.md", "runs.json"]


def test_results_of_other_experiments_are_kept(record):
    again = Record(record.folder)
    assert again.runs == record.runs
    again.add(find("beams-decoding"), table(10.0), {}, False, 1.0)
    again.add(find("mrf-exact"), table(11.0), {}, False, 1.0)
    names = [json.loads(line)["reproduce"] for line in (record.folder / "figures.jsonl").read_text().splitlines()]
    assert names == ["mrf-exact"] * 2 + ["beams-decoding"] * 2 + ["nettalk"] * 2  # the order of the papers
    page = (record.folder / "paper-2.md").read_text()
    assert page.index("| beams-decoding |") < page.index("| nettalk |")
    assert "mrf-exact" not in page


def test_a_failure_does_not_replace_figures(record):
    record.add(find("nettalk"), "failed: no luck", {}, False, 1.0)
    assert record.runs["nettalk"].outcome == FINISHED
    record.add(find("beams-decoding"), "failed: no luck", {}, False, 1.0)
    page = (record.folder / "paper-2.md").read_text()
    assert "| failed: no luck |" in page
    assert "92.00" in page
    record.add(find("beams-decoding"), table(7.0), {}, False, 1.0)
    assert "no luck" not in (record.folder / "paper-2.md").read_text()


def test_quick_figures_do_not_replace_full_ones(record):
    with pytest.raises(DataError, match="holds the full figures of nettalk"):
        record.check("nettalk", quick=True)
    record.check("nettalk", quick=False)
    record.check("factorial", quick=True)


def test_unusable_folders_are_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot create the folder"):
        Record(tmp_path / "file")
    for text in ("[1]", "{", '{"nettalk": {"quick": true}}', '{"nettalk": {"figures": [{"row": 1}]}}'):
        (tmp_path / "runs.json").write_text(text)
        with pytest.raises(DataError, match=r"runs\.json: not the results of earlier experiments"):
            Record(tmp_path)
        assert (tmp_path / "runs.json").read_text() == text


def test_interrupted_write_leaves_the_old_page(record, monkeypatch):
    before = (record.folder / "paper-2.md").read_text()
    monkeypatch.setattr("experiments.record.page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        record.add(find("beams-decoding"), table(), {}, False, 1.0)
    assert (record.folder / "paper-2.md").read_text() == before
    assert len(list(record.folder.iterdir())) == 3


def test_not_finite_is_null():
    line = json_lines("nettalk", [Figure("row", None, float("nan"), "%", float("inf"))])[0]
    assert json.loads(line)["ours"] is json.loads(line)["seconds"] is None


def test_numbers_and_their_signs():
    assert number(-2.5, signed=True) == "-2.5000"
    assert number(2000.0, signed=True) == "+2,000.0"
    assert number(None) == ""


def test_records_keep_other_experiments(tmp_path):
    path = tmp_path / "records.jsonl"
    for name, ours in (("mrf-exact", 1.0), ("bp-cost", 2.0), ("mrf-exact", 3.0)):
        table = Table("T", [], figures=[Figure("row", None, ours, "%"), Figure("other", "text", math.inf, "s")])
        update_records(path, find(name), table, {"seed": 0}, 1.25)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["experiment"] for line in lines] == ["bp-cost"] * 3 + ["mrf-exact"] * 3
    assert [line.get("ours") for line in lines] == [None, 2.0, None, None, 3.0, None]
    run = lines[3]
    assert run["command"] == "python -m experiments mrf-exact"
    assert run["settings"] == {"seed": "0"}
    assert run["machine"]
    assert run["date"]


def test_a_file_that_is_no_record_is_kept(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine\n", encoding="utf-8")
    with pytest.raises(DataError, match="not a file of records"):
        update_records(path, find("mrf-exact"), Table("T", []), {}, 1.0)
    assert path.read_text(encoding="utf-8") == "mine\n"
