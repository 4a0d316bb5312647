"""Pages, their markup, and the sentences that they show."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.checks import check_page
from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.errors import DataError
from trelliswork.report import Html, Page, Sample, bars
from trelliswork.report.page import POLICY, element, join, number, percent, shortened, svg, text, text_width
from trelliswork.report.samples import example


def test_sections_without_blocks_are_left_out(tmp_path):
    page = Page("Title")
    page.section("Empty", "", bars([]))
    page.section("Full", "text", note="about")
    page.write(tmp_path / "page.html")
    written = (tmp_path / "page.html").read_text()
    assert "Empty" not in written
    assert "<p>text</p>" in written
    assert written.startswith("<!doctype html>")
    assert "default-src 'none'" in POLICY
    assert "Content-Security-Policy" in written
    assert ("html", {"lang": "en"}) in check_page(written).tags
    with pytest.raises(DataError, match="cannot be written"):
        page.write(tmp_path / "none" / "page.html")


def test_sections_are_linked():
    page = Page("Title")
    page.extend([(f"S{k}", "", ["x"]) for k in range(4)])
    rendered = page.render()
    assert all(f'href="#s{k}"' in rendered and f'id="s{k}"' in rendered for k in range(1, 5))


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


def test_the_example_has_a_readable_length_and_is_uncertain():
    sure, unsure = [0.9] * 8, [0.6] * 8
    assert example([[0.1] * 3, sure, unsure, [0.1] * 90]) == 2
    assert example([[0.1], [0.1] * 30, [0.1] * 4]) == 2  # none has a readable length: the nearest


@given(st.text(), st.text())
def test_text_survives_a_round_trip_through_xml(inner, attribute):
    made = svg(10, 10, element("text", inner, class_=attribute), label=inner)
    node = ElementTree.fromstring(made)[0]

    def valid(given: str) -> str:  # characters that XML does not allow are replaced
        kept = [
            "�" if (ord(c) < 32 and c not in "\t\n\r") or 127 <= ord(c) < 160 or c in "\ufffe\uffff" else c
            for c in given
        ]
        return "".join(kept)

    assert (node.text or "").replace("\r", "\n") == valid(inner).replace("\r\n", "\n").replace("\r", "\n")
    assert len(node.attrib["class"]) <= len(attribute)


def test_everything_but_html_is_escaped():
    assert text("<b>") == "&lt;b&gt;"
    assert text(Html("<b>")) == "<b>"
    assert element("p", "<script>", Html("<b></b>")) == "<p>&lt;script&gt;<b></b></p>"
    assert "<script>" not in element("p", class_='"><script>')
    assert isinstance(join(["<", Html("<i></i>")]), Html)
    assert join(["<", Html("<i></i>")]) == "&lt;<i></i>"
    assert not isinstance(Html("<b>") + "x", Html)  # a sum is plain text


def test_attributes():
    assert element("path", d=None, stroke_width=1.0, x=2.345) == '<path stroke-width="1" x="2.35"></path>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (12.5, "12.5000"),
        (1e6, "1,000,000.0"),
        (float("-inf"), "−∞"),
        (float("nan"), "–"),
        (True, "yes"),
        (-0.25, "-0.2500"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


def test_formats_and_widths():
    assert percent(0.5, 0) == "50 %"
    assert shortened("a" * 30, 10) == "aaaa…aaaaa"
    assert len(shortened("abcdefghij", 10)) == 10
    assert text_width("漢字") > text_width("ab") > 0
    assert text_width("e\u0301") == text_width("e")
