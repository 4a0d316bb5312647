"""Queries of alignments, and the loss of connectionist temporal classification as its special case."""

import pytest
import torch

from tests.distributions.backends import computed_by
from trelliswork.distributions import Alignment
from trelliswork.errors import ShapeError, ValueRangeError


def random_alignment(seed=0, B=2, N=3, M=2, **options):
    generator = torch.Generator().manual_seed(seed)
    moves = torch.randn(B, N + 1, M + 1, 3, generator=generator, dtype=torch.float64)
    pairs = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    return moves, pairs, Alignment(moves, pairs, **options)


def test_all_queries_can_be_differentiated_twice():
    moves, pairs, _ = random_alignment()
    lengths = [[3, 2], [2, 1]]
    values = torch.tensor([[0, 1, 0, -1, -1], [1, 0, -1, -1, -1]])

    def queries(moves, pairs):
        d, other = (Alignment(scale * moves, pairs, lengths=lengths) for scale in (1, 2))
        return d.log_partition(), d.marginals(), d.entropy(), d.log_prob(values), d.kl(other)

    inputs = moves.requires_grad_(), pairs.requires_grad_()
    assert torch.autograd.gradcheck(queries, inputs)
    assert torch.autograd.gradgradcheck(lambda *x: Alignment(*x, lengths=lengths).log_partition(), inputs)


def test_the_best_alignment_of_two_words_is_needleman_and_wunsch():
    one, two = "kitten", "sitting"
    match = torch.tensor([[[0.0 if a == b else -1.0 for b in two] for a in one]])
    alignment = Alignment.from_gaps(match, gap=-1.0)
    assert score_of_best(alignment) == pytest.approx(-3, abs=1e-5)  # Levenshtein's distance
    assert alignment.mode[0, :7].tolist() == [0, 0, 0, 0, 0, 0, 2]


def score_of_best(alignment):
    return (alignment.argmax().log_prob + alignment.log_partition()).item()


def test_a_gap_costs_once_to_open():
    match = torch.zeros(1, 4, 1)
    scores = Alignment.from_gaps(match, gap=-1.0, opening=-10.0)
    assert score_of_best(scores) == pytest.approx(-13, abs=1e-5)
    assert scores.mode[0, :4].tolist() in ([0, 1, 1, 1], [1, 1, 1, 0])


def test_impossible_alignments_have_no_probability():
    _, _, d = random_alignment(B=1)
    for moves in ([0, 0, -1, -1, -1], [0, -1, 0, 1, -1], [-1] * 5, [1, 1, 1, 1, 1]):
        assert torch.isneginf(d.log_prob(torch.tensor([moves])))


def ctc_case(seed, B=4, T=12, C=6, U=4):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(B, T, C, generator=generator, dtype=torch.float64)
    targets = torch.randint(1, C, (B, U), generator=generator)
    targets[0] = targets[0, 0]  # repeated symbols need blanks between
    return logits, targets, torch.tensor([12, 9, 5, 1]), torch.tensor([4, 2, 3, 0])


@pytest.mark.parametrize("backend", ["kernel", "torch"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(5))
def test_ctc_is_the_loss_of_torch(seed, dtype, backend):
    logits, targets, frames, symbols = ctc_case(seed)
    loss = torch.nn.CTCLoss(blank=0, reduction="none")
    ours, theirs = (logits.to(dtype).requires_grad_() for _ in range(2))
    log_probs = ours.log_softmax(dim=2)
    alignment = Alignment.ctc(log_probs, targets, input_lengths=frames, target_lengths=symbols)
    found = -computed_by(backend, alignment).log_partition()
    want = loss(theirs.log_softmax(dim=2).transpose(0, 1), targets, frames, symbols)
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)
    weights = torch.arange(1.0, 5.0)
    (found * weights).sum().backward()
    (want * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-5)


def test_ctc_with_another_blank_and_full_lengths():
    logits, targets, _, _ = ctc_case(0)
    log_probs = logits.log_softmax(dim=2)
    found = -Alignment.ctc(log_probs, targets - 1, blank=5).log_partition()
    full = torch.full((4,), 12), torch.full((4,), 4)
    want = torch.nn.CTCLoss(blank=5, reduction="none")(log_probs.transpose(0, 1), targets - 1, *full)
    torch.testing.assert_close(found, want)


def test_a_target_that_does_not_fit_is_impossible():
    log_probs = torch.zeros(1, 2, 3).log_softmax(dim=2)
    assert torch.isneginf(Alignment.ctc(log_probs, [[1, 1]]).log_partition())
    assert torch.isfinite(Alignment.ctc(log_probs, [[1, 2]]).log_partition())


def test_known_matches():
    _, _, d = random_alignment(lengths=[[3, 2], [2, 2]])
    given = d.condition(known=torch.tensor([[-1, 1, -1], [0, -1, -1]]))
    p = given.marginals()[..., 0]
    torch.testing.assert_close(p[[0, 1], [2, 1], [2, 1]], torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(
        given.log_partition() - d.log_partition(), d.marginals()[[0, 1], [2, 1], [2, 1], 0].log()
    )


def test_errors_say_what_was_expected():
    moves, pairs, d = random_alignment()
    with pytest.raises(ShapeError, match="log_moves must have shape"):
        Alignment(moves[..., :2], pairs)
    with pytest.raises(ShapeError, match="lengths must have shape"):
        Alignment(moves, pairs, lengths=[1, 2])
    with pytest.raises(ValueRangeError, match="moves must be between -1 and 2"):
        d.log_prob(torch.full((2, 5), 3))
    with pytest.raises(ValueRangeError, match="targets must be between 0 and 4, got 7"):
        Alignment.ctc(torch.zeros(1, 3, 5), [[7]])
