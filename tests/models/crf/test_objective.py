"""The CRF objective against enumeration of all labelings with dense feature vectors."""

from dataclasses import dataclass, replace
from itertools import pairwise, product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from trelliswork.compute.threads import num_threads
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.models.crf import composites, objective
from trelliswork.models.crf import problem as training
from trelliswork.models.crf.kernels.objective import TokenRows
from trelliswork.models.crf.layout import Allowed, FeatureLayout
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.problem import Labeling, Tokens


@dataclass
class Problem:
    tokens: Tokens
    gold: np.ndarray
    n_attributes: int
    n_labels: int
    kind: str = "observed"
    l2: float = 0.0
    weights: np.ndarray | None = None
    allowed: Allowed | None = None
    label_weights: np.ndarray | None = None
    n_edge_attributes: int = 0
    sets: np.ndarray | None = None  # (n_tokens, S) possible labels of tokens, for sentences whose gold is -1

    @property
    def labeling(self) -> Labeling:
        if self.sets is None:
            return Labeling(self.gold)
        return Labeling(self.gold, self.sets, np.arange(len(self.gold), dtype=np.int32))

    @property
    def layout(self) -> FeatureLayout:
        sizes = (self.n_attributes, self.n_labels, self.n_edge_attributes)
        if self.kind == "all_pairs":
            return FeatureLayout.all_pairs(*sizes)
        return FeatureLayout.observed(self.tokens, self.labeling, *sizes)

    @property
    def given(self) -> training.Problem:
        return training.Problem(self.tokens, self.labeling, self.layout, self.weights, self.label_weights, self.allowed)

    @property
    def objective(self) -> ChainObjective:
        return ChainObjective(self.given, l2=self.l2)


def feature_vector(problem, layout, first, labels):
    """Return the counts of all features in one labeled sentence that starts at token ``first``."""
    phi = np.zeros(layout.n_features)
    n_transitions = len(layout.transitions)
    for i, j in pairwise(labels):
        phi[:n_transitions] += layout.transitions == i * problem.n_labels + j
    for t, label in enumerate(labels):
        for at in range(problem.tokens.token_ptr[first + t], problem.tokens.token_ptr[first + t + 1]):
            value = 1.0 if problem.tokens.values is None else float(problem.tokens.values[at])
            hit = (layout.attributes == problem.tokens.ids[at]) & (layout.labels == label)
            phi[n_transitions : layout.first_edge] += value * hit
        edges = problem.tokens.edges
        if edges is not None and t > 0:
            for a in edges.ids[edges.token_ptr[first + t] : edges.token_ptr[first + t + 1]]:
                pair = labels[t - 1] * problem.n_labels + label
                phi[layout.first_edge :] += (layout.edge_attributes == a) & (layout.edge_pairs == pair)
    return phi


def is_allowed(allowed, labels):
    return (
        allowed.start[labels[0]] and allowed.end[labels[-1]] and all(allowed.pairs[i, j] for i, j in pairwise(labels))
    )


def enumerated(problem, w):
    """Compute value and gradient from the definition, in float64."""
    layout = problem.layout
    value, gradient = problem.l2 * float(w @ w), 2 * problem.l2 * w
    for n, (start, stop) in enumerate(pairwise(problem.tokens.offsets.tolist())):
        alpha = 1.0 if problem.weights is None else float(problem.weights[n])
        labelings = [
            y
            for y in product(range(problem.n_labels), repeat=stop - start)
            if problem.allowed is None or is_allowed(problem.allowed, y)
        ]
        phi = np.array([feature_vector(problem, layout, start, y) for y in labelings])
        gold = problem.gold[start:stop]
        scores = phi @ w
        if problem.label_weights is not None:
            scores = scores - np.log(problem.label_weights)[np.array(labelings)].sum(axis=1)
        if gold[0] >= 0:
            agrees = np.array([np.array_equal(y, gold) for y in labelings])
        else:
            agrees = np.array([all(problem.sets[start + t, j] for t, j in enumerate(y)) for y in labelings])
        log_z, log_agree = np.logaddexp.reduce(scores), np.logaddexp.reduce(scores[agrees])
        value += alpha * (log_z - log_agree)
        gradient += alpha * (np.exp(scores - log_z) @ phi - np.exp(scores[agrees] - log_agree) @ phi[agrees])
    return value, gradient


