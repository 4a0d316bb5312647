"""Second-order trees by belief propagation: against enumeration, factor graphs and log space."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.second_order import enumerate_second_order
from trelliswork.compute import threads
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph import ProjectiveTreeFactor, SpanningTreeFactor, Tables, wire
from trelliswork.inference.graph.engines import bp
from trelliswork.inference.tree import eisner, matrix_tree, tree_potentials
from trelliswork.inference.tree.second_order import Parts, infer, parts, plain
from trelliswork.inference.tree.second_order.kernels.records import Options, Scores, SecondOrderResult

seeds = st.integers(0, 10_000)
kinds = st.tuples(st.booleans(), st.booleans())  # projective, single root


def some_arcs(rng, n_words, share=1.0):
    """Draw a random share of all arcs of each sentence; one tree (a chain from word 1) is always possible."""
    ptr, heads, modifiers = [0], [], []
    for n in n_words:
        keep = rng.random((n + 1, n + 1)) < share
        keep[np.arange(n), np.arange(1, n + 1)] = True
        np.fill_diagonal(keep, False)
        keep[:, 0] = False
        h, m = np.nonzero(keep)
        heads.append(h)
        modifiers.append(m)
        ptr.append(ptr[-1] + len(h))
    return np.array(n_words), np.array(ptr), np.concatenate(heads), np.concatenate(modifiers)


def random_scores(rng, p: Parts, scale=1.0, part_scale=0.3):
    return (
        rng.normal(0, scale, len(p.heads)),
        rng.normal(0, part_scale, len(p.sibling_heads)),
        rng.normal(0, part_scale, len(p.grandparent_upper)),
    )


def enumerated(p, b, scores, projective, single_root):
    return enumerate_second_order(p, b, *scores, projective=projective, single_root=single_root)


@given(seed=seeds, kind=kinds, scale=st.sampled_from([1.0, 30.0, 1000.0]), share=st.sampled_from([0.4, 1.0]))
def test_tree_factor_alone_is_exact(seed, kind, scale, share):
    rng = np.random.default_rng(seed)
    p = parts(*some_arcs(rng, rng.integers(1, 5, 3), share), siblings=False, grandparents=False)
    scores = random_scores(rng, p, scale)
    scores[0][rng.random(len(scores[0])) < 0.15] = -np.inf
    result = infer(p, *scores, projective=kind[0], single_root=kind[1])
    assert result.converged.all()
    for b in range(3):
        want = enumerated(p, b, scores, *kind)
        arcs = slice(p.arc_ptr[b], p.arc_ptr[b + 1])
        assert_allclose(result.log_partition[b], want.log_z, rtol=1e-12, atol=1e-10)
        assert_allclose(result.arcs[arcs], (want.probabilities @ want.arcs)[arcs], atol=1e-10)


@given(seed=seeds, projective=st.booleans())
def test_siblings_are_exact_where_heads_are_given(seed, projective):
    """All words depend on word 1, which depends on 0: there is only one tree."""
    rng = np.random.default_rng(seed)
    n = 4
    heads, modifiers = np.array([0, 1, 1, 1]), np.array([1, 2, 3, 4])
    p = parts([n], [0, n], heads, modifiers)
    scores = random_scores(rng, p, 2.0, 2.0)
    result, want = infer(p, *scores, projective=projective), enumerated(p, 0, scores, projective, True)
    assert len(want.scores) == 1
    assert_allclose(result.log_partition, want.log_z, atol=1e-10)
    for got, on in (
        (result.arcs, want.arcs),
        (result.siblings, want.siblings),
        (result.grandparents, want.grandparents),
    ):
        assert_allclose(got, on[0], atol=1e-10)


@given(seed=seeds)
def test_one_free_word_is_exact(seed):
    """Only word 3 has a choice of heads, so no information can circulate."""
    rng = np.random.default_rng(seed)
    p = parts([3], [0, 4], [0, 1, 1, 2], [1, 2, 3, 3])
    scores = random_scores(rng, p, 2.0, 2.0)
    result, want = infer(p, *scores, max_iter=50, tolerance=1e-13), enumerated(p, 0, scores, True, True)
    assert_allclose(result.log_partition, want.log_z, atol=1e-8)
    assert_allclose(result.arcs, want.probabilities @ want.arcs, atol=1e-8)
    assert_allclose(result.siblings, want.probabilities @ want.siblings, atol=1e-8)
    assert_allclose(result.grandparents, want.probabilities @ want.grandparents, atol=1e-8)


def as_graph(p, b, scores, projective, single_root):
    """Return the same model as a factor graph of tables and a tree factor, each side's automaton as one table."""
    first, last = p.arc_ptr[b], p.arc_ptr[b + 1]
    K = last - first
    kind = ProjectiveTreeFactor if projective else SpanningTreeFactor
    tree = kind(np.arange(K), p.heads[first:last], p.modifiers[first:last], p.n_words[b], single_root=single_root)
    unary = np.zeros((K, 2))
    unary[:, 1] = scores[0][first:last]
    tables = []
    for arc, step, size, part in p.sides[p.side_ptr[b] : p.side_ptr[b + 1]]:
        table = np.empty((2,) * size)
        for states in np.ndindex(*table.shape):
            on = [0, *(j for j in range(1, size + 1) if states[j - 1]), size + 1]
            table[states] = sum(scores[1][part + j * (j - 1) // 2 + i] for i, j in itertools.pairwise(on))
        tables.append(Tables((arc - first + step * np.arange(size))[None], np.zeros(1, np.int64), table[None, None]))
    for k in range(p.grandparent_ptr[b], p.grandparent_ptr[b + 1]):
        pair = np.array([[p.grandparent_upper[k], p.grandparent_lower[k]]]) - first
        tables.append(Tables(pair, np.zeros(1, np.int64), np.array([[[[0, 0], [0, scores[2][k]]]]])))
    return wire([2] * K, tables, structured=[tree], log_unary=unary.reshape(-1))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [(True, True), (True, False), (False, True)])
def test_fixed_point_equals_that_of_a_factor_graph(seed, kind):
    rng = np.random.default_rng(seed)
    p = parts(*some_arcs(rng, [3, 4], 0.6))
    scores = random_scores(rng, p, 1.0, 0.3)
    result = infer(p, *scores, projective=kind[0], single_root=kind[1], max_iter=500, tolerance=1e-13)
    for b in range(2):
        want = bp.run(as_graph(p, b, scores, *kind), tolerance=1e-12, max_iter=2000, damping=0.2)
        assert want.converged.all()
        assert result.converged[b]
        assert_allclose(result.arcs[p.arc_ptr[b] : p.arc_ptr[b + 1]], want.marginals[0, 1::2], atol=1e-6)
        assert_allclose(result.log_partition[b], want.log_z[0], atol=1e-6)


@pytest.mark.parametrize("projective", [True, False])
def test_beliefs_are_the_gradient_of_log_partition(projective):
    rng = np.random.default_rng(3)
    p = parts(*some_arcs(rng, [4], 0.8))
    scores = random_scores(rng, p)
    options = {"projective": projective, "max_iter": 500, "tolerance": 1e-14}
    result, step = infer(p, *scores, **options), 1e-5
    for which, beliefs in enumerate((result.arcs, result.siblings, result.grandparents)):
        for k in rng.permutation(len(beliefs))[:12]:
            values = []
            for sign in (1, -1):
                moved = [s.copy() for s in scores]
                moved[which][k] += sign * step
                values.append(infer(p, *moved, **options).log_partition[0])
            assert_allclose((values[0] - values[1]) / (2 * step), beliefs[k], atol=1e-7)


@given(seed=seeds, kind=kinds, tree_every=st.integers(1, 3))
def test_probability_space_and_log_space_agree(seed, kind, tree_every):
    rng = np.random.default_rng(seed)
    p = parts(*some_arcs(rng, rng.integers(1, 7, 4), 0.5))
    scores = random_scores(rng, p, 2.0, 1.0)
    scores[0][rng.random(len(scores[0])) < 0.1] = -np.inf
    options = {"projective": kind[0], "single_root": kind[1], "tree_every": tree_every}
    result = infer(p, *scores, tolerance=0, **options)
    want = in_log_space(p, scores, tolerance=0.0, **options)
    for name in ("log_partition", "arcs", "siblings", "grandparents"):
        assert_allclose(getattr(result, name), getattr(want, name), atol=1e-8, err_msg=name)
    assert_allclose(result.residual, want.residual, atol=1e-8)
    for one in (result, want):
        for b in np.flatnonzero(one.log_partition > -np.inf):
            arcs = slice(p.arc_ptr[b], p.arc_ptr[b + 1])
            tree = np.full((1, p.n_words[b] + 1, p.n_words[b] + 1), -np.inf)
            tree[0, p.heads[arcs], p.modifiers[arcs]] = one.tree_scores[arcs]
            engine = eisner if kind[0] else matrix_tree
            _, marginals = engine.expectations(tree_potentials(tree, single_root=kind[1]))
            assert_allclose(marginals[0, p.heads[arcs], p.modifiers[arcs]], one.arcs[arcs], atol=1e-8)


def test_arc_forced_by_parts_excludes_the_others():
    p = parts([2], [0, 4], [0, 0, 1, 2], [1, 2, 2, 1])
    siblings = np.zeros(len(p.sibling_heads))
    (at,) = np.flatnonzero((p.sibling_heads == 1) & (p.sibling_previous < 0) & (p.sibling_next < 0))
    siblings[at] = -np.inf  # word 1 must have a child
    result = infer(p, np.zeros(4), siblings, np.zeros(len(p.grandparent_upper)))
    assert_allclose(result.arcs, [1, 0, 1, 0], atol=1e-12)
    assert result.tree_scores[1] == -np.inf
    assert np.isfinite(result.tree_scores[[0, 2]]).all()


def in_log_space(
    p, scores, *, projective=True, single_root=True, max_iter=5, tree_every=1, tolerance=1e-4, damping=0.0
):
    B = p.n_sentences
    sizes = (B, len(p.heads), len(p.sibling_heads), len(p.grandparent_upper))
    arrays = [np.empty(size) for size in sizes] + [np.empty(B, bool), np.empty(B, np.int64), np.empty(B)]
    arrays.append(np.empty(len(p.heads)))
    options = Options(projective, single_root, max_iter, tree_every, tolerance, damping)
    results = SecondOrderResult(*arrays)
    for b in range(B):
        plain.infer(p, Scores(*scores), options, b, results)
    return results


@pytest.mark.parametrize("projective", [True, False])
def test_results_do_not_depend_on_batch_or_threads(projective):
    rng = np.random.default_rng(5)
    arcs = some_arcs(rng, rng.integers(1, 25, 40), 0.3)
    p = parts(*arcs)
    scores = random_scores(rng, p)
    with threads.num_threads(1):
        one = infer(p, *scores, projective=projective)
    with threads.num_threads(4):
        four = infer(p, *scores, projective=projective)
    for name in SecondOrderResult._fields:
        assert np.array_equal(getattr(one, name), getattr(four, name)), name
    for b in (0, 17, 39):
        first, last = arcs[1][b], arcs[1][b + 1]
        alone = parts(arcs[0][b : b + 1], [0, last - first], arcs[2][first:last], arcs[3][first:last])
        cut = (slice(first, last), slice(*p.sibling_ptr[b : b + 2]), slice(*p.grandparent_ptr[b : b + 2]))
        result = infer(alone, *(s[c] for s, c in zip(scores, cut, strict=True)), projective=projective)
        assert result.log_partition[0] == one.log_partition[b]
        assert np.array_equal(result.arcs, one.arcs[cut[0]])
        assert np.array_equal(result.siblings, one.siblings[cut[1]])
        assert np.array_equal(result.grandparents, one.grandparents[cut[2]])


@given(seed=seeds, kind=kinds)
def test_beliefs_are_consistent(seed, kind):
    rng = np.random.default_rng(seed)
    p = parts(*some_arcs(rng, rng.integers(1, 9, 3), 0.6))
    result = infer(p, *random_scores(rng, p), projective=kind[0], single_root=kind[1], max_iter=300, tolerance=1e-12)
    into = np.add.reduceat(result.arcs[p.in_arcs], np.unique(p.in_start[:-1][np.diff(p.in_start) > 0]))
    assert_allclose(into, 1, atol=1e-9)
    for b in np.flatnonzero(result.converged):
        for arc, step, size, part in p.sides[p.side_ptr[b] : p.side_ptr[b + 1]]:
            for j in range(1, size + 1):  # the transitions to a child are as probable as its arc
                k = part + j * (j - 1) // 2
                assert_allclose(result.siblings[k : k + j].sum(), result.arcs[arc + step * (j - 1)], atol=1e-7)
            assert_allclose(result.siblings[part + size * (size + 1) // 2 :][: size + 1].sum(), 1, atol=1e-9)


def test_one_word():
    p = parts([1], [0, 1], [0], [1])
    assert (len(p.sibling_heads), len(p.grandparent_upper)) == (3, 0)
    result = infer(p, [2.0], [0.5, 10.0, 0.25], [])  # none -> child, none -> none, child -> none
    assert_allclose(result.log_partition, 2.75)
    assert_allclose(result.arcs, 1)
    assert_allclose(result.siblings, [1, 0, 1], atol=1e-12)


def test_impossible_sentences_and_parts():
    # word 2 has no candidate head; then its only one is forbidden; then a sibling part forbids the one tree
    p = parts([2, 2, 2], [0, 1, 3, 5], [0, 0, 1, 0, 1], [1, 1, 2, 1, 2])
    scores = random_scores(np.random.default_rng(0), p)
    scores[0][2] = -np.inf
    only = [
        k for k in range(p.sibling_ptr[2], p.sibling_ptr[3]) if p.sibling_previous[k] == -1 and p.sibling_next[k] == 4
    ]
    scores[1][only] = -np.inf
    result = infer(p, *scores)
    assert (result.log_partition == -np.inf).all()
    assert not result.arcs.any()
    assert not result.siblings.any()


def test_forced_and_forbidden_arcs():
    rng = np.random.default_rng(1)
    p = parts(*some_arcs(rng, [5], 1.0))
    scores = random_scores(rng, p)
    scores[0][(p.modifiers == 3) & (p.heads != 5)] = -np.inf  # 5 -> 3 is forced, and 5 cannot depend on 3 or 4
    scores[0][(p.heads == 0) & (p.modifiers == 1)] = -np.inf
    result = infer(p, *scores, max_iter=100, tolerance=1e-12)
    want = enumerated(p, 0, scores, True, True)
    exact = want.probabilities @ want.arcs
    assert_allclose(result.arcs[(p.modifiers == 3) & (p.heads == 5)], 1)
    assert (result.arcs[scores[0] == -np.inf] == 0).all()
    assert_allclose(result.arcs, exact, atol=0.1)


def test_fixed_point_does_not_depend_on_schedule_or_damping():
    rng = np.random.default_rng(2)
    p = parts(*some_arcs(rng, [6, 8], 0.5))
    scores = random_scores(rng, p)
    results = [
        infer(p, *scores, max_iter=400, tolerance=1e-12, tree_every=every, damping=damping)
        for every, damping in ((1, 0.0), (2, 0.0), (1, 0.4))
    ]
    for other in results:
        assert other.converged.all()
        assert_allclose(other.arcs, results[0].arcs, atol=1e-8)
        assert_allclose(other.log_partition, results[0].log_partition, atol=1e-8)
    few = infer(p, *scores, max_iter=2, tolerance=0)
    assert not few.converged.any()
    assert (few.n_iter == 2).all()
    # siblings alone: nothing changes between two tree updates, which must not count as convergence
    q = parts(p.n_words, p.arc_ptr, p.heads, p.modifiers, grandparents=False)
    assert (infer(q, scores[0], scores[1], tree_every=2, tolerance=1e-9, max_iter=4).n_iter > 2).all()


def test_each_part_is_listed_once():
    p = parts(*some_arcs(np.random.default_rng(0), [4, 3], 0.7))
    pairs = set(zip(p.grandparent_upper.tolist(), p.grandparent_lower.tolist(), strict=True))
    assert len(pairs) == len(p.grandparent_upper)
    want = {
        (u, low)
        for b in range(2)
        for u in range(p.arc_ptr[b], p.arc_ptr[b + 1])
        for low in range(p.arc_ptr[b], p.arc_ptr[b + 1])
        if p.modifiers[u] == p.heads[low] and p.modifiers[low] != p.heads[u]
    }
    assert pairs == want
    without = parts(p.n_words, p.arc_ptr, p.heads, p.modifiers, siblings=False)
    assert len(without.sibling_heads) == 0
    assert np.array_equal(without.grandparent_upper, p.grandparent_upper)


def test_invalid_input():
    with pytest.raises(ValueRangeError, match="out of order"):
        parts([2], [0, 2], [1, 0], [2, 1])
    with pytest.raises(ValueRangeError, match="goes from 3"):
        parts([2], [0, 1], [3], [1])
    with pytest.raises(ShapeError, match="arc_ptr"):
        parts([2], [0, 3], [0], [1])
    p = parts([1], [0, 1], [0], [1])
    with pytest.raises(ShapeError, match=r"sibling_scores must have shape \(3,\)"):
        infer(p, [0.0], [0.0])
    with pytest.raises(ValueRangeError, match="arc_scores must be finite"):
        infer(p, [np.nan], np.zeros(3))
    with pytest.raises(ValueRangeError, match="damping"):
        infer(p, [0.0], np.zeros(3), damping=1.0)
