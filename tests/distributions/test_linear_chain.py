"""LinearChain: every query against enumeration with both backends, gradients, laws, invalid input."""

import copy
import gc
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.distributions.backends import computed_by
from tests.inference.chain.cases import chains
from tests.oracle.chain import enumerate_batch
from trelliswork.distributions import LinearChain
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError

DEVICES = [("kernel", "cpu"), ("torch", "cpu")] + ([("torch", "cuda")] if torch.cuda.is_available() else [])
both_backends = pytest.mark.parametrize(("backend", "device"), DEVICES)


def build(case, backend, device="cpu", **options) -> LinearChain:
    unary, pairwise = torch.tensor(case.log_unary).to(device), torch.tensor(case.log_pairwise).to(device)
    return computed_by(backend, LinearChain(unary, pairwise, lengths=case.lengths, **options))


def random_chain(seed=0, shape=(2, 4, 3), pairwise_shape=None, backend="kernel", **options) -> LinearChain:
    generator = torch.Generator().manual_seed(seed)
    S = shape[2]
    unary = torch.randn(shape, dtype=torch.float64, generator=generator)
    pairwise = torch.randn(pairwise_shape or (S, S), dtype=torch.float64, generator=generator)
    return computed_by(backend, LinearChain(unary, pairwise, **options))


@both_backends
@given(data=st.data())
def test_expectations_match_enumeration(backend, device, data):
    case = data.draw(chains())
    S = case.log_unary.shape[2]
    one = build(case, backend, device)
    log_z, marginals, counts = (x.cpu().numpy() for x in one.expectations())
    edges = one.edge_marginals().cpu().numpy()
    for b, want in enumerate(enumerate_batch(*case)):
        n = case.lengths[b]
        assert_allclose(log_z[b], want.log_z, rtol=1e-10, atol=1e-10)
        assert_allclose(marginals[b, :n], want.marginals(S), atol=1e-8)
        assert_allclose(counts[b], want.edges(S).sum(axis=0), atol=1e-8)
        assert_allclose(edges[b, : n - 1], want.edges(S), atol=1e-8)
        assert_allclose(marginals[b, :n].sum(axis=1), float(want.log_z > -np.inf), atol=1e-8)


@both_backends
@given(data=st.data())
def test_structures_match_enumeration(backend, device, data):
    case = data.draw(chains(possible=True))
    one = build(case, backend, device)
    best, few, hits = one.argmax(), one.topk(4), one.mbr()
    log_prob = one.log_prob(best.value)
    for b, want in enumerate(enumerate_batch(*case)):
        n = case.lengths[b]
        order = np.sort(want.scores)[::-1]
        assert_allclose(best.log_prob[b].item(), order[0] - want.log_z, rtol=1e-12, atol=1e-9)
        assert_allclose(log_prob[b].item(), order[0] - want.log_z, rtol=1e-9, atol=1e-9)
        assert log_prob[b] <= 1e-9
        listed = few.log_prob[b][few.log_prob[b] > -torch.inf].tolist()
        assert len(listed) == min(4, (order > -np.inf).sum())
        assert_allclose(listed, order[: len(listed)] - want.log_z, rtol=1e-12, atol=1e-9)
        marginals = want.marginals(case.log_unary.shape[2])
        chosen = marginals[np.arange(n), hits.value[b, :n].cpu().numpy()]
        assert_allclose(chosen, marginals.max(axis=1), atol=1e-7)
        assert (hits.value[b, n:] == -1).all()
        assert (best.value[b, n:] == -1).all()


@both_backends
@given(data=st.data())
def test_entropy_matches_enumeration(backend, device, data):
    case = data.draw(chains(possible=True))
    entropy = build(case, backend, device).entropy()
    for b, want in enumerate(enumerate_batch(*case)):
        assert_allclose(entropy[b].item(), want.entropy(), atol=1e-6)  # precision left by scores of 1e4


