"""Simulated active learning on a small treebank."""

import pytest

from experiments.chain_tagging import active_learning, at_target
from experiments.tables import Curve
from trelliswork import bundled
from trelliswork.data.writers import write_conllu


def test_numbers_at_the_target_are_interpolated():
    curve = Curve("random", [100.0, 200.0, 400.0], [80.0, 90.0, 95.0])
    sentences, tokens = at_target(curve, [1000, 2000, 4000], 92.5)
    assert sentences == pytest.approx(200 * 2**0.5)
    assert tokens == pytest.approx(2000 * 2**0.5)
    assert at_target(curve, [1000, 2000, 4000], 70.0) == (100.0, 1000.0)
    assert at_target(curve, [1000, 2000, 4000], 99.0) is None


def test_all_ways_to_choose_start_from_the_same_sentences(tmp_path):
    for part, size in (("train", 60), ("test", 30)):
        with (tmp_path / f"en_ewt-ud-{part}.conllu").open("w") as out:
            write_conllu(bundled.load(part)[:size], out)
    options = {"first": 10, "growth": 2.0, "max_iter": 5, "target": 100.0}
    table = active_learning(tmp_path, by=("random", "diverse entropy", "expected-gain"), **options)
    assert [row[:2] for row in table.rows[-3:]] == [
        [100.0, name] for name in ("random", "diverse entropy", "expected-gain")
    ]
    assert len({curve.y[0] for curve in table.curves}) == 1
    assert all(curve.x == [10, 20, 40, 60] for curve in table.curves)
    assert len({round(curve.y[-1], 6) for curve in table.curves}) <= 3
    assert table.rows[-1][2] is None  # never 100 %
    again = active_learning(tmp_path, by=("diverse entropy",), **options)
    assert again.curves[0].y == table.curves[1].y


def test_numbers_are_means_over_seeds(tmp_path):
    for part, size in (("train", 40), ("test", 20)):
        with (tmp_path / f"en_ewt-ud-{part}.conllu").open("w") as out:
            write_conllu(bundled.load(part)[:size], out)
    options = {"by": ("random",), "first": 10, "growth": 2.0, "max_iter": 5, "target": 60.0}
    rows = [active_learning(tmp_path, seed=k, **options).rows[-1][2:4] for k in (3, 4)]
    both = active_learning(tmp_path, seed=3, n_seeds=2, **options).rows[-1][2:4]
    assert None not in rows[0] + rows[1]
    assert both == pytest.approx([(a + b) / 2 for a, b in zip(*rows, strict=True)], abs=1)
