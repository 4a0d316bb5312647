r"""The likelihood bound of a Markov random field over text, from moments alone.

A cover of the field by single words and by the chains of each distance, with weights rho (``reference`` (4) in
``inference.lifted``), is trained in a form in which no bound has to be tightened. Write
:math:`\theta^l = \rho_l \vartheta^l`, choose biases :math:`b_l` freely and let the unaries of the chains be
:math:`a_l = b_l - \log Z_l` with

.. math:: Z_l(x) = \sum_y \exp(\vartheta^l(x, y) + b_l(y)).

Then :math:`T_l Z_l = Z_l`: every Perron root is 1, the bound of A / N is 0, and the bound of the log-likelihood per
position

.. math:: \rho_0 \langle\hat\mu_0, a_0\rangle + \sum_l \rho_l \Big(\langle\hat\mu_l, \vartheta^l\rangle
    + \langle\hat\mu_0, b_l - \log Z_l\rangle\Big), \qquad \theta^0 = \rho_0 a_0 + \sum_l \rho_l a_l,           (1)

is concave in :math:`(\vartheta, b)`: a weighted sum of the log-likelihoods of chains :math:`p_l(y \mid x)`, one per
distance. The best :math:`a_0` is the log frequency of words. Any unary of the field can be written in this form; the
optimum is the joint optimum in (theta, delta) of the star cover if all weights are 1 / (K + 1), and of the chain cover
if the weights of the distances sum to 1. For K = 1 it is the exact likelihood. The cost of an evaluation depends on
the vocabulary and on the number of distinct pairs, not on the length of the text; a group of processes shares the rows
of the tables.

**Without a unary** :math:`\theta^0 = 0` couples the
parts: the unary of one of them is determined by the others, and its share of the bound is no longer 0. This part is the
single words if they have a weight, and else the chain of distance 1:

.. math:: a_0 = -\sum_{l \ge 1} \rho_l (b_l - \log Z_l) / \rho_0, \quad \frac{A}{N} \le \rho_0 \log \sum_x e^{a_0(x)};
    \qquad a_1 = -\sum_{l \ge 2} \rho_l (b_l - \log Z_l) / \rho_1, \quad
    \frac{A}{N} \le \rho_1 \log \lambda(T_1).                                                                 (2)

The first is the star's own bound, with :math:`\delta^l = b_l`, if all weights are 1 / (K + 1). Both are convex in
:math:`(\vartheta, b)`: a is, and so is a log-sum-exp or Perron root of convex functions. By the envelope theorem the
gradient is that of (1) with the margin :math:`\pi` of that part (a softmax, or the product of both Perron vectors)
instead of the word frequencies. An evaluation costs one more pass over the tables, and power iteration.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.inference.lifted.chain_cover import Perron, perron
from trelliswork.inference.lifted.exponentials import ExpTable
from trelliswork.learning import whole
from trelliswork.learning.evaluation import SharedEvaluation
from trelliswork.models.mrf.shapes import Frequencies, Shape, log_frequencies

Array = NDArray[np.float64]
LEAST_REST = 1e-9  # a smaller remainder of the weights is rounding


class MomentObjective:
    """Objective of L-BFGS: minus the bound (1) per position, plus an L2 penalty, in scaled parameters.

    ``weights`` (K,) are rho of the distances, whose remainder to 1 is the weight of single words. The penalty is
    l2 * |parameters|^2 for the text as a whole. After an evaluation at ``unaries_at`` (P,), ``unaries`` (K + 1, C) is
    a at that point, single words first, such that the bound of A / N is 0; part of the cover.
    """

    def __init__(self, shape: Shape, frequencies: Frequencies, weights: Array, *, l2: float = 0.0) -> None:
        self.shape, self.frequencies, self.weights = shape, frequencies, np.asarray(weights, np.float64)
        self.l2 = 2 * l2 / frequencies.n_positions  # times half of the squared norm
        self.scale = shape.scale(frequencies, max(self.l2, 0.5 / frequencies.n_positions))
        rest = 1.0 - float(self.weights.sum())
        self.rest = rest if rest > LEAST_REST else 0.0  # the weight of single words
        self.rho = np.concatenate([[self.rest], self.weights])
        self.log_unary = log_frequencies(frequencies.counts)
        self.unaries: Array | None = None
        self.unaries_at: Array | None = None

    def __call__(self, scaled: Array) -> SharedEvaluation:
        """Return value and gradient; in a group of processes, all of which have the same moments, they share the work.

        Each rank computes the part of the gradient that comes from its rows of the tables.
        """
        parameters = scaled / self.scale
        value, gradient, self.unaries = self._evaluate(parameters)
        self.unaries_at = scaled
        if not whole.is_first():  # the value is the same everywhere
            return SharedEvaluation(0.0, -gradient / self.scale, scaled)
        if self.l2:
            penalty, slope = self.shape.norm(parameters)
            value -= self.l2 * penalty
            gradient -= self.l2 * slope
        return SharedEvaluation(-value, -gradient / self.scale, scaled)

    def bound(self, parameters: Array, unaries: Array, frequencies: Frequencies) -> float:
        """Return (1) for another text at the unaries of these parameters, without inference."""
        scores = self.shape.scores(parameters, frequencies)
        return float(self.weights @ scores + frequencies.unary @ (self.rho @ unaries))

    def state(self) -> dict[str, Array]:
        """Return what later evaluations depend on besides the parameters, for a checkpoint."""
        return {}

    def restore(self, state: dict[str, Array]) -> None:
        """Continue from ``state``'s result."""

    def _evaluate(self, parameters: Array) -> tuple[float, Array, Array]:
        """Return the bound, this rank's part of its gradient, and the unaries."""
        scores, gradient, log_norms = self.shape.evaluate(parameters, self.frequencies, self.weights)
        unaries = np.vstack([self.log_unary[None], self.shape.biases(parameters) - log_norms])
        return float(self.weights @ scores + self.frequencies.unary @ (self.rho @ unaries)), gradient, unaries