@both_backends
@given(data=st.data())
def test_evidence_matches_renormalized_enumeration(backend, device, data):
    case = data.draw(chains(possible=True))
    rng = np.random.default_rng(0)
    B, T, S = case.log_unary.shape
    allowed = rng.random((B, T, S)) < 0.6
    labels = np.where(rng.random((B, T)) < 0.3, rng.integers(0, S, (B, T)), -1)
    given_evidence = build(case, backend, device).condition(allowed=torch.tensor(allowed), known=torch.tensor(labels))
    mask = allowed & ((labels[:, :, None] < 0) | (labels[:, :, None] == np.arange(S)))
    marginals = given_evidence.marginals().cpu().numpy()
    log_z = given_evidence.log_partition().tolist()
    for b, want in enumerate(enumerate_batch(*case)):
        n = case.lengths[b]
        consistent = mask[b, np.arange(n), want.labelings].all(axis=1)
        want.scores = np.where(consistent, want.scores, -np.inf)
        assert_allclose(log_z[b], want.log_z, rtol=1e-10, atol=1e-10)
        assert_allclose(marginals[b, :n], want.marginals(S), atol=1e-8)


@both_backends
def test_evidence_log_probability_is_the_divergence(backend, device):
    one = random_chain(backend=backend)
    given_evidence = one.condition(known=torch.tensor([[-1, 2, -1, -1], [0, -1, -1, 1]]))
    log_probability = given_evidence.log_partition() - one.log_partition()
    assert (log_probability < 0).all()
    assert_allclose(given_evidence.kl(one), -log_probability, rtol=1e-10)
    assert torch.isposinf(one.kl(given_evidence)).all()


@both_backends
@pytest.mark.parametrize(
    "layouts", [((3, 3), (3, 3)), ((2, 3, 3, 3), (3, 3)), ((3, 3), (1, 3, 3, 3)), ((2, 1, 3, 3), (3, 3))]
)
def test_kl_matches_enumeration(backend, device, layouts):
    p, q = (random_chain(seed, pairwise_shape=s, backend=backend) for seed, s in enumerate(layouts))
    lengths = np.array([4, 4])
    pairs = zip(
        enumerate_batch(p.log_unary.numpy(), p.log_pairwise.numpy(), lengths),
        enumerate_batch(q.log_unary.numpy(), q.log_pairwise.numpy(), lengths),
        strict=True,
    )
    want = [(a.probabilities * (np.log(a.probabilities) - np.log(b.probabilities))).sum() for a, b in pairs]
    assert_allclose(p.kl(q), want, rtol=1e-9)
    assert_allclose(p.kl(p), 0, atol=1e-12)


@both_backends
def test_samples_follow_the_marginals_and_are_reproducible(backend, device):
    from scipy.stats import chisquare

    one = random_chain(3, shape=(2, 5, 3), backend=backend, lengths=[5, 2])
    draws = one.sample(8000, generator=torch.Generator().manual_seed(7))
    assert torch.equal(draws, one.sample(8000, generator=torch.Generator().manual_seed(7)))
    assert not torch.equal(draws, one.sample(8000, generator=torch.Generator().manual_seed(8)))
    assert (draws[:, 1, 2:] == -1).all()
    pairs = one.edge_marginals()
    for b, n in enumerate([5, 2]):
        for t in range(n - 1):
            seen = np.bincount(draws[:, b, t] * 3 + draws[:, b, t + 1], minlength=9)
            assert chisquare(seen, 8000 * pairs[b, t].flatten().numpy()).pvalue > 1e-4


