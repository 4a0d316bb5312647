"""Factors from outside this package: messages in probability space, and gradients by their parameters."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from trelliswork import FactorGraph
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph.potentials import BestPropagation, Propagation


class Equal:
    """log f(x) = scores[s] if all variables are in state s, else -inf; counts what is asked of it."""

    def __init__(self, variables, scores, weigh=True):
        self.variables, self.parameters = np.array(variables), (scores,)
        self.scores = np.atleast_2d(scores.detach().numpy())  # (1 or B, S)
        self.n_graphs, S = self.scores.shape
        self.n_states = np.full(len(variables), S)
        self.n_weighed = self.n_propagated = 0
        if weigh:
            self.weigh = self.in_probability_space

    def rows(self, messages):
        return messages.reshape(len(messages), len(self.variables), -1)

    def others(self, messages):
        rows = self.rows(messages)
        return np.stack([np.delete(rows, i, axis=1).sum(axis=1) for i in range(rows.shape[1])], axis=1)

    def in_probability_space(self, messages):
        self.n_weighed += 1
        with np.errstate(divide="ignore"):
            out = np.exp(self.scores[:, None] + self.others(np.log(messages)))
        return out.reshape(messages.shape)

    def log_value(self, log_messages):
        return (self.parameters[0] + self.rows(log_messages).sum(dim=1)).logsumexp(dim=1)

    def propagate(self, log_messages):
        self.n_propagated += 1
        total = self.scores + self.rows(log_messages).sum(axis=1)
        value = np.logaddexp.reduce(total, axis=1)
        beliefs = np.tile(total - np.where(value > -np.inf, value, 0)[:, None], (1, len(self.variables)))
        return Propagation(value, beliefs, (self.scores[:, None] + self.others(log_messages)).reshape(beliefs.shape))

    def best(self, log_messages):
        total = self.scores + self.rows(log_messages).sum(axis=1)
        states = np.repeat(total.argmax(axis=1)[:, None], len(self.variables), axis=1)
        out = (self.scores[:, None] + self.others(log_messages)).reshape(log_messages.shape)
        return BestPropagation(total.max(axis=1), out, states)

    def score(self, assignment):
        same = (assignment == assignment[:, :1]).all(axis=1)
        rows = np.arange(len(assignment)) if self.n_graphs > 1 else 0
        return np.where(same, self.scores[rows, assignment[:, 0]], -np.inf)

    def table(self, max_size=1_000_000):
        full = np.full((self.n_graphs, *self.n_states), -np.inf)
        full[(slice(None), *(np.arange(self.n_states[0]) for _ in self.variables))] = self.scores
        return full


def problem(seed=0, n_graphs=1, weigh=True, scale=1.0):
    """Three equal variables, a fourth tied to one of them; unary scores of two graphs."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.normal(size=(n_graphs, 3) if n_graphs > 1 else 3)).requires_grad_()
    unary, pair = torch.from_numpy(scale * rng.normal(size=(2, 12))), rng.normal(size=(3, 3))

    def graph(given=scores, **options):
        factor = Equal([0, 1, 2], given, weigh)
        return FactorGraph([3] * 4, [((2, 3), pair)], structured=[factor], log_unary=unary, **options), factor

    return scores, graph, pair, unary


@pytest.mark.parametrize("n_graphs", [1, 2])
def test_the_gradient_by_parameters_equals_differences_and_that_of_a_table(n_graphs):
    scores, graph, pair, unary = problem(n_graphs=n_graphs)
    states = torch.tensor([[1, 1, 1, 2], [0, 0, 0, 1]])
    (found,) = torch.autograd.grad(graph()[0].log_prob(states).sum(), scores)

    state = torch.arange(3)
    rows = scores if n_graphs > 1 else scores[None]
    full = torch.full((n_graphs, 3, 3, 3), -torch.inf, dtype=torch.float64)
    table = full.index_put((torch.arange(n_graphs)[:, None], state, state, state), rows)
    dense = FactorGraph(
        [3] * 4, [((0, 1, 2), table if n_graphs > 1 else table[0]), ((2, 3), pair)], log_unary=unary, engine="exact"
    )
    (want,) = torch.autograd.grad(dense.log_prob(states).sum(), scores)
    assert_allclose(found, want, rtol=1e-10)
    for at in np.ndindex(scores.shape):
        moved = [scores.detach().clone(), scores.detach().clone()]
        moved[0][at] += 1e-6
        moved[1][at] -= 1e-6
        up, down = (graph(given)[0].log_prob(states).sum().item() for given in moved)
        assert_allclose(found[at].item(), (up - down) / 2e-6, atol=1e-8)


def test_impossible_assignments_and_graphs_have_no_gradient():
    scores, graph, *_ = problem()
    value = graph()[0].score(torch.tensor([[0, 1, 0, 0], [2, 2, 2, 0]]))
    assert value[0] == -torch.inf
    (slope,) = torch.autograd.grad(value[1], scores)
    assert_allclose(slope, [0, 0, 1])
    impossible = graph()[0].condition(known=torch.tensor([[0, 1, -1, -1], [-1, -1, -1, -1]]))
    (slope,) = torch.autograd.grad(impossible.log_partition()[1], scores)
    assert torch.isfinite(slope).all()


def test_parameters_need_belief_propagation():
    _, graph, *_ = problem()
    assert graph(engine="exact")[0].infer().kind == "exact"
    with pytest.raises(ValueRangeError, match="gradients by the parameters of structured factors need engine='bp'"):
        graph(engine="exact")[0].log_partition()


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_messages_in_probability_space_equal_those_in_log_space(scale):
    _, graph, *_ = problem(scale=scale)
    fast, factor = graph()
    slow, other = problem(weigh=False, scale=scale)[1]()
    assert_allclose(fast.log_partition().detach(), slow.log_partition().detach(), rtol=1e-12)
    assert_allclose(fast.marginals(), slow.marginals(), atol=1e-12)
    assert factor.n_weighed > 0
    assert other.n_weighed == 0
    assert (factor.n_propagated < other.n_propagated) == (scale == 1.0)  # underflow: log space


def test_wrong_answers_are_errors():
    _, graph, *_ = problem()
    wrong, factor = graph()
    factor.weigh = lambda messages: messages[:, 1:]
    with pytest.raises(ShapeError, match=r"Equal: expected numbers of shape \(2, 9\) as the messages of weigh"):
        wrong.infer()
    wrong, factor = graph()
    factor.log_value = lambda messages: factor.parameters[0]
    with pytest.raises(ShapeError, match=r"Equal: expected numbers of shape \(2,\) as the value of log_value"):
        wrong.log_partition()
