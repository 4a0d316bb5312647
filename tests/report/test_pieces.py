"""Trellises, trees and tables."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.checks import check_page, check_picture, pictures
from trelliswork.data import Tree
from trelliswork.errors import ShapeError
from trelliswork.report import (
    Page,
    bars,
    code,
    confusion,
    constituent_tree,
    dependency_tree,
    facts,
    folded,
    side_by_side,
    table,
    trellis,
    word_lists,
)
from trelliswork.report.structures import _levels

EVIL = "<script>alert('x')</script>&\"\x00"


def texts(picture) -> list[str]:
    return [node.text for node in picture.iter() if node.tag.endswith("text") and node.text]


def classes(picture) -> Counter:
    return Counter(node.attrib.get("class", "") for node in picture.iter())


def test_trellis_shows_path_gold_and_probabilities():
    marginals = np.array([[0.9, 0.1, 0.0], [0.3, 0.65, 0.05]])
    shown = trellis(["a", "b"], ["X", "Y", "Z"], marginals, ["X", "Y"], ["X", "Z"])
    side, grid = pictures(shown)
    check_picture(grid)
    assert texts(side) == ["X", "Y", "Z"]
    assert "90 %" in texts(grid)
    assert "65 %" in texts(grid)
    counts = classes(grid)
    assert (counts["heat"], counts["stop"], counts["gold"]) == (5, 2, 1)  # p = 0 has no shade
    shades = [float(n.attrib["fill-opacity"]) for n in grid.iter() if n.attrib.get("class") == "heat"]
    assert max(shades) == shades[0] == pytest.approx(0.85 * 0.9**0.5, abs=0.006)


def test_trellis_leaves_out_improbable_states_and_accepts_dicts():
    states = [f"s{k}" for k in range(50)]
    rows = [{"s3": 0.7, "s7": 0.3}, {"s3": 0.004, "s9": 0.996}]
    shown = trellis(["a", "b"], states, rows, ["s3", "s9"], ["s3", "s40"])
    assert texts(pictures(shown)[0]) == ["s3", "s7", "s9", "s40"]
    assert "46 less probable states are not shown" in shown
    assert len(texts(pictures(trellis(["a"], states, [[0.02] * 50]))[0])) == 20
    trellis(["a"], ["X"], [[1.0]], ["X"], ["never seen"])  # a gold label that the model lacks
    with pytest.raises(ShapeError, match=r"shape \(T, S\) = \(1, 1\)"):
        trellis(["a"], ["X"], [[0.5, 0.5]])


@st.composite
def heads_of(draw):
    n = draw(st.integers(1, 12))
    return [draw(st.integers(0, n).filter(lambda h, t=t: h != t + 1)) for t in range(n)]


@given(heads_of())
def test_arcs_of_the_same_height_do_not_meet(heads):
    arcs = [(h, t + 1) for t, h in enumerate(heads) if h]
    levels = _levels(arcs)
    for a in levels:
        for b in levels:
            if a < b and max(min(a), min(b)) < min(max(a), max(b)):
                assert levels[a] != levels[b]


@given(heads_of(), st.randoms())
def test_dependency_trees_are_complete(heads, random):
    n = len(heads)
    words, labels = [EVIL[: random.randint(1, 20)] for _ in heads], ["label"] * n
    picture = pictures(dependency_tree(words, heads, labels, [random.random() for _ in heads], tags=["T"] * n))[0]
    check_picture(picture)
    counts = classes(picture)
    assert counts["arc"] == counts["arrow"] == n
    # Words are in order and do not overlap.
    xs = [float(node.attrib["x"]) for node in picture.iter() if node.attrib.get("class") == "wordtext"]
    assert all(b - a > 10 for a, b in pairwise(xs))


def test_wrong_arcs_are_marked():
    shown = pictures(dependency_tree(["a", "b", "c"], [2, 0, 1], gold=[2, 0, 2]))[0]
    counts = classes(shown)
    assert (counts["arc"], counts["arc wrong"], counts["missed"]) == (2, 1, 1)
    for wrong in ({"heads": [0, 4]}, {"heads": [0]}, {"heads": [0, 1], "labels": ["x"]}):
        with pytest.raises(ShapeError):
            dependency_tree(["a", "b"], **wrong)


def test_constituents():
    tree = Tree.parse("(S (NP (DT the) (NN cat)) (VP (VBZ sleeps) (RB well)))")
    picture = pictures(constituent_tree(tree, {(0, 2): 0.875, (2, 4): 0.25, (0, 4): 1.0}))[0]
    check_picture(picture)
    assert "NP 88 %" in texts(picture)
    assert texts(picture)[-4:] == ["the", "cat", "sleeps", "well"]
    faint = sorted({float(n.attrib["stroke-opacity"]) for n in picture.iter() if n.attrib.get("class") == "branch"})
    assert faint == pytest.approx([0.25 + 0.75 * p for p in (0.25, 0.875, 1.0)], abs=0.006)
    check_picture(pictures(constituent_tree(Tree("N", ("word",))))[0])


def test_tables_align_numbers_and_escape():
    markup = table(["name", "n", "share"], [[EVIL, 1234, "97.1 %"], ["b", None, "–"]], title=EVIL)
    assert markup.count('class="number"') == 6
    assert "1,234" in markup
    assert "<script>" not in markup
    with pytest.raises(ShapeError, match="each of the 2 headers"):
        table(["a", "b"], [[1]])
    assert table(["a"], []) == facts([]) == bars([]) == word_lists({}) == ""


def test_lengths_of_bars_follow_their_values():
    markup = bars([("a", 2.0), ("b", -1.0), (EVIL, 0.0)])
    assert "width:100.0%" in markup
    assert 'class="below" style="width:50.0%"' in markup
    assert "<script>" not in markup


def test_confusion_counts_errors():
    gold, predicted = list("AABBBC"), list("ABBAAC")
    markup = confusion(gold, predicted)
    assert "3 of 3 errors" in markup
    assert ">C<" not in markup  # no errors
    assert confusion("AB", "AB") == ""
    many = confusion([f"g{k}" for k in range(30)], ["x"] * 30)
    assert "11 of 30 errors" in many


def test_hostile_text_everywhere_on_a_page():
    page = Page(EVIL, lead=EVIL, facts=[(EVIL, EVIL)], footer=EVIL)
    page.section(
        EVIL,
        EVIL,
        trellis([EVIL], [EVIL], [[1.0]], [EVIL], [EVIL], title=EVIL),
        dependency_tree([EVIL], [0], [EVIL], [1.0], tags=[EVIL]),
        constituent_tree(Tree(EVIL, (EVIL,)), title=EVIL),
        side_by_side(facts([(EVIL, EVIL), ("d", {EVIL: [EVIL]})]), word_lists({EVIL: [(EVIL, 1.0)]})),
        folded(EVIL, EVIL, code(EVIL)),
        confusion([EVIL], ["x"]),
        note=EVIL,
    )
    parsed = check_page(page.render())
    assert "".join(parsed.words).count("<script>alert('x')</script>") >= 15  # shown as text
