"""Construction of graphs: checks, unary factors, layout and size."""

import time

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.oracle.graphs import enumerate_graphs, random_graph
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph import Tables, wire
from trelliswork.inference.graph.engines import bp
from trelliswork.inference.graph.layout import lay_out

PAIR = np.zeros((1, 1, 2, 2))


def one(variables, tables=PAIR, which=None):
    variables = np.array(variables)
    return Tables(variables, np.zeros(len(variables), np.int64) if which is None else np.array(which), tables)


def test_unary_tables_are_summed_into_the_unary_scores():
    unary = one([[0], [1], [0]], np.array([[[1.0, 2.0], [10.0, -np.inf]]]), [0, 0, 1])
    wiring = wire([2, 2], [unary], log_unary=[0.5, 0.5, 0.0, 0.0])
    assert wiring.groups == ()
    assert_allclose(wiring.log_unary, [[11.5, -np.inf, 1, 2]])


def test_arguments_are_not_modified():
    given = np.zeros(4)
    wire([2, 2], [one([[0]], np.ones((1, 1, 2)))], log_unary=given)
    assert_allclose(given, 0)


def test_scores_match_the_definition():
    rng = np.random.default_rng(0)
    wiring = random_graph(rng, n_graphs=3, max_arity=4)
    for b, graph in enumerate(enumerate_graphs(wiring)):
        for states, score in zip(graph.assignments[::7], graph.scores[::7], strict=True):
            assert_allclose(wiring.score(np.tile(states, (3, 1)))[b], score)


@pytest.mark.parametrize(
    ("tables", "error", "words"),
    [
        ([one([[0, 2]])], ValueRangeError, r"factor 0 has variables \[0, 2\], but there are 2"),
        ([one([[0, 1], [1, 1]])], ValueRangeError, "factor 1 has a variable twice"),
        ([one([[0, 1]], np.zeros((1, 1, 2, 3)))], ShapeError, r"has a table of shape \(2, 3\), but they have \[2, 2\]"),
        ([one([[0, 1]], np.full((1, 1, 2, 2), np.nan))], ValueRangeError, "got nan"),
        ([one([[0, 1]], np.full((1, 1, 2, 2), np.inf))], ValueRangeError, "got inf"),
        ([one([[0, 1]], which=[3])], ValueRangeError, "which must be between 0 and U-1=0"),
        ([one([[0, 1]], np.zeros((1, 2, 2)))], ShapeError, "log_tables must have 4 axes"),
        ([one([[0, 1, 0, 1, 0]])], ShapeError, "k from 1 to 4"),
        (
            [one([[0, 1]], np.zeros((2, 1, 2, 2))), one([[0, 1]], np.zeros((3, 1, 2, 2)))],
            ShapeError,
            "different numbers of graphs",
        ),
    ],
)
def test_invalid_factors_raise_errors(tables, error, words):
    with pytest.raises(error, match=words):
        wire([2, 2], tables)


def test_numbers_of_states_must_be_positive():
    with pytest.raises(ValueRangeError, match="n_states"):
        wire([2, 0])


def test_forests_and_cycles_are_distinguished():
    assert lay_out(wire([2, 2, 2, 2], [one([[0, 1], [1, 2]])])).is_forest
    assert not lay_out(wire([2, 2, 2], [one([[0, 1], [1, 2], [2, 0]])])).is_forest
    assert not lay_out(wire([2, 2], [one([[0, 1], [1, 0]])])).is_forest


def test_a_hundred_thousand_binary_factors_take_seconds():
    start = time.process_time()
    side = 225
    index = np.arange(side * side).reshape(side, side)
    pairs = np.concatenate(
        [np.stack([a.ravel(), b.ravel()], axis=1) for a, b in ((index[:, :-1], index[:, 1:]), (index[:-1], index[1:]))]
    )
    assert len(pairs) > 100_000
    rng = np.random.default_rng(0)
    tables = Tables(pairs, np.arange(len(pairs)), rng.normal(0, 0.2, (1, len(pairs), 2, 2)))
    wiring = wire(np.full(side * side, 2), [tables])
    result = bp.run(wiring, tolerance=1e-6)
    assert result.converged.all()
    assert time.process_time() - start < 20


def test_graphs_without_factors_or_without_variables():
    alone = bp.run(wire([3, 2], log_unary=np.log([1.0, 2, 1, 3, 1])))
    assert_allclose(alone.log_z, np.log(16))
    assert_allclose(alone.marginals, [[0.25, 0.5, 0.25, 0.75, 0.25]])
    assert_allclose(bp.run(wire(np.zeros(0, np.int64))).log_z, 0)
