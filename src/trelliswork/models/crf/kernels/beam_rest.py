"""States outside held beams as one more state per token: its scores, by an exact pass at the weights w_0.

With alpha, beta and the scales c of that pass (``inference.chain.kernels.forward_backward``), P(j) = alpha_t(j)
beta_t(j), I_t the set of token t, R the states outside, e the scores of states and A the transitions, for i in I_{t-1}
and j in I_t:

    into(i)    = sum over R_t of A(i, r) e(r) beta(r) / c_t
    out_of(j)  = sum over R_{t-1} of alpha(r) A(r, j) / P(R_{t-1})
    stay       = P(R_{t-1}, R_t) / P(R_{t-1})

A chain of the sets and these has the log Z, the marginals and the pairs of the exact one at w_0, since beta of the rest
is 1 by choice and its alpha then P(R). Sums over R are the sums over all states, known from the pass, minus those
over I. Time O(sum of |I_{t-1}| |I_t|).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel

LEAST = 1e-6  # probability of a rest below which differences of float32 are noise


class Pass(NamedTuple):
    """An exact pass over a batch of sentences."""

    safe: Any  # (B,)
    weight: Any  # (B,) factor of the marginals
    emission: Any  # (B, T, Sp)
    alpha: Any  # (B, T, Sp)
    scale: Any  # (B, T)
    log_top: Any  # (B, T) taken out of the emissions
    marginals: Any  # (B, T, S)


@helper
def _rest_mass(n, states, here, marginals, m, weight):
    """Return the probability outside a set, whose token has its weighted marginals from flat index m on."""
    inside = 0.0
    for k in range(n):
        inside += np.float64(marginals[m + states[here + k]]) / weight
    return max(0.0, 1.0 - inside)


@kernel
def rest(start, stop, offsets, sets, exact, matrix, shift, out):
    """Fill ``out`` (a ``Rest``) for the sentences ``start`` to ``stop``; those that are not safe get none.

    Sentence s has tokens offsets[s] to offsets[s + 1], and row s of ``exact`` (a ``Pass``). ``shift`` was taken out of
    the logarithms of the transitions ``matrix``.
    """
    set_ptr, states = sets
    safe, weight, emission, alpha, scale, log_top, marginals = exact
    into, out_of, stay, log_rest = out
    S, Sp, T_most = marginals.shape[2], alpha.shape[2], alpha.shape[1]
    flat_alpha, flat_emission, flat = alpha.reshape(-1), emission.reshape(-1), marginals.reshape(-1)
    unit = math.exp(shift)
    for s in range(start, stop):
        first, T = offsets[s], offsets[s + 1] - offsets[s]
        before = 0.0  # probability of the rest of the previous token
        for t in range(T):
            i = first + t
            here, n = set_ptr[i], set_ptr[i + 1] - set_ptr[i]
            a, m = (s * T_most + t) * Sp, (s * T_most + t) * S
            outside = 0.0
            if safe[s]:
                outside = _rest_mass(n, states, here, flat, m, weight[s])
            if outside < LEAST:
                outside = 0.0
            c = np.float64(scale[s, t])
            log_rest[i] = -np.inf
            if safe[s]:
                log_rest[i] = math.log(c) + log_top[s, t] + (shift if t else 0.0)
            if t == 0:
                log_rest[i] += math.log(outside) if outside > 0 else -np.inf
                before = outside
                continue
            earlier = set_ptr[i - 1]
            a_before, m_before = a - Sp, m - S
            for k in range(earlier, here):
                into[k] = 0
                p = np.float64(flat_alpha[a_before + states[k]])
                if outside == 0 or not p > 0:
                    continue
                beta = flat[m_before + states[k]] / weight[s] / p
                for j in range(here, here + n):
                    q = np.float64(flat_alpha[a + states[j]])
                    if q > 0:
                        e = matrix[states[k], states[j]] * flat_emission[a + states[j]]
                        beta -= np.float64(e) / c * (flat[m + states[j]] / weight[s] / q)
                into[k] = max(0.0, beta)
            stayed = before
            for j in range(here, here + n):
                out_of[j] = 0
                e = np.float64(flat_emission[a + states[j]])
                q = np.float64(flat_alpha[a + states[j]])
                if before == 0 or not e > 0 or not q > 0:
                    continue
                entered = q * c / e
                for k in range(earlier, here):
                    entered -= np.float64(flat_alpha[a_before + states[k]]) * matrix[states[k], states[j]]
                entered = max(0.0, entered)
                out_of[j] = entered / before * unit
                stayed -= entered * e / c * (flat[m + states[j]] / weight[s] / q)
            stay[i] = max(0.0, stayed) / before if before > 0 and outside > 0 else 0.0
            before = outside
