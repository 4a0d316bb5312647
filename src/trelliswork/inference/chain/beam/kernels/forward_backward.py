"""Compiled forward-backward with beams, in probability space.

Pal, Sutton and McCallum (2006), section 3. With e and P scaled as in ``inference.chain.kernels.forward_backward``, and
I_t the beam at position t:

    belief_t = (sum over i in I_{t-1} of alpha_{t-1}(i) P(i, .)) e_t      not compressed        (1)
    I_t = the largest of belief_t, by a rule; alpha_t = belief_t on I_t, normalized (c_t)       (2)
    beta_{t-1}(i) = sum over j in I_t of P(i, j) e_t(j) beta_t(j) / c_t    for i in I_{t-1}     (3)

The alphas of (2) are those of the chain restricted to the beams, so (3) completes exact forward-backward inside them:
log Z and its gradient belong to the same sets. *Refining* chooses the beams again from the end, by belief_t times a
beta_t of all states, and repeats the forward pass inside them.

The beam of position t is ``states[ptr[t]:ptr[t+1]]``. Transitions are a record whose class has the helpers below;
``dense`` and ``sparse`` have the two classes. Their fields are also ``log_shift``, taken out of the logarithm of each
transition, and ``log_ends``, out of those of the first and the last state together.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, method
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import get, lanes, put
from trelliswork.inference.chain.beam.kernels.records import Sequence, copy_beams, reverse_sets
from trelliswork.inference.chain.beam.kernels.select import Selection, make_selection, select

n_states = method("n_states")  # (steps, log_unary): S
push = method("push")  # (steps, sequence, t, to, s): fill belief[to:] of position t; return number and sum of values
state_at = method("state_at")  # (steps, to, k, s): the state of value k of that belief
emitted = method("emitted")  # (steps, T, t, j, s): e_t(j), with the factor of the end
inside = method("inside")  # (steps, sequence, t, s): fill alpha of the beam of position t, not normalized
pull = method("pull")  # (steps, sequence, t, weight, final, counts, s): fill beta of I_{t-1}, add counts if final
pull_all = method("pull_all")  # (steps, sequence, t, to, n, m, s): fill n numbers of beta; return the largest


class BeamSpace(NamedTuple):
    """Working memory for one sequence at a time; Sp is S rounded up to whole vectors."""

    emission: np.ndarray  # (T, Lp) e_t by label
    begin: np.ndarray  # (T + 1,) first value of each position in ``belief``
    n_reached: np.ndarray  # (T,) number of values
    belief: np.ndarray  # (T Sp,) when refining, else (Sp,)
    reached: np.ndarray  # the states of the values, if these are sparse, else (0,)
    ptr: np.ndarray  # (T + 1,)
    states: np.ndarray  # (T S,)
    alpha: np.ndarray  # (T S,) then the marginals
    scale: np.ndarray  # (T,) c_t
    shift: np.ndarray  # (T,) taken out of the transitions into t
    kept: np.ndarray  # (T,) share of the mass that was kept
    tops: np.ndarray  # (T,) taken out of the scores of t
    sums: np.ndarray  # (2,) log Z so far, and the product of the scales that it lacks
    selection: Selection
    beta: np.ndarray  # (Sp,)
    ahead: np.ndarray  # (Sp,)
    dense: np.ndarray  # (Sp,) numbers by state
    row: np.ndarray  # (Sp,)
    rows: np.ndarray  # (S, Sp) exponentiated rows of logarithms, else (0, Sp)
    coefficient: np.ndarray  # (S,)
    offset: np.ndarray  # (S,)
    mark: np.ndarray  # (S,) value of the clock when the state was last reached
    clock: np.ndarray  # (1,) counts positions, over all sequences
    picked: np.ndarray  # (S,) when refining, else (0,): chosen states of a position
    spare: np.ndarray  # (T S,) when refining, else (0,)


@helper(allocates=True)
def make_space(T, S, L, refining, rows, listed, like):
    """Allocate a ``BeamSpace`` in the precision of the array ``like``, perhaps with ``rows`` and ``listed`` states."""
    W, dtype = lanes(like), like.dtype
    Sp, Lp, n_lists = -(-S // W) * W, -(-L // W) * W, T if refining else 1
    return BeamSpace(
        np.empty((T, Lp), dtype), np.zeros(T + 1, np.int64), np.zeros(T, np.int64), np.zeros(n_lists * Sp, dtype),
        np.empty(n_lists * Sp if listed else 0, np.int32),
        np.zeros(T + 1, np.int64), np.empty(T * S, np.int32), np.empty(T * S, dtype),
        np.empty(T, dtype), np.zeros(T), np.zeros(T), np.zeros(T), np.zeros(2), make_selection(S, Sp, like),
        np.zeros(Sp, dtype), np.zeros(Sp, dtype), np.zeros(Sp, dtype), np.zeros(Sp, dtype),
        np.empty((S if rows else 0, Sp), dtype), np.empty(S, dtype), np.empty(S, np.int64),
        np.zeros(S if listed else 0, np.int64), np.zeros(1, np.int64),
        np.empty(S if refining else 0, np.int32), np.empty(T * S if refining else 0, np.int32),
    )  # fmt: skip


@helper
def _whole(n, like):
    """Return n rounded up to whole vectors."""
    W = lanes(like)
    return -(-n // W) * W


@helper
def _place(steps, to, n, wanted, s):
    """Return the number of the value of a state, -1 if it has none."""
    if s.reached.size == 0:
        return wanted
    for k in range(n if wanted >= 0 else 0):
        if state_at(steps, to, k, s) == wanted:
            return k
    return -1


@helper
def start_forward(T, steps, s):
    """Prepare a forward pass over T positions."""
    s.ptr[0], s.begin[0], s.sums[0], s.sums[1] = 0, 0, (T - 1) * steps.log_shift + steps.log_ends, 1.0


@helper
def fill_emission(sequence, t, s):
    """Fill e_t by label, and the maximum taken out of it."""
    Lp = s.emission.shape[1]
    at = sequence.at + t * sequence.stride
    s.tops[t] = exp_row(sequence.log_unary, at, sequence.n_labels, s.emission, t * Lp, Lp)


@helper
def forward(start, stop, sequence, steps, gold, rule, s):
    """Choose the beams of positions ``start`` to ``stop`` and fill their alpha; return False if every path is lost.

    ``gold[sequence.first + t]`` is always in the beam of position t, unless ``gold`` is empty.
    """
    belief, ptr, states, alpha, chosen, sums = s.belief, s.ptr, s.states, s.alpha, s.selection.chosen, s.sums
    refining = s.spare.size > 0
    for t in range(start, stop):
        fill_emission(sequence, t, s)
        sums[0] += s.tops[t]
        to = s.begin[t]
        n, mass = push(steps, sequence, t, to, s)
        if n == 0:
            return False
        width = _whole(n, belief)
        s.n_reached[t], s.begin[t + 1] = n, to + width if refining else 0
        wanted = gold[sequence.first + t] if gold.size else -1
        size = select(belief, to, n, width, mass, rule, _place(steps, to, n, wanted, s), s.selection)
        first, c = ptr[t], 0.0
        for a in range(size):
            k = get(chosen, a)
            v = get(belief, to + k)
            put(states, first + a, state_at(steps, to, k, s))
            put(alpha, first + a, v)
            c += v
        if not c > 0:
            return False
        inverse = alpha.dtype.type(1 / c)
        for a in range(size):
            put(alpha, first + a, get(alpha, first + a) * inverse)
        ptr[t + 1] = first + size
        s.scale[t] = c
        s.kept[t] = min(1.0, c / mass)
        sums[1] *= c
        if not 1e-200 < sums[1] < 1e200:  # a logarithm now and then, not at every position
            sums[0] += math.log(sums[1])
            sums[1] = 1.0
    return True


@helper
def finish_forward(s):
    """Return log Z of the chain restricted to the beams."""
    return s.sums[0] + math.log(s.sums[1])


@helper
def _inside(sequence, steps, s):
    """Run the forward pass inside the sets in ``s``; return log Z, -inf if no path is left.

    Fill alpha, scale and shift; ``emission`` and ``tops`` are filled already.
    """
    T, ptr, alpha = sequence.n_positions, s.ptr, s.alpha
    log_z = (T - 1) * steps.log_shift + steps.log_ends
    for t in range(T):
        here, n, c = ptr[t], ptr[t + 1] - ptr[t], 0.0
        s.shift[t] = 0
        inside(steps, sequence, t, s)
        log_z += s.tops[t] + s.shift[t]
        for k in range(here, here + n):
            c += alpha[k]
        s.scale[t] = c
        log_z += math.log(c) if c > 0 else -np.inf
        if not log_z > -np.inf:
            return -np.inf
        inverse = alpha.dtype.type(1 / c)
        for k in range(here, here + n):
            alpha[k] *= inverse
    return log_z


@helper
def within(sequence, steps, sets, s):
    """Run the forward pass inside given ``sets`` (a ``BeamSets``); return log Z, -inf if no path is left."""
    begin = sets.ptr[sequence.first]
    s.ptr[0] = 0
    for t in range(sequence.n_positions):
        fill_emission(sequence, t, s)
        s.ptr[t + 1] = sets.ptr[sequence.first + t + 1] - begin
    for k in range(s.ptr[sequence.n_positions]):
        s.states[k] = sets.states[begin + k]
    return _inside(sequence, steps, s)


@helper(allocates=True)
def _refine(sequence, steps, gold, rule, s):
    """Choose the sets again from the last position to the first by belief times beta; return the new log Z.

    Return nan if this underflows, -inf if no path is left.
    """
    T, belief, beta, ahead, picked = sequence.n_positions, s.belief, s.beta, s.ahead, s.picked
    chosen = s.selection.chosen
    used, size = 0, 0  # of ``spare``, which takes the new states, last position first
    sizes = np.empty(T, np.int64)
    for t in range(T - 1, -1, -1):
        to, n, mass, mass_kept = s.begin[t], s.n_reached[t], 0.0, 0.0
        highest = 1.0
        if t == T - 1:
            beta[:n] = 1
        else:
            highest = pull_all(steps, sequence, t, to, n, size, s)
        if not 0 < highest < np.inf:
            return np.nan
        inverse = beta.dtype.type(1 / highest)
        for k in range(n):
            beta[k] *= inverse
            belief[to + k] *= beta[k]
            mass += belief[to + k]
        wanted = gold[sequence.first + t] if gold.size else -1
        place = _place(steps, to, n, wanted, s)
        size = select(belief, to, n, _whole(n, belief), mass, rule, place, s.selection)
        for a in range(size):
            k = chosen[a]
            j = state_at(steps, to, k, s)
            picked[a] = s.spare[used + size - 1 - a] = j
            ahead[a] = beta[k] * emitted(steps, T, t, j, s)
            mass_kept += belief[to + k]
        if not mass_kept > 0:
            return np.nan
        s.kept[t] = min(1.0, mass_kept / mass)
        used += size
        sizes[t] = size
    reverse_sets(sizes, used, s)
    return _inside(sequence, steps, s)


@helper
def _backward(sequence, steps, limit, weight, final, counts, s):
    """Run equation (3); if ``final``, produce the outputs of ``marginals``. Return False if it is not safe."""
    T, beta, ptr, alpha, ahead, states = sequence.n_positions, s.beta, s.ptr, s.alpha, s.ahead, s.states
    beta[: ptr[T] - ptr[T - 1]] = 1
    for t in range(T - 1, -1, -1):
        here, n = ptr[t], ptr[t + 1] - ptr[t]
        m = alpha.dtype.type(0)
        for k in range(n):
            m += alpha[here + k] * beta[k]
        if not m > 0:
            return False
        correction = 1 / m
        if final:
            for k in range(n):
                alpha[here + k] *= beta[k] * correction * weight
        if t == 0:
            return True
        by = correction / s.scale[t]
        top = alpha.dtype.type(0)
        for k in range(n):
            b = beta[k] * by
            top = max(top, b)
            ahead[k] = b * emitted(steps, T, t, get(states, here + k), s)
        if not top <= limit:
            return False
        pull(steps, sequence, t, weight, final, counts, s)
    return True


@helper
def marginals(sequence, steps, safety, weight, counts, s):
    """Turn ``s.alpha`` into the weighted marginals; return False if the sequence is not safe: then nothing is added.

    ``counts``, (S, S) or (n_entries,), grows by the weighted expected transitions, unless empty.
    """
    if safety.check and not _backward(sequence, steps, safety.limit, weight, False, counts, s):
        return False
    return _backward(sequence, steps, safety.limit, weight, True, counts, s)


@helper(allocates=True)
def beams(start, stop, batch, steps, space, choice, safety, counts, results, buffer):
    """Run forward-backward on the sequences ``start`` to ``stop``; return where it stopped, and the used buffer.

    The sizes of the beams are not known beforehand: the kernel stops when the next sequence might not fit into
    ``buffer``. A sequence that is not safe in probability space adds nothing and gets log Z = nan.
    """
    lengths, offsets, log_unary = batch
    T, L = log_unary.shape[1:]
    S = n_states(steps, log_unary)
    one, used, s = log_unary.dtype.type(1), 0, space
    for b in range(start, stop):
        n = lengths[b]
        if used + n * S > len(buffer.states):
            return b, used
        sequence = Sequence(b, n, L, offsets[b], log_unary, b * T * L, L)
        start_forward(n, steps, s)
        log_z = finish_forward(s) if forward(0, n, sequence, steps, choice.gold, choice.rule, s) else -np.inf
        if choice.refine and log_z > -np.inf:
            log_z = _refine(sequence, steps, choice.gold, choice.rule, s)
        if log_z > -np.inf and marginals(sequence, steps, safety, one, counts, s):
            results.log_z[b] = log_z
            used += copy_beams(sequence, used, s, results, buffer)
        else:
            results.log_z[b] = np.nan
    return stop, used
