"""What people pass to distributions: other types, strange arrays, numbers without measure."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from tests.distributions.backends import computed_by
from tests.models.fitted import fitted
from trelliswork import FactorGraph, GrammarTree, LinearChain, ProjectiveTree, SpanningTree, SpanTree
from trelliswork.errors import LimitError, TrellisworkError
from trelliswork.inference import chain


@pytest.mark.parametrize(
    "scores",
    [None, "scores", [["a"]], [[1.0, 2.0], [3.0]], object(), {"a": 1}, csr_matrix(np.eye(3)), torch.eye(3).to_sparse()],
    ids=lambda scores: type(scores).__name__,
)
def test_distributions_explain_what_they_need(scores):
    good = np.zeros((1, 3, 3))
    for make in (
        lambda: LinearChain(scores, np.zeros((3, 3))),
        lambda: LinearChain(good, scores),
        lambda: LinearChain(good, np.zeros((3, 3)), log_start=[[1.0], [1.0, 2.0]] if scores is None else scores),
        lambda: ProjectiveTree(scores),
        lambda: SpanTree(scores),
        lambda: GrammarTree(scores, np.zeros((1, 2, 2)), np.zeros((1, 3, 1))),
        lambda: LinearChain(good, np.zeros((3, 3)), lengths=[[1, 2], [3]] if scores is None else scores),
        lambda: LinearChain(good, np.zeros((3, 3))).log_prob(scores),
        lambda: FactorGraph([2, 2], [((0, 1), scores)]),
        lambda: FactorGraph([2, 2], [(scores, np.zeros((2, 2)))]),
        lambda: FactorGraph(scores),
        lambda: FactorGraph([2, 2]).log_prob(scores),
    ):
        with pytest.raises(TrellisworkError) as caught:
            make()
        assert len(str(caught.value)) < 500


def test_arrays_with_negative_strides_are_accepted():
    scores = np.random.default_rng(0).normal(size=(1, 4, 3))
    backwards = scores[:, ::-1]
    for make in (lambda s: LinearChain(s, np.zeros((3, 3))), lambda s: LinearChain(s, scores[0, 3:0:-1])):
        assert torch.equal(make(backwards).marginals(), make(backwards.copy()).marginals())


def test_topk_needs_memory_for_what_exists():
    potentials = chain.chain_potentials(np.zeros((1, 2, 2)), np.zeros((2, 2)))
    labels, _ = chain.topk(potentials, 10**12)
    assert labels.shape == (1, 4, 2)
    assert len({tuple(row) for row in labels[0].tolist()}) == 4
    best = LinearChain(torch.zeros(1, 2, 2), torch.zeros(2, 2)).topk(6)
    assert best.value.shape == (1, 6, 2)
    assert best.value[0, 4:].tolist() == [[-1, -1]] * 2
    assert torch.isneginf(best.log_prob[0, 4:]).all()
    for make, size in ((ProjectiveTree, 3), (SpanningTree, 3), (SpanTree, 3)):
        for backend in ("kernel", "torch"):
            found = computed_by(backend, make(torch.zeros(1, size, size))).topk(40)
            possible = found.log_prob[0] > -torch.inf
            assert 1 < possible.sum() < 40
            assert (found.value[0][~possible] == -1).all()
    model = fitted("HMM")
    assert len(model.predict_topk([["a"]], 10**9)[0]) <= len(model.labels_)
    with pytest.raises(LimitError, match="best structures would need"):
        LinearChain(torch.zeros(1, 50, 20), torch.zeros(20, 20)).topk(10**9)