def random_problem(rng, *, n_labels, n_attributes, lengths, real=False, kind="observed", **options):
    n_tokens = int(np.sum(lengths))
    n_each = rng.integers(0, min(n_attributes, 4) + 1, n_tokens)
    ids = [np.sort(rng.choice(n_attributes, n, replace=False)) for n in n_each]
    flat = np.concatenate([*ids, []]).astype(np.int32)
    tokens = Tokens(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([[0], np.cumsum(n_each)]).astype(np.int64),
        flat,
        rng.normal(size=len(flat)).astype(np.float32) if real else None,
    )
    if options.get("n_edge_attributes"):
        n = options["n_edge_attributes"]
        edge_ptr = np.concatenate([[0], np.cumsum(rng.integers(0, 3, n_tokens))]).astype(np.int64)
        edges = Tokens(tokens.offsets, edge_ptr, rng.integers(0, n, edge_ptr[-1]).astype(np.int32))
        tokens = Tokens(tokens.offsets, tokens.token_ptr, tokens.ids, tokens.values, edges)
    gold = rng.integers(0, n_labels, n_tokens).astype(np.int32)
    return Problem(tokens, gold, n_attributes, n_labels, kind, **options)


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_labels = draw(st.integers(2, 4))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    problem = random_problem(
        rng,
        n_labels=n_labels,
        n_attributes=draw(st.integers(1, 12)),
        lengths=lengths,
        real=draw(st.booleans()),
        kind=draw(st.sampled_from(["observed", "all_pairs"])),
        l2=draw(st.sampled_from([0.0, 0.3])),
        n_edge_attributes=draw(st.sampled_from([0, 0, 3])),
    )
    if draw(st.booleans()):
        problem.label_weights = rng.uniform(0.2, 5, n_labels)
    if draw(st.booleans()):
        problem.weights = rng.uniform(0, 3, len(lengths))
    if draw(st.booleans()):
        shapes = [(n_labels, n_labels), n_labels, n_labels]
        problem.allowed = Allowed(*(rng.random(shape) < 0.5 for shape in shapes))
        for start, stop in pairwise(problem.tokens.offsets.tolist()):  # observed labels must be possible
            problem.allowed.pairs[problem.gold[start : stop - 1], problem.gold[start + 1 : stop]] = True
            problem.allowed.start[problem.gold[start]] = True
            problem.allowed.end[problem.gold[stop - 1]] = True
    if draw(st.booleans()):  # remove some labels; the gold ones stay possible
        problem.sets = rng.random((len(problem.gold), n_labels)) < 0.5
        problem.sets[np.arange(len(problem.gold)), problem.gold] = True
        for start, stop in pairwise(problem.tokens.offsets.tolist()):
            if rng.random() < 0.6:
                problem.gold[start:stop] = -1
    size = draw(st.sampled_from([0.0, 1.0, 5.0]))
    return problem, rng.normal(size=problem.layout.n_features) * size


def check_against_enumeration(problem, w, rtol=1e-4):
    value, gradient = problem.objective(w)
    want_value, want_gradient = enumerated(problem, w)
    scale = 1 + np.abs(w).max(initial=0) * 5  # scores are rounded to float32 before they are subtracted
    assert_allclose(value, want_value, rtol=rtol, atol=1e-6 * scale * len(problem.gold))
    assert_allclose(gradient, want_gradient, rtol=rtol, atol=rtol * (1 + np.abs(want_gradient).max(initial=0)))
    assert gradient.dtype == np.float64
    assert gradient.shape == w.shape


@given(problems())
def test_value_and_gradient_match_enumeration(case):
    check_against_enumeration(*case)


@given(problems())
def test_lanes_and_composites_match_enumeration(case):
    with (
        patch.object(objective, "LANE_PADDING", 1000),  # one sentence per lane, however few there are
        patch.multiple(composites, SMALL=0, LEAST=1, LEAST_SAVED=0),
    ):
        check_against_enumeration(*case)