@both_backends
@pytest.mark.parametrize("layout", [(3, 3), (2, 3, 3, 3), (1, 3, 3, 3), (2, 1, 3, 3)])
def test_gradients(backend, device, layout):
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(2, 4, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    pairwise = torch.randn(layout, dtype=torch.float64, generator=generator, requires_grad=True)
    start = torch.randn(3, dtype=torch.float64, generator=generator, requires_grad=True)
    end = torch.randn(3, dtype=torch.float64, generator=generator, requires_grad=True)

    def query(name):
        def f(unary, pairwise, start, end):
            one = computed_by(backend, LinearChain(unary, pairwise, log_start=start, log_end=end, lengths=[4, 2]))
            return (
                one.log_prob(torch.tensor([[0, 1, 2, 0], [1, 1, 0, 0]])) if name == "log_prob" else getattr(one, name)()
            )

        return f

    inputs = (unary, pairwise, start, end)
    assert torch.autograd.gradcheck(query("log_partition"), inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(query("log_partition"), inputs, fast_mode=True)
    for name in ("log_prob", "entropy", "marginals", "transition_counts", "edge_marginals"):
        assert torch.autograd.gradcheck(query(name), inputs, fast_mode=True), name


@both_backends
def test_gradients_with_impossible_labels_and_sentences(backend, device):
    unary = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    unary[0, 1, 2] = -torch.inf
    unary[1, 2] = -torch.inf
    unary.requires_grad_()
    pairwise = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    one = computed_by(backend, LinearChain(unary, pairwise))
    one.log_partition()[0].backward()
    assert_allclose(unary.grad, torch.cat([one.marginals().detach()[:1], torch.zeros(1, 4, 3)]), atol=1e-12)
    assert unary.grad[0, 1, 2] == 0
    first = computed_by(backend, LinearChain(unary[:1], pairwise))
    (gradient,) = torch.autograd.grad(first.entropy().sum(), unary)
    assert torch.isfinite(gradient).all()
    assert gradient[0, 1, 2] == 0


@both_backends
@pytest.mark.parametrize("layout", [(3, 3), (2, 3, 3, 3)])
def test_gradients_ignore_the_padding(backend, device, layout):
    unary, pairwise = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(layout, dtype=torch.float64)
    unary[1, 2:] = torch.nan
    if len(layout) == 4:
        pairwise[1, 1:] = torch.nan
    unary, pairwise = unary.requires_grad_(), pairwise.requires_grad_()
    one = computed_by(backend, LinearChain(unary, pairwise, lengths=[4, 2]))
    for value in (one.log_partition(), one.entropy(), one.marginals()[:, :2, 0]):
        for gradient in torch.autograd.grad(value.sum(), (unary, pairwise), retain_graph=True):
            assert torch.isfinite(gradient).all()


@both_backends
def test_the_gradient_of_log_z_is_the_marginals(backend, device):
    one = random_chain(backend=backend)
    unary, pairwise = one.log_unary.requires_grad_(), one.log_pairwise.requires_grad_()
    computed_by(backend, LinearChain(unary, pairwise)).log_partition().sum().backward()
    assert_allclose(unary.grad, LinearChain(unary.detach(), pairwise.detach()).marginals(), atol=1e-12)
    want = LinearChain(unary.detach(), pairwise.detach()).transition_counts().sum(dim=0)
    assert_allclose(pairwise.grad, want, atol=1e-12)


def test_no_graph_is_kept_without_gradients():
    unary = torch.zeros(1, 3, 2, requires_grad=True)
    with torch.no_grad():
        one = LinearChain(unary, torch.zeros(2, 2))
        for value in (*one.expectations(), one.edge_marginals(), one.entropy(), one.log_prob(torch.zeros(1, 3).long())):
            assert not value.requires_grad
            assert value.grad_fn is None
    assert LinearChain(unary, torch.zeros(2, 2)).marginals().requires_grad


def test_memory_is_linear_in_the_labels():
    """Transition counts of a long batch: a (B, T, S, S) tensor would take 1.6 GB."""
    import tracemalloc

    unary, pairwise = torch.zeros(4, 4000, 160), torch.zeros(160, 160)
    one = LinearChain(unary, pairwise)
    gc.collect()
    tracemalloc.start()
    one.expectations()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 4, 6])
