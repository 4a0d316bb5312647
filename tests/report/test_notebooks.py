"""Displays in notebooks: HTML without scripts or requests, with the pictures of the report."""

import re
from html import escape
from html.parser import HTMLParser

import pytest

from tests.models.fitted import BUILDERS, PAIRS, SHORT, WORDS, fitted
from trelliswork import CRF
from trelliswork.learning.report import FitReport
from trelliswork.report import bars
from trelliswork.rules import AtMostOnce, Before, Length, Pattern


class Strict(HTMLParser):
    """Raise an error for elements that are not closed, scripts, and addresses."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.add(tag)
        assert tag not in ("script", "iframe", "link", "img")
        assert not any(key.startswith("on") or key in ("src", "href") for key, _ in attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(shown):
    html = shown._repr_html_()
    parser = Strict()
    parser.feed(html)
    assert not parser.open
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    assert style.count("{") == style.count("}")
    assert "url(" not in style
    assert "@import" not in style
    for line in style.split("\n"):  # all rules are nested in the class of displays, or name it
        if line[:1] not in (" ", "}", ""):
            depth = style[: style.index(line)].count("{") - style[: style.index(line)].count("}")
            assert depth > 0 or ".trelliswork-display" in line, line
    assert all(rule in style for rule in ("prefers-color-scheme: dark", ".trellis {", ".arc {", "table.facts th"))
    assert "header" not in style
    assert 'data-jp-theme-light="false"' in style
    return html


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_estimators_and_their_reports(name):
    model = fitted(name)
    html = checked(model)
    for parameter in model.get_params():
        assert f">{parameter}<" in html
    report = checked(model.report_)
    assert model.report_.reason.split(" ")[0] in report
    if model.report_.history:
        assert "<svg" in report


def test_an_estimator_that_is_not_fitted():
    assert "Not fitted." in checked(CRF(features="<b>"))
    assert "&lt;b&gt;" in checked(CRF(features="<b>"))


def test_reports_of_their_own():
    assert "no" in checked(FitReport(False, "100 iterations", 1.5))


def test_posteriors_of_taggers_are_trellises():
    torch = pytest.importorskip("torch")
    from trelliswork import LinearChain

    html = checked(fitted("CRF").posterior(WORDS[0]))
    assert all(f">{word}<" in html for word in WORDS[0])
    assert f">{fitted('CRF').predict(WORDS[:1])[0][0]}<" in html
    assert "log Z" in html
    batch = LinearChain(torch.zeros(5, 3, 2), torch.zeros(2, 2), lengths=[3, 2, 1, 3, 3])
    html = checked(batch)
    assert html.count('class="trellis"') == 3
    assert "2 more of this batch" in html


def test_trees():
    torch = pytest.importorskip("torch")
    from trelliswork import ProjectiveTree, SpanTree

    html = checked(fitted("DependencyParser").posterior(PAIRS[0]))
    assert all(f">{word}<" in html for word, _ in PAIRS[0])
    assert "%" in html
    assert html.count('class="arc"') >= len(PAIRS[0]) - 1
    labeled = ProjectiveTree(torch.randn(1, 4, 4, 2))
    assert "<svg" in checked(labeled)
    html = checked(fitted("PCFG").posterior(SHORT[0]))
    assert all(f">{escape(word)}<" in html for word in SHORT[0])
    assert "branch" in html
    assert "branch" in checked(SpanTree(torch.randn(1, 4, 4)))


def test_segmentations_and_alignments_are_named_not_drawn():
    torch = pytest.importorskip("torch")
    from trelliswork.distributions import Alignment, SemiMarkovChain

    for shown in (SemiMarkovChain(torch.zeros(2, 4, 2, 2), torch.zeros(2, 2)), Alignment(torch.zeros(2, 3, 3, 3))):
        html = checked(shown)
        assert repr(shown) in html
        assert "log Z" in html


def test_factor_graphs():
    pytest.importorskip("torch")
    import numpy as np

    from trelliswork import FactorGraph

    agree = np.log([[3.0, 1.0], [1.0, 3.0]])
    html = checked(FactorGraph([2, 2, 2], [((0, 1), agree), ((1, 2), agree)], log_unary=[0, 1, 0, 0, 0, 0]))
    assert "x0 = 1" in html
    checked(fitted("FactorialCRF").posterior(WORDS[0]))


def test_pieces_of_a_report_have_their_style():
    piece = bars([("word", 0.5)])
    assert str(piece) in checked(piece)


def test_rules_as_automata():
    html = checked(Pattern("Number Street+ (Unit Id)? City"))
    assert "Street+" in html
    assert html.count("<circle") == 7  # of six states, one of which accepts
    assert all(f">{name}<" in html for name in ("Number", "Street", "↻ Street", "Unit"))
    assert "all but City" in checked(Before("Street", "City"))
    assert "too large" in checked(AtMostOnce(*map(str, range(20))))
    assert "<svg" not in checked(Length("PER", 30))
    assert escape("<b>") in checked(AtMostOnce("<b>"))
