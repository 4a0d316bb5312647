"""The simulated annotator of the labeling page."""

import pytest

from experiments.labeling import annotate, clicks_at, labeling
from experiments.tables import Curve
from tests.label.conftest import GOLD
from trelliswork import CRF
from trelliswork.label.pool import Pool
from trelliswork.label.session import Session


@pytest.fixture
def session(tmp_path):
    words = [w for w, _ in GOLD]
    made = Session(Pool("spans", words, [None] * len(words), "", lambda n: {}), tmp_path / "out.jsonl")
    yield made
    made.journal.close()


@pytest.mark.parametrize("evidence", [False, True])
def test_clicks_are_those_of_spans_to_correct_and_one_to_accept(session, evidence):
    assert annotate(session, 0, GOLD[0][1], evidence) == 3  # nothing is known: two spans to mark
    session.model = CRF("ner").fit([w for w, _ in GOLD], [y for _, y in GOLD])
    assert annotate(session, 0, GOLD[0][1], evidence) == 1
    nothing = ["O"] * len(GOLD[0][1])
    assert annotate(session, 0, nothing, evidence) <= 3  # two spans to clear
    gold = GOLD[1][1]
    longer = ["B-PER", "I-PER", "I-PER", *gold[3:]]
    assert annotate(session, 1, longer, evidence) >= 2


def test_clicks_at_a_target_are_interpolated():
    curve = Curve("x", [100.0, 200.0], [40.0, 60.0])
    assert clicks_at(curve, 50.0) == pytest.approx(150)
    assert clicks_at(curve, 20.0) == pytest.approx(50)
    assert clicks_at(curve, 61.0) is None


def test_all_rows_are_measured(tmp_path):
    for part in ("train", "testa"):
        text = "\n".join("".join(f"{w} X {y}\n" for w, y in zip(*row, strict=True)) for row in GOLD)
        (tmp_path / f"esp.{part}").write_text(text, encoding="utf-8")
    table = labeling(tmp_path, targets=(60.0,), n_seeds=1, max_sentences=30)
    assert [row[1] for row in table.rows] == [
        "correct everything in random order", "evidence", "selection", "phrases", "evidence, selection, phrases",
    ]  # fmt: skip
    assert all(row[2] > 1 for row in table.rows)
    assert table.rows[0][3] == 0
