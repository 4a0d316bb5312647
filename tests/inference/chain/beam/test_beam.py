"""Beams: exact when they lose nothing, a chain restricted to fewer states otherwise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.compiled import from_python
from tests.inference.chain.cases import chains
from tests.oracle.chain import enumerate_batch, enumerate_chain, sparse_chain
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain import reference as chain_reference
from trelliswork.inference.chain.beam import Beam, chosen_beam, reference
from trelliswork.inference.chain.beam.kernels.select import Rule, Selection, select
from trelliswork.inference.chain.beam.passes import expectations, viterbi
from trelliswork.inference.chain.beam.sparse import SparseTransitions

call_select = from_python(select)

beams = st.sampled_from(
    ["kl=0.1,min=1", "kl=0.5,min=2", "size=1", "size=2", "threshold=1.0,min=1", "kl=0.1,min=1,refine"]
)


def dense_of(found, shape):
    """Return the marginals (B, T, S) and a mask of the states in the beams."""
    B = shape[0]
    marginals, member = np.zeros(shape), np.zeros(shape, bool)
    for b in range(B):
        for t, i in enumerate(range(found.offsets[b], found.offsets[b + 1])):
            at = slice(found.sets.ptr[i], found.sets.ptr[i + 1])
            assert (np.diff(found.sets.states[at]) > 0).all()
            marginals[b, t, found.sets.states[at]] = found.marginals[at]
            member[b, t, found.sets.states[at]] = True
    return marginals, member


def size_of(*arrays):
    return max(float(np.abs(x[np.isfinite(x)]).max(initial=1)) for x in arrays)


@given(chains())
def test_beam_without_loss_is_exact(case):
    potentials = chain.chain_potentials(*case)
    log_z, want = chain.expectations(potentials, counts=True)
    for refine in (False, True):
        found = expectations(potentials, Beam(eps=0, refine=refine), counts=True)
        assert_allclose(found.log_z, log_z, rtol=1e-12, atol=1e-12 * size_of(*case[:2]))
        marginals, _ = dense_of(found, case.log_unary.shape)
        assert_allclose(marginals, want.marginals, atol=1e-11 * size_of(*case[:2]))
        assert_allclose(found.counts, want.counts.sum(axis=0), atol=1e-11 * size_of(*case[:2]))


@pytest.mark.parametrize("layout", ["shared", "by position"])
@pytest.mark.parametrize("n_states", [1, 7, 8, 9, 40, 100])
@pytest.mark.parametrize("n_positions", [1, 12])
def test_exact_in_single_precision(layout, n_states, n_positions):
    rng = np.random.default_rng(n_states)
    B, T, S = 5, n_positions, n_states
    shape = (S, S) if layout == "shared" else (B, T - 1, S, S)
    unary, pairwise = (rng.normal(size=s).astype(np.float32) for s in ((B, T, S), shape))
    potentials = chain.chain_potentials(unary, pairwise, rng.integers(1, T + 1, B))
    log_z, want = chain.expectations(potentials, counts=True)
    found = expectations(potentials, Beam(eps=0), counts=True)
    assert_allclose(found.log_z, log_z, rtol=1e-5)
    assert_allclose(dense_of(found, unary.shape)[0], want.marginals, atol=1e-5)
    assert_allclose(found.counts, want.counts.sum(axis=0), atol=1e-4)
    assert found.statistics.mean_size == found.statistics.max_size == S
    assert not found.exact.any()


@given(chains(possible=True), st.integers(0, 2**32 - 1))
def test_reference_within_given_beams_matches_enumeration(case, seed):
    S, rng = case.log_unary.shape[2], np.random.default_rng(seed)
    tolerance = 1e-10 * size_of(*case[:2])
    for unary, pairwise in by_sequence(case):
        inside = rng.random(unary.shape) < 0.6
        log_z, marginals, edges = reference.expectations(unary, pairwise, inside)
        expected = enumerate_chain(np.where(inside, unary, -np.inf), pairwise)
        assert_allclose(log_z, expected.log_z, rtol=1e-12, atol=tolerance)
        assert_allclose(marginals, expected.marginals(S), atol=tolerance)
        assert_allclose(edges, expected.edges(S), atol=tolerance)


def by_sequence(case):
    """Return the scores (T, S) and transitions (T-1, S, S) of each sequence."""
    B, T, S = case.log_unary.shape
    pairwise = np.broadcast_to(case.log_pairwise, (B, T - 1, S, S)) if T > 1 else np.zeros((B, 0, S, S))
    return [(case.log_unary[b, :n], pairwise[b, : n - 1]) for b, n in enumerate(case.lengths)]


@given(chains(possible=True), beams)
def test_kernels_match_enumeration_and_reference_inside_their_beams(case, text):
    S = case.log_unary.shape[2]
    found = expectations(chain.chain_potentials(*case), Beam.parse(text), counts=True)
    marginals, member = dense_of(found, case.log_unary.shape)
    restricted = np.where(member, case.log_unary, -np.inf)
    counts = np.zeros((S, S))
    tolerance = 1e-10 * size_of(*case[:2])
    enumerated = enumerate_batch(restricted, case.log_pairwise, case.lengths)
    for b, ((unary, pairwise), want) in enumerate(zip(by_sequence(case), enumerated, strict=True)):
        n = case.lengths[b]
        log_z, nodes, _ = reference.expectations(unary, pairwise, member[b, :n])
        for expected in (log_z, want.log_z):
            assert_allclose(found.log_z[b], expected, rtol=1e-12, atol=tolerance)
        for expected in (nodes, want.marginals(S)):
            assert_allclose(marginals[b, :n], expected, atol=tolerance)
        counts += want.edges(S).sum(axis=0)
    assert_allclose(found.counts, counts, atol=10 * tolerance)
    exact = chain.log_partition(chain.chain_potentials(*case))
    assert (found.log_z <= exact + tolerance).all()


@given(st.data())
def test_selection_matches_a_full_sort(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    S = data.draw(st.integers(1, 400))
    values = np.zeros(-(-S // 8) * 8)
    values[:S] = rng.dirichlet(np.full(S, data.draw(st.sampled_from([0.01, 0.1, 1.0, 100.0]))))
    beam = Beam.parse(
        data.draw(
            st.sampled_from(
                [
                    "kl=0.5,min=1",
                    "kl=0.005,min=10",
                    "kl=0.00001,min=4",
                    "size=1",
                    "size=20",
                    "size=300",
                    "threshold=2.0,min=3",
                    "threshold=6.9,min=30",
                ]
            )
        )
    )
    guess = np.full(1, data.draw(st.sampled_from([1.0, 0.03, 1e-9])))
    selection = Selection(np.empty(S, np.int32), np.empty(len(values)), guess)
    expected = np.flatnonzero(reference.keep(values[:S], beam))
    arguments = (values, 0, S, len(values), float(values.sum()), beam.rule)
    n = call_select(*arguments, -1, selection)
    assert_array_equal(selection.chosen[:n], expected)
    forced = int(rng.integers(S))
    n = call_select(*arguments, forced, selection)
    assert_array_equal(selection.chosen[:n], np.union1d(expected, [forced]))


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.sampled_from([0.5, 0.1, 0.001]))
def test_selection_in_single_precision(seed, S, eps):
    """The fewest states with the wanted share of the mass, up to rounding."""
    rng = np.random.default_rng(seed)
    values = np.zeros(-(-S // 16) * 16, np.float32)
    values[:S] = rng.dirichlet(np.full(S, 0.3))
    work = np.full(len(values), 7, np.float32)  # what is left there must not matter
    selection = Selection(np.empty(S, np.int32), work, np.full(1, 0.03, np.float32))
    n = call_select(values, 0, S, len(values), float(values.sum()), Beam(eps=eps, min_size=1).rule, -1, selection)
    chosen = np.sort(values[selection.chosen[:n]].astype(float))
    assert_array_equal(chosen, np.sort(values.astype(float))[len(values) - n :])
    target = np.exp(-eps) * values.sum(dtype=np.float64)
    assert chosen.sum() >= target - 1e-6
    assert chosen[1:].sum() <= target + 1e-6


def test_first_of_equal_states_are_chosen():
    values = np.zeros(56)
    values[:50] = 0.02
    for least in (1, 3, 8, 20, 49):
        selection = Selection(np.empty(50, np.int32), np.empty(56), np.full(1, 0.03))
        n = call_select(values, 0, 50, 56, 1.0, Rule(least, 0.0, 2.0), -1, selection)
        assert selection.chosen[:n].tolist() == list(range(least))


@pytest.mark.parametrize("text", ["kl=0.05,min=2", "kl=0.3,min=1", "size=5", "threshold=2.0,min=2"])
@pytest.mark.parametrize("shape", [(30, 30), (3, 8, 30, 30)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_choice_of_beams_matches_reference(text, shape, dtype):
    rng = np.random.default_rng(4)
    unary, pairwise = ((size * rng.normal(size=s)).astype(dtype) for s, size in (((3, 9, 30), 2), (shape, 1)))
    beam = Beam.parse(text)
    found = expectations(chain.chain_potentials(unary, pairwise), beam)
    _, member = dense_of(found, unary.shape)
    for b in range(3):
        steps = np.broadcast_to(pairwise, (3, 8, 30, 30))[b].astype(np.float64)
        inside, kept = reference.choose(unary[b].astype(np.float64), steps, beam)
        assert_array_equal(member[b], inside)
        rtol = 1e-10 if dtype == np.float64 else 1e-5
        assert_allclose(found.kept[found.offsets[b] : found.offsets[b + 1]], kept, rtol=rtol)
        if beam.by == "kl":
            assert (-np.log(kept) <= beam.eps).all()


@pytest.mark.parametrize("text", ["kl=0.05,min=2", "size=3", "threshold=2.0,min=2"])
def test_viterbi_within_beams_matches_reference(text):
    rng = np.random.default_rng(5)
    unary, pairwise = rng.normal(size=(3, 9, 30)) * 2, rng.normal(size=(30, 30))
    beam = Beam.parse(text)
    paths = viterbi(chain.chain_potentials(unary, pairwise), beam)
    sizes = []
    for b in range(3):
        steps = np.broadcast_to(pairwise, (8, 30, 30))
        inside, _ = reference.choose(unary[b], steps, beam, np.max)
        restricted = np.where(inside, unary[b], -np.inf)
        assert_allclose(paths.scores[b], chain_reference.forward(restricted, steps, np.max)[0], rtol=1e-12)
        sizes.append(inside.sum(axis=1))
    assert paths.mean_size == pytest.approx(np.mean(sizes))
    assert paths.max_size == np.max(sizes)


def test_gap_is_the_sum_of_divergences_if_later_positions_do_not_depend_on_the_state():
    # All rows of the transitions are equal, so later positions do not distinguish kept states from others.
    rng = np.random.default_rng(0)
    unary, pairwise = rng.normal(size=(4, 8, 25)) * 2, np.tile(rng.normal(size=25), (25, 1))
    potentials = chain.chain_potentials(unary, pairwise)
    found = expectations(potentials, Beam("kl", eps=0.2, min_size=1))
    gaps = -np.log(found.kept.reshape(4, 8)).sum(axis=1)
    assert_allclose(gaps, chain.log_partition(potentials) - found.log_z, rtol=1e-10)
    assert (gaps > 0.1).all()
    assert found.statistics.gap_estimate == pytest.approx(gaps.sum())


def test_gap_can_exceed_its_estimate():
    # The second state looks bad until the last position, which needs it.
    unary = np.array([[[0.0, -5.0], [-30.0, 0.0]]])
    pairwise = np.array([[0.0, -30.0], [-30.0, 0.0]])
    potentials = chain.chain_potentials(unary, pairwise)
    found = expectations(potentials, Beam("kl", eps=0.05, min_size=1))
    assert chain.log_partition(potentials)[0] - found.log_z[0] > 20 * found.statistics.gap_estimate > 0
    refined = expectations(potentials, Beam("kl", eps=0.05, min_size=2, refine=True))
    assert refined.log_z[0] > found.log_z[0] + 20


def test_gold_states_are_always_kept():
    rng = np.random.default_rng(1)
    unary, pairwise = rng.normal(size=(6, 7, 40)) * 4, rng.normal(size=(40, 40))
    lengths = np.array([7, 1, 3, 7, 5, 2])
    potentials = chain.chain_potentials(unary, pairwise, lengths)
    gold = rng.integers(-1, 40, (6, 7))
    for text in ("size=1", "kl=0.1,min=1", "kl=0.1,min=1,refine"):
        _, member = dense_of(expectations(potentials, Beam.parse(text), gold=gold), unary.shape)
        for b, t in zip(*np.nonzero(gold >= 0), strict=True):
            assert t >= lengths[b] or member[b, t, gold[b, t]]


def test_sequence_that_loses_every_path_is_computed_with_all_states():
    unary = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    pairwise = np.array([[-np.inf, -np.inf], [0.0, 0.0]])  # the better first state of sequence 0 is a dead end
    potentials = chain.chain_potentials(unary, pairwise)
    found = expectations(potentials, Beam("size", size=1), counts=True)
    assert found.exact.tolist() == [True, False]
    exact = chain.log_partition(potentials)
    assert_allclose(found.log_z[0], exact[0])
    assert found.sizes.tolist() == [2, 2, 1, 1]
    paths = viterbi(potentials, Beam("size", size=1))
    assert paths.exact.tolist() == [True, False]
    assert_array_equal(paths.labels, chain.viterbi(potentials)[0])


def test_impossible_sequences():
    potentials = chain.chain_potentials(np.full((1, 2, 3), -np.inf), np.zeros((3, 3)))
    assert expectations(potentials, Beam()).log_z[0] == -np.inf
    with pytest.raises(ImpossibleError):
        viterbi(potentials, Beam())


@given(chains(possible=True))
def test_viterbi_with_a_full_beam(case):
    potentials = chain.chain_potentials(*case)
    _, scores = chain.viterbi(potentials)
    found = viterbi(potentials, Beam(eps=0))
    assert_allclose(found.scores, scores, rtol=1e-12, atol=1e-9)
    assert_allclose(chain.score(potentials, found.labels), scores, rtol=1e-12, atol=1e-9)
    narrow = viterbi(potentials, Beam("size", size=1))
    assert (narrow.scores <= scores + 1e-9 * size_of(*case[:2])).all()
    assert_allclose(chain.score(potentials, narrow.labels), narrow.scores, rtol=1e-12, atol=1e-9)


@given(chains(possible=True))
def test_viterbi_finds_the_best_path_within_refined_sets(case):
    potentials = chain.chain_potentials(*case)
    beam = Beam("size", size=2, refine=True)
    sets = expectations(potentials, beam)
    _, member = dense_of(sets, potentials.log_unary.shape)
    masked = np.where(member, potentials.log_unary, -np.inf)
    exact = chain.chain_potentials(masked, *case[1:])
    if not np.isfinite(chain.log_partition(exact)).all():
        return  # forward masses underflowed; all states were used instead
    found = viterbi(potentials, beam)
    assert_allclose(found.scores, chain.viterbi(exact)[1], rtol=1e-12, atol=1e-9 * size_of(*case[:2]))
    assert found.max_size <= 2 or found.exact.any() or sets.exact.any()


def test_beam_from_user_argument():
    assert chosen_beam(None, 1000) is None
    assert chosen_beam("auto", 1000) == Beam()
    assert chosen_beam("auto", 50) is None
    assert chosen_beam("auto", 50, shared=False) == Beam()
    assert chosen_beam("size=3", 5) == Beam("size", size=3)
    with pytest.raises(ValueRangeError, match="beam must be a Beam"):
        chosen_beam(6.9, 5)


def second_order(rng, dtype=np.float64, n_labels=3, size=1.0, positions=4):
    """Return a sparse second-order chain and the same chain as dense potentials."""
    structure = SparseTransitions.ngrams(n_labels, 2)
    S = structure.n_states
    unary = (rng.normal(size=(5, positions, n_labels)) * size).astype(dtype)
    weights = (rng.normal(size=len(structure.targets)) * size).astype(dtype)
    start, end = (rng.normal(size=(2, S)) * size).astype(dtype)
    lengths = rng.integers(1, positions + 1, 5)
    pairwise = np.full((S, S), -np.inf, dtype)
    pairwise[structure.sources, structure.targets] = weights
    dense = unary[:, :, structure.emits].copy()
    dense[:, 0] += np.where(structure.first, start, -np.inf).astype(dtype)
    dense[np.arange(5), lengths - 1] += end
    sparse = sparse_chain(unary, structure, weights, lengths, log_start=start, log_end=end)
    return sparse, chain.chain_potentials(dense, pairwise, lengths)


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("text", ["kl=0,min=1", "kl=0,min=1,refine", "kl=0.2,min=2", "kl=0.2,min=2,refine", "size=3"])
def test_sparse_transitions_equal_dense_ones(size, seed, text):
    sparse, dense = second_order(np.random.default_rng(seed), size=size)
    beam = Beam.parse(text)
    found, want = expectations(sparse, beam, counts=True), expectations(dense, beam, counts=True)
    assert_allclose(found.log_z, want.log_z, rtol=1e-12, atol=1e-11 * size)
    shape = dense.log_unary.shape
    assert_allclose(dense_of(found, shape)[0], dense_of(want, shape)[0], atol=1e-11 * size)
    s = sparse.transitions
    assert_allclose(found.counts, want.counts[s.sources, s.targets], atol=1e-11 * size)
    paths, best = viterbi(sparse, beam), viterbi(dense, beam)
    assert_allclose(paths.scores, best.scores, rtol=1e-12, atol=1e-9)
    if beam.by == "kl" and beam.eps == 0:
        assert_allclose(paths.scores, chain.viterbi(dense)[1], rtol=1e-12, atol=1e-9)


def test_sparse_in_single_precision():
    sparse, dense = second_order(np.random.default_rng(0), np.float32, n_labels=7, positions=9)
    found, (log_z, want) = expectations(sparse, Beam(eps=0), counts=True), chain.expectations(dense, counts=True)
    assert_allclose(found.log_z, log_z, rtol=1e-5)
    assert_allclose(dense_of(found, dense.log_unary.shape)[0], want.marginals, atol=1e-5)


def test_states_of_ngrams():
    for n_labels, order in ((2, 1), (2, 3), (3, 2)):
        s = SparseTransitions.ngrams(n_labels, order)
        assert s.n_states == sum(n_labels**k for k in range(1, order + 1))
        labels = np.random.default_rng(0).integers(0, n_labels, 9)
        states = s.states(labels, np.array([5, 4]))
        assert_array_equal(s.emits[states], labels)
        entries = s.entries(states[:-1], states[1:])
        assert (entries[[0, 1, 2, 3, 5, 6, 7]] >= 0).all()
        window = [labels[max(0, t - order + 1) : t + 1] for t in range(5)]
        codes = [sum(n_labels**k for k in range(1, len(w))) + int("".join(map(str, w)), n_labels) for w in window]
        assert states[:5].tolist() == codes


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    potentials = chain.chain_potentials(
        rng.normal(size=(200, 30, 40)).astype(np.float32), rng.normal(size=(40, 40)).astype(np.float32),
        rng.integers(1, 31, 200),
    )  # fmt: skip
    found = []
    for n in (1, 2, 3):
        with threads.num_threads(n):
            found.append(expectations(potentials, Beam.parse("kl=0.05,min=4"), counts=True))
    for other in found[1:]:
        for name in ("log_z", "marginals", "counts", "kept"):
            assert_array_equal(getattr(other, name), getattr(found[0], name))
        assert_array_equal(other.sets.states, found[0].sets.states)


@pytest.mark.parametrize(
    "text", ["kl=0.005,min=10", "kl=auto,min=10", "size=20", "threshold=6.9,min=4", "kl=0.0,min=1,refine"]
)
def test_parse_and_str_are_inverse(text):
    assert str(Beam.parse(text)) == text
    assert Beam.parse(str(Beam.parse(text))) == Beam.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "kl", "kl=x", "kl=-1", "size=0", "size=2.5", "min=3", "size=3,min=2", "kl=1,size=2", "beam=3", "kl=nan",
     "kl=1,kl=2", "threshold=auto", "size=auto", "refine=1,size=2"],
)  # fmt: skip
def test_invalid_beams_are_rejected(text):
    with pytest.raises(ValueRangeError, match="beam"):
        Beam.parse(text)


def test_tighter_beams():
    assert Beam(eps="auto").tighter().eps == pytest.approx(0.0005)
    assert Beam("size", size=4).tighter().size == 8
    assert Beam("threshold", threshold=1.0).tighter().threshold > 3


def test_invalid_gold_is_rejected():
    potentials = chain.chain_potentials(np.zeros((1, 2, 3)), np.zeros((3, 3)))
    with pytest.raises(ShapeError):
        expectations(potentials, Beam(), gold=np.zeros((2, 2), int))
    with pytest.raises(ValueRangeError, match="gold"):
        expectations(potentials, Beam(), gold=np.full((1, 2), 3))