class NoUnaryObjective(MomentObjective):
    r"""Objective of a field without a unary: the bound (2).

    The weighted sum of ``unaries`` is minus the bound of A / N, the same for every word. Costs one more pass over the
    tables than with a unary; if the distances have all of the weight, also the exponentials of the first table and
    power iterations, which start from the vectors of the last evaluation.
    """

    _root: Perron | None = None

    def state(self) -> dict[str, Array]:
        """Return the vectors from which power iteration starts."""
        return {} if self._root is None else {"right": self._root.log_right, "left": self._root.log_left}

    def restore(self, state: dict[str, Array]) -> None:
        """Continue from ``state``'s result."""
        if state:
            self._root = Perron(np.inf, np.inf, state["right"], state["left"], np.inf, False)

    def _evaluate(self, parameters: Array) -> tuple[float, Array, Array]:
        biases = self.shape.biases(parameters)
        first = 0 if self.rest else 1  # the first distance with a free bias
        chains = np.empty((len(biases), biases.shape[1]))  # b - log Z
        for k in range(first, len(biases)):
            chains[k] = biases[k] - self.shape.log_norms(parameters, k)
        taken = self.weights[first:] @ chains[first:]
        if self.rest:
            left = -taken / self.rest
            log_sum = float(logsumexp(left))
            bound, margin = self.rest * log_sum, np.exp(left - log_sum)
            unaries = np.vstack([left - log_sum, chains])
        else:
            chains[0] = -taken / self.weights[0]
            root = perron(ExpTable(self.shape.table(parameters, 0), group=whole.processes()), chains[0], self._root)
            self._root = root
            bound, margin = float(self.weights[0]) * root.log_root, np.exp(root.log_margin)
            biases = np.vstack([chains[0] + root.log_right, biases[1:]])  # the bias of p(y | x) in this chain
            chains[0] -= root.log_above  # a bound of other texts whatever the vectors
            unaries = np.vstack([np.zeros_like(margin), chains])
        margin /= margin.sum()
        scores, gradient, _ = self.shape.evaluate(parameters, self.frequencies, self.weights, (margin, biases))
        if not self.rest:
            self.shape.biases(gradient)[0] = 0.0  # not a parameter: it is the Perron vector
        return float(self.weights @ scores) - bound, gradient, unaries
