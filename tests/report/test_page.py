"""The page itself, and the sentences it is about."""

import numpy as np
import pytest

from tests.report.checks import check_page
from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.errors import DataError
from trelliswork.report import Page, Sample, bars
from trelliswork.report.page import POLICY
from trelliswork.report.samples import example


def test_sections_without_blocks_are_left_out(tmp_path):
    page = Page("Title")
    page.section("Empty", "", bars([]))
    page.section("Full", "text", note="about")
    page.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "Empty" not in text
    assert "<p>text</p>" in text
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in POLICY
    assert "Content-Security-Policy" in text
    found = check_page(text)
    assert ("html", {"lang": "en"}) in found.tags
    with pytest.raises(DataError, match="cannot be written"):
        page.write(tmp_path / "none" / "page.html")


def test_sections_can_be_reached():
    page = Page("Title")
    page.extend([(f"S{k}", "", ["x"]) for k in range(4)])
    text = page.render()
    assert all(f'href="#s{k}"' in text and f'id="s{k}"' in text for k in range(1, 5))


def test_samples_of_columns():
    corpus = Corpus.from_sentences([[("a", "A"), ("b", "B")], [], [("c", "C")]])
    sample = Sample("test", corpus, [["x", "y"], [], ["z"]]).full()
    assert (len(sample), sample.words(), sample.lengths()) == (2, [["a", "b"], ["c"]], [2, 1])
    last = sample.take([1])
    assert (last.X.columns, last.gold) == ([["c"], ["C"]], [["z"]])
    assert last.first(5) is last


def test_samples_of_attributes():
    corpus = AttributeCorpus(
        ["x", "y", "x"], np.array([0, 1, 3]), np.array([0, 2, 2, 3]), np.array([0, 1, 1], np.int32),
        np.array([1.0, 2.0, 3.0]), ["u", "v"],
    )  # fmt: skip
    sample = Sample("test", corpus, {"": [["x"], ["y", "x"]]})
    assert sample.words() == [["u"], ["·", "v"]]
    last = sample.take([1])
    assert last.X.labels == ["y", "x"]
    assert last.X.token_ptr.tolist() == [0, 0, 1]
    assert (last.X.attributes.tolist(), last.X.values.tolist()) == ([1], [3.0])
    assert last.gold == {"": [["y", "x"]]}


def test_samples_of_lists():
    sample = Sample("test", [["a", ("b", "B")], [{"w": 1.0}]])
    assert sample.words() == [["a", "b"], ["w"]]


def test_the_example_is_readable_and_uncertain():
    sure, unsure = [0.9] * 8, [0.6] * 8
    assert example([[0.1] * 3, sure, unsure, [0.1] * 90]) == 2
    assert example([[0.1], [0.1] * 30, [0.1] * 4]) == 2  # none is readable: the nearest
