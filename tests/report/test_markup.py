"""Text is escaped whatever it holds."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trelliswork.report.markup import Html, element, join, number, percent, shortened, svg, text, text_width


@given(st.text(), st.text())
def test_text_comes_back_from_xml_as_it_was(inner, attribute):
    made = svg(10, 10, element("text", inner, class_=attribute), label=inner)
    node = ElementTree.fromstring(made)[0]

    def fit(given: str) -> str:  # what XML cannot hold is replaced
        kept = [
            "�" if (ord(c) < 32 and c not in "\t\n\r") or 127 <= ord(c) < 160 or c in "\ufffe\uffff" else c
            for c in given
        ]
        return "".join(kept)

    assert (node.text or "").replace("\r", "\n") == fit(inner).replace("\r\n", "\n").replace("\r", "\n")
    assert len(node.attrib["class"]) <= len(attribute)


def test_only_html_is_left_as_it_is():
    assert text("<b>") == "&lt;b&gt;"
    assert text(Html("<b>")) == "<b>"
    assert element("p", "<script>", Html("<b></b>")) == "<p>&lt;script&gt;<b></b></p>"
    assert "<script>" not in element("p", class_='"><script>')
    assert isinstance(join(["<", Html("<i></i>")]), Html)
    assert join(["<", Html("<i></i>")]) == "&lt;<i></i>"
    assert not isinstance(Html("<b>") + "x", Html)  # a sum is text again


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


def test_small_things():
    assert percent(0.5, 0) == "50 %"
    assert shortened("a" * 30, 10) == "aaaa…aaaaa"
    assert len(shortened("abcdefghij", 10)) == 10
    assert text_width("漢字") > text_width("ab") > 0
    assert text_width("e\u0301") == text_width("e")