@pytest.mark.parametrize("view", ["contiguous", "transposed", "negative"])
def test_one_short_sentence_is_the_same_as_in_a_batch(dtype, length, view):
    """Whatever the layout of its tensors, and with nan in the padding."""
    unary, pairwise = torch.randn(1, 6, 5).to(dtype), torch.randn(5, 5).to(dtype)
    pairwise[1, 2] = -torch.inf
    unary[0, length:] = torch.nan  # never read
    given_unary = {
        "contiguous": unary,
        "transposed": unary.transpose(1, 2).contiguous().transpose(1, 2),
        "negative": torch._neg_view(-unary),
    }[view]
    one = LinearChain(given_unary, pairwise, lengths=[length])
    two = LinearChain(unary.repeat(2, 1, 1), pairwise, lengths=[length, length])
    for mine, theirs in zip([*one.expectations(), *one.argmax()], [*two.expectations(), *two.argmax()], strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs[:1], rtol=1e-5, atol=1e-6)


def test_copies_of_a_short_sentence():
    """Copies have tensors of their own."""
    one = random_chain(shape=(1, 6, 5))
    want = one.mode, one.expectations().marginals
    copies = [copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    one.log_unary.fill_(torch.nan)
    for other in copies:
        torch.testing.assert_close((other.mode, other.expectations().marginals), want, rtol=0, atol=0)


def test_one_short_sentence_without_a_labeling():
    one = LinearChain(torch.full((1, 3, 2), -torch.inf), torch.zeros(2, 2))
    assert one.expectations().log_z.item() == -torch.inf
    with pytest.raises(ImpossibleError, match="no labeling"):
        one.argmax()


@both_backends
def test_start_end_and_forbidden_transitions(backend, device):
    rng = np.random.default_rng(4)
    unary, pairwise, start, end = (rng.normal(size=s) for s in [(2, 4, 3), (3, 3), 3, 3])
    transitions = np.array([[True, True, False], [True, True, True], [False, True, True]])
    allowed = rng.random((2, 4, 3)) < 0.8
    lengths = np.array([4, 3])
    between = np.where(transitions, pairwise, -np.inf)
    one = computed_by(backend, LinearChain(unary, between, log_start=start, log_end=end, lengths=lengths))
    one = one.condition(allowed=allowed)
    effective = unary.copy()
    effective[:, 0] += start
    effective[[0, 1], lengths - 1] += end
    effective[~allowed] = -np.inf
    for b, want in enumerate(enumerate_batch(effective, between, lengths)):
        assert_allclose(one.log_partition()[b].item(), want.log_z, rtol=1e-12)
        assert_allclose(one.marginals()[b, : lengths[b]], want.marginals(3), atol=1e-12)


@both_backends
def test_a_single_position(backend, device):
    unary = torch.randn(2, 1, 3, dtype=torch.float64)
    for pairwise in (torch.zeros(3, 3, dtype=torch.float64), torch.zeros(2, 0, 3, 3, dtype=torch.float64)):
        one = computed_by(backend, LinearChain(unary, pairwise))
        assert_allclose(one.marginals()[:, 0], torch.softmax(unary[:, 0], dim=1))
        assert one.edge_marginals().shape == (2, 0, 3, 3)
        assert not one.transition_counts().any()
        assert torch.equal(one.mode, unary.argmax(dim=2))
        assert_allclose(one.entropy(), torch.distributions.Categorical(logits=unary[:, 0]).entropy())


@both_backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_dtype_of_the_input(backend, device, dtype):
    one = computed_by(backend, LinearChain(torch.randn(2, 3, 4, dtype=dtype), torch.randn(4, 4, dtype=dtype)))
    values = [*one.expectations(), one.edge_marginals(), one.argmax().log_prob, one.topk(2).log_prob]
    values += [one.entropy(), one.kl(one), one.mbr().log_prob, one.log_prob(one.mode)]
    assert {v.dtype for v in values} == {dtype}


def test_arrays_and_lists_are_converted():
    one = LinearChain([[[0.0, 1.0], [2.0, 3.0]]], np.zeros((2, 2)), lengths=[2])
    assert_allclose(one.log_partition().item(), np.log(np.exp([2, 3, 3, 4]).sum()), rtol=1e-6)


@both_backends
def test_impossible_sentences_raise_errors(backend, device):
    one = random_chain(backend=backend)
    allowed = torch.ones(2, 4, 3, dtype=torch.bool)
    allowed[1, 2] = False
    broken = one.condition(allowed=allowed)
    assert broken.log_partition()[1] == -torch.inf
    assert not broken.marginals()[1].any()
    assert_allclose(broken.marginals()[0].sum(dim=1), 1)
    queries = [broken.argmax, lambda: broken.topk(2), broken.sample, broken.entropy, broken.mbr]
    queries += [lambda: broken.kl(one), lambda: one.kl(broken), lambda: broken.log_prob(torch.zeros(2, 4).long())]
    for query in queries:
        with pytest.raises(ImpossibleError, match="sequence 1 has probability zero"):
            query()


@both_backends
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lengths": [4, 5]}, ValueRangeError, "between 1 and T=4, got 5 for sequence 1"),
        ({"lengths": torch.tensor([4.0, 4.0])}, ValueRangeError, "lengths must be integers"),
        ({"log_start": torch.zeros(4)}, ShapeError, r"log_start must have shape \(S,\), got \(4,\)"),
        ({"log_end": torch.full((3,), torch.nan)}, ValueRangeError, "log_end must hold finite scores"),
    ],
)
def test_invalid_options_raise_errors(backend, device, options, error, message):
    with pytest.raises(error, match=message):
        random_chain(backend=backend, **options)