@pytest.mark.parametrize("width", [16, 48])
def test_composites_replace_rows_that_come_together(width):
    # Each token has the attributes (0, 1, 2, 3) or (0, 1, 4): 0 and 1 come together everywhere, 2 and 3 where they are.
    with patch.multiple(composites, SMALL=0, LEAST=2):
        ptr, ids = np.array([0, 4, 7, 11, 14]), np.array([0, 1, 2, 3, 0, 1, 4] * 2, np.int32)
        nothing = np.empty(0, np.float32)
        rows, found = composites.find_composites(TokenRows(ptr, ids, nothing, ptr, ids, nothing), 5)
    assert (rows.wide_ptr.tolist(), rows.wide_ids.tolist()) == ([0, 1, 2, 3, 4], [7, 8, 7, 8])
    assert found.parts.tolist() == [[0, 1], [2, 3], [5, 6], [5, 4]]
    wide = np.zeros((found.size, width), np.float32)
    wide[:5, 0] = 1, 10, 100, 1000, 10000
    found.fill(wide)
    assert wide[5:, 0].tolist() == [11, 1100, 1111, 10011]
    gradient = np.zeros_like(wide)
    gradient[[7, 8], 0] = 3, 5
    found.spread(gradient)
    assert gradient[:5, 0].tolist() == [8, 8, 3, 3, 5]


def test_attributes_of_value_0_change_nothing_and_other_values_stay_outside_of_composites():
    rng = np.random.default_rng(3)
    problem = random_problem(rng, n_labels=4, n_attributes=6, lengths=[5, 3, 4, 4, 2], real=True)
    tokens = problem.tokens
    values = rng.choice([0.0, 1.0, 1.0, 2.5], len(tokens.ids)).astype(np.float32)
    given = replace(problem, tokens=replace(tokens, values=values)).given
    w = rng.normal(size=given.n_features)
    value, gradient = ChainObjective(given)(w)
    with patch.multiple(composites, SMALL=0, LEAST=1, LEAST_SAVED=0):
        fewer = ChainObjective(replace(given, tokens=given.tokens.without_zeros()))
        found = fewer(w)
    assert len(fewer._composites.parts) > 0
    assert_allclose(found[0], value, rtol=1e-5)
    assert_allclose(found[1], gradient, rtol=1e-4, atol=1e-4)
    ones = replace(tokens, values=(values > 0).astype(np.float32)).without_zeros()
    assert ones.values is None
    assert len(ones.ids) == (values > 0).sum()


@given(problems())
def test_gradient_matches_finite_differences(case):
    problem, w = case
    objective = problem.objective
    _, gradient = objective(w)
    direction = np.random.default_rng(0).normal(size=len(w))
    direction /= max(1.0, float(np.linalg.norm(direction)))
    step = 0.02  # large because of float32; fourth-order central differences compensate
    at = [objective(w + k * step * direction)[0] for k in (-2, -1, 1, 2)]
    slope = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)
    scale = 1 + np.abs(w).max(initial=0) + np.abs(gradient).max(initial=0)
    assert_allclose(gradient @ direction, slope, rtol=1e-3, atol=1e-3 * scale)


@pytest.mark.parametrize("kind", ["observed", "all_pairs"])
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("n_labels", [2, 4])
@pytest.mark.parametrize("size", [30.0, 200.0, 3000.0])
def test_weights_that_underflow_in_probability_space(kind, real, n_labels, size):
    rng = np.random.default_rng(7)
    problem = random_problem(
        rng, n_labels=n_labels, n_attributes=6, lengths=[5, 1, 4, 5, 2, 3, 5, 5, 4], real=real, kind=kind
    )
    w = rng.normal(size=problem.layout.n_features) * size
    check_against_enumeration(problem, w)


def test_a_transition_of_200_against_all_attributes():
    # The attributes favor 0 1 0 1, the transitions nearly forbid it: intermediate probabilities of e^-200.
    tokens = Tokens(np.array([0, 4]), np.arange(5), np.array([0, 1, 0, 1], np.int32))
    problem = Problem(tokens, np.array([0, 1, 0, 1], np.int32), 2, 2, "all_pairs")
    layout = problem.layout
    w = np.zeros(layout.n_features)
    w[: len(layout.transitions)] = [200, -200, -200, 200]
    w[len(layout.transitions) :] = [150, -150, -150, 150]
    check_against_enumeration(problem, w)
    assert problem.objective(w)[0] > 500


@pytest.mark.parametrize("size", [1.0, 200.0])
def test_forbidden_labels_and_pairs(size):
    rng = np.random.default_rng(3)
    problem = random_problem(rng, n_labels=3, n_attributes=4, lengths=[5, 4, 5, 3], kind="all_pairs")
    problem.gold[:] = 0
    pairs = np.array([[1, 1, 0], [0, 0, 1], [1, 0, 0]], bool)
    problem.allowed = Allowed(pairs, np.array([True, False, True]), np.array([True, True, False]))
    w = rng.normal(size=problem.layout.n_features) * size
    check_against_enumeration(problem, w)
    _, gradient = problem.objective(w)
    assert_array_equal(gradient[: len(problem.layout.transitions)].reshape(3, 3)[~pairs], 0)


