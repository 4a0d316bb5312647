r"""Inference within beams to be read: one sequence, NumPy, in log space.

With :math:`u_t(j)` = ``log_unary[t, j]``, :math:`w_t(i, j)` = ``log_pairwise[t, i, j]`` from t to t+1, and the beam
:math:`I_t` of position t:

.. math::
    b_1(j) &= u_1(j), \qquad b_{t+1}(j) = u_{t+1}(j) + \textstyle\bigoplus_{i \in I_t} b_t(i) + w_t(i, j) & (1)\\
    \min_q \mathrm{KL}(q \| p) &= -\log m, \qquad m = \textstyle\sum_{i \in I} p_i & (2)\\
    I_t &= \textrm{the fewest states with } -\log m \le \epsilon \textrm{ for } p \propto \exp(b_t) & (3)\\
    \log Z_I &= \log \textstyle\sum_{y \in I_1 \times \dots \times I_T} \exp(\mathrm{score}(y)) & (4)

Paper 2, eqs. 6-8 (2, 3) and 9-10 (1). Inference inside the beams is that of a chain whose other states are impossible,
so (4) and its gradient come from ``inference.chain.reference``. With ``add=np.max`` the masses of (1) are the scores of
the best prefixes, from which Viterbi chooses its beams (section 4.1). The kernels are tested against this.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.inference.chain import reference
from trelliswork.inference.chain.beam import AUTO_EPS, Beam
from trelliswork.inference.chain.reference import Array, Sum

Mask = NDArray[np.bool_]


def keep(masses: Array, beam: Beam) -> Mask:
    """Return the states (S,) that a beam keeps by their masses (S,), by a full sort; impossible states are left out."""
    order = np.argsort(-masses, kind="stable")
    n = beam.size
    if beam.by == "kl":
        eps = AUTO_EPS if beam.eps == "auto" else beam.eps
        n = int(np.searchsorted(np.cumsum(masses[order]), np.exp(-eps) * masses.sum())) + 1  # (2), (3)
    elif beam.by == "threshold":
        n = int((masses >= masses.max() * np.exp(-beam.threshold)).sum())
    if beam.by != "size":
        n = max(beam.min_size, n)
    chosen = np.zeros(len(masses), bool)
    chosen[order[:n]] = True
    return chosen & (masses > 0)


def choose(log_unary: Array, log_pairwise: Array, beam: Beam, add: Sum = logsumexp) -> tuple[Mask, Array]:
    """Return the beams (T, S) of one sequence by a forward pass, and the share (T,) of the mass that each keeps."""
    log_belief, inside, kept = log_unary.copy(), np.zeros(log_unary.shape, bool), np.empty(len(log_unary))
    for t in range(len(log_unary)):
        if t > 0:
            before = np.where(inside[t - 1], log_belief[t - 1], -np.inf)
            log_belief[t] += add(before[:, None] + log_pairwise[t - 1], axis=0)  # (1)
        masses = np.exp(log_belief[t] - logsumexp(log_belief[t]))
        inside[t] = keep(masses, beam)
        kept[t] = masses[inside[t]].sum()
    return inside, kept


def expectations(log_unary: Array, log_pairwise: Array, inside: Mask) -> tuple[Array, Array, Array]:
    """Return ``(log_z, marginals, edges)`` of one sequence within given beams (T, S): equation (4) and its gradient."""
    return reference.expectations(np.where(inside, log_unary, -np.inf), log_pairwise)