@both_backends
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_plus_inf_raise_errors(backend, device, bad):
    unary = torch.zeros(2, 3, 4)
    unary[1, 2, 0] = bad
    with pytest.raises(ValueRangeError, match=r"log_unary must hold finite scores .* at index \(1, 2, 0\)"):
        computed_by(backend, LinearChain(unary, torch.zeros(4, 4)))
    computed_by(backend, LinearChain(unary, torch.zeros(4, 4), lengths=[3, 2]))  # allowed in the padding
    with pytest.raises(ValueRangeError, match="log_pairwise must hold finite scores"):
        computed_by(backend, LinearChain(torch.zeros(2, 3, 4), torch.full((4, 4), bad)))


@both_backends
def test_invalid_queries_raise_errors(backend, device):
    one = random_chain(backend=backend)
    with pytest.raises(ValueRangeError, match="k must be a positive whole number, got 0"):
        one.topk(0)
    with pytest.raises(ValueRangeError, match="n must be a positive whole number, got -1"):
        one.sample(-1)
    with pytest.raises(ValueRangeError, match=r"labels must be between 0 and 2, got 3 at \(0, 0\)"):
        one.log_prob(torch.full((2, 4), 3))
    with pytest.raises(ValueRangeError, match=r"known must be between -1 and 2, got -2 at \(0, 0\)"):
        one.condition(known=torch.full((2, 4), -2))
    with pytest.raises(ShapeError, match="allowed must have shape"):
        one.condition(allowed=torch.ones(2, 3, 3).bool())
    with pytest.raises(ValueRangeError, match="allowed must be boolean"):
        one.condition(allowed=torch.ones(2, 4, 3))
    with pytest.raises(ShapeError, match="labels must have shape"):
        one.log_prob(torch.zeros(2, 3).long())
    with pytest.raises(ValueRangeError, match="labels must be integers"):
        one.log_prob(torch.zeros(2, 4))
    with pytest.raises(ShapeError, match="the same shape and lengths"):
        one.kl(random_chain(shape=(2, 3, 3), backend=backend))


def test_invalid_types_raise_errors():
    with pytest.raises(ValueRangeError, match=r"log_unary must be float32 or float64, got torch\.bfloat16"):
        LinearChain(torch.zeros(1, 2, 3, dtype=torch.bfloat16), torch.zeros(3, 3))
    with pytest.raises(ShapeError, match=r"log_unary must have shape \(B, T, S\)"):
        LinearChain(torch.zeros(0, 2, 3), torch.zeros(3, 3))