def test_repeated_attributes_of_a_token_are_added():
    tokens = Tokens(np.array([0, 2]), np.array([0, 3, 4]), np.array([0, 0, 1, 1], np.int32))
    problem = Problem(tokens, np.array([0, 1], np.int32), 2, 3, "all_pairs")
    check_against_enumeration(problem, np.random.default_rng(0).normal(size=problem.layout.n_features))


def test_tokens_without_attributes():
    tokens = Tokens(np.array([0, 3, 4]), np.zeros(5, np.int64), np.empty(0, np.int32))
    problem = Problem(tokens, np.array([0, 1, 1, 0], np.int32), 0, 2, "observed", l2=0.1)
    check_against_enumeration(problem, np.array([0.5, -1.0]))


def test_zero_weights_give_a_uniform_distribution():
    rng = np.random.default_rng(1)
    problem = random_problem(rng, n_labels=3, n_attributes=5, lengths=[4, 2, 5])
    value, _ = problem.objective(np.zeros(problem.layout.n_features))
    assert_allclose(value, 11 * np.log(3), rtol=1e-6)


def many(n_labels=7, **options):
    """Return a problem with enough sentences of many lengths for several threads and sums of the gradient."""
    rng = np.random.default_rng(11)
    lengths = rng.integers(1, 40, 300)
    problem = random_problem(rng, n_labels=n_labels, n_attributes=60, lengths=lengths, **options)
    return problem, rng.normal(size=problem.layout.n_features)


@pytest.mark.parametrize("size", [1.0, 200.0])
@pytest.mark.parametrize("kind", ["observed", "all_pairs"])
def test_results_do_not_depend_on_the_number_of_threads(kind, size):
    problem, w = many(kind=kind, l2=0.1)
    results = []
    for n in (1, 2, 3, 3):
        with num_threads(n):
            results.append(problem.objective(w * size))
    for value, gradient in results[1:]:
        assert value == results[0][0]
        assert_array_equal(gradient, results[0][1])


def test_an_objective_can_be_evaluated_again():
    problem, w = many(l2=0.1)
    objective = problem.objective
    value, gradient = objective(w)
    kept = gradient.copy()
    objective(w * 50)
    assert_array_equal(gradient, kept)  # not a buffer that the next call overwrites
    again, gradient_again = objective(w)
    assert value == again
    assert_array_equal(gradient, gradient_again)


@pytest.mark.parametrize("n_labels", [2, 7, 8, 9, 17, 33])
@pytest.mark.parametrize("real", [False, True])
def test_many_sentences_are_the_sum_of_single_ones(n_labels, real):
    # Numbers of labels around whole vectors; internally sentences are sorted, grouped and split into ranges.
    problem, w = many(n_labels, real=real)
    layout = problem.layout
    rng = np.random.default_rng(2)
    problem.weights = rng.uniform(0, 2, 300)
    value, gradient = problem.objective(w)
    total, total_gradient = 0.0, np.zeros_like(w)
    for n, (start, stop) in enumerate(pairwise(problem.tokens.offsets.tolist())):
        one = problem.tokens.take(np.arange(start, stop), np.array([stop - start]))
        own = training.Problem(one, Labeling(problem.gold[start:stop]), layout, problem.weights[n : n + 1])
        one_value, one_gradient = ChainObjective(own)(w)
        total, total_gradient = total + one_value, total_gradient + one_gradient
    assert_allclose(value, total, rtol=1e-5)
    assert_allclose(gradient, total_gradient, rtol=1e-4, atol=2e-3)


def test_inputs_are_left_unchanged():
    problem, w = many(l2=0.5)
    kept = [x.copy() for x in (w, problem.gold, problem.tokens.ids, problem.tokens.offsets)]
    problem.objective(w)
    for now, before in zip((w, problem.gold, problem.tokens.ids, problem.tokens.offsets), kept, strict=True):
        assert_array_equal(now, before)


def test_an_empty_sentence_raises():
    tokens = Tokens(np.array([0, 1, 1]), np.array([0, 1]), np.array([0], np.int32))
    layout = FeatureLayout.all_pairs(1, 2)
    with pytest.raises(ValueRangeError, match="sentence 1 is empty"):
        ChainObjective(training.Problem(tokens, Labeling(np.array([0], np.int32)), layout))


def test_observed_layout():
    # Two sentences: labels 0 2 | 1, attributes {3, 1} {1} | {0}. No transition crosses the sentence boundary.
    tokens = Tokens(np.array([0, 2, 3]), np.array([0, 2, 3, 4]), np.array([3, 1, 1, 0], np.int32))
    layout = FeatureLayout.observed(tokens, Labeling(np.array([0, 2, 1], np.int32)), 5, 3)
    assert layout.transitions.tolist() == [2]
    assert list(zip(layout.attributes.tolist(), layout.labels.tolist(), strict=True)) == [
        (0, 1),
        (1, 0),
        (1, 2),
        (3, 0),
    ]
    assert layout.n_features == 5
    assert layout.sizes.tolist() == [1, 2, 0, 1, 0]


def test_layout_of_all_pairs():
    layout = FeatureLayout.all_pairs(2, 3)
    assert layout.transitions.tolist() == list(range(9))
    assert layout.attributes.tolist() == [0, 0, 0, 1, 1, 1]
    assert layout.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_tokens_in_another_order():
    tokens = Tokens(np.array([0, 2, 3]), np.array([0, 2, 2, 3]), np.array([3, 1, 4], np.int32), np.float32([1, 2, 3]))
    taken = tokens.take(np.array([2, 0, 1]), np.array([1, 2]))
    assert taken.offsets.tolist() == [0, 1, 3]
    assert taken.token_ptr.tolist() == [0, 1, 3, 3]
    assert taken.ids.tolist() == [4, 3, 1]
    assert taken.values is not None
    assert taken.values.tolist() == [3, 1, 2]


def test_an_unlabeled_sentence_has_no_loss_and_no_gradient():
    problem = random_problem(np.random.default_rng(0), n_labels=3, n_attributes=5, lengths=[4], kind="all_pairs")
    problem.sets, problem.gold[:] = np.ones((4, 3), bool), -1
    w = np.random.default_rng(1).normal(size=problem.layout.n_features)
    value, gradient = problem.objective(w)
    assert_allclose(value, 0, atol=1e-5)
    assert_allclose(gradient, 0, atol=1e-5)


def test_labels_that_the_scheme_excludes_raise_with_the_number_of_the_sentence():
    problem = random_problem(np.random.default_rng(0), n_labels=2, n_attributes=5, lengths=[1, 2, 3])
    problem.sets = np.ones((6, 2), bool)
    problem.sets[1:3] = [True, False]
    problem.gold[:] = -1
    allowed = np.array([[False, True], [True, True]])
    problem.allowed = Allowed(allowed, np.ones(2, bool), np.ones(2, bool))
    with pytest.raises(ImpossibleError, match="sentence 1:"):
        problem.objective(np.zeros(problem.layout.n_features))


def test_observed_features_of_partly_labeled_tokens():
    ids = np.array([0, 1, 2], np.int32)
    tokens = Tokens(np.array([0, 3]), np.array([0, 1, 2, 3]), ids)
    sets = np.array([[True, False, False], [True, False, True], [True, True, True]])
    labeling = Labeling(np.full(3, -1, np.int32), sets, np.arange(3, dtype=np.int32))
    layout = FeatureLayout.observed(tokens, labeling, 3, 3)
    assert list(zip(layout.attributes, layout.labels, strict=True)) == [(0, 0), (1, 0), (1, 2)]
    assert len(layout.transitions) == 9


@pytest.mark.parametrize(
    "damage",
    [
        {"labels": np.array([1, 0], np.int16)},  # fewer than attributes
        {"attributes": np.array([1, 0, 0, 0], np.int32)},  # not sorted
        {"attributes": np.array([0, 0, 1, 2], np.int32)},
        {"labels": np.array([[0], [1], [0], [1]], np.int16)},
        {"transitions": np.array([0.0, 1.0, 2.0, 3.0])},
        {"edge_attributes": np.array([0], np.int32)},
    ],
)
def test_damaged_layouts_are_refused(damage):
    layout = FeatureLayout.all_pairs(2, 2)
    layout.check()
    with pytest.raises(ValueRangeError, match="the file is damaged"):
        replace(layout, **damage).check()
