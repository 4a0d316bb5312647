"""Compiled sparse forward-backward with beams and dense transitions, in probability space.

Pal, Sutton and McCallum (2006), section 3. With e and P scaled as in ``inference.chain.kernels.forward_backward``, and
I_t the beam at position t:

    belief_t = (sum over i in I_{t-1} of alpha_{t-1}(i) P(i, .)) e_t      dense, not compressed        (1)
    I_t = the largest of belief_t, by a rule; alpha_t = belief_t on I_t, normalized (c_t)              (2)
    beta_{t-1}(i) = sum over j in I_t of P(i, j) e_t(j) beta_t(j) / c_t    for i in I_{t-1}            (3)

The alphas of (2) are those of the chain restricted to the beams, so (3) completes exact forward-backward inside them:
log Z and its gradient belong to the same sets. Time O(|I_{t-1}| S) for (1), O(|I_{t-1}| |I_t|) for (3). *Refining*
chooses the beams again from the end, by belief_t times a dense beta_t, and repeats the forward pass inside them.

The beam of position t is ``states[ptr[t]:ptr[t+1]]``, ascending. Transitions are read by flat indices: scaled
probabilities with rows of whole vectors (shared by all positions), or logarithms (``is_log``), of which only the rows
of states in the beam are exponentiated.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import add, exponential, get, lanes, load, multiply, put, spread, store, subtract, total
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.beam.kernels.records import Sequence, copy_beams, reverse_sets
from trelliswork.inference.chain.beam.kernels.select import Selection, add_to_doubles, make_selection, select


class Steps(NamedTuple):
    """Transitions of one sequence: row i of the matrix into position t is at ``first + (t-1) time_step + i stride``."""

    matrix: np.ndarray
    first: int
    stride: int
    time_step: int
    is_log: bool
    log_shift: float  # taken out of the logarithms of probabilities


class Space(NamedTuple):
    """Working memory for one sequence at a time."""

    emission: np.ndarray  # (T, Sp) e_t
    belief: np.ndarray  # (T, Sp) when refining, else (1, Sp)
    rows: np.ndarray  # (S, Sp) exponentiated rows of logarithms, else (0, Sp)
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
    dense: np.ndarray  # (Sp,) the same by state
    row: np.ndarray  # (Sp,)
    coefficient: np.ndarray  # (S,)
    offset: np.ndarray  # (S,)
    spare: np.ndarray  # (T S,) when refining, else (0,)


@helper(allocates=True)
def make_space(T, S, Sp, refining, is_log, like):
    """Allocate a ``Space`` in the precision of the array ``like``."""
    dtype = like.dtype
    return Space(
        np.empty((T, Sp), dtype), np.zeros((T if refining else 1, Sp), dtype),
        np.empty((S if is_log else 0, Sp), dtype),
        np.zeros(T + 1, np.int64), np.empty(T * S, np.int32), np.empty(T * S, dtype),
        np.empty(T, dtype), np.zeros(T), np.zeros(T), np.zeros(T), np.zeros(2), make_selection(S, Sp, like),
        np.zeros(Sp, dtype), np.zeros(Sp, dtype), np.zeros(Sp, dtype), np.zeros(Sp, dtype),
        np.empty(S, dtype), np.empty(S, np.int64), np.empty(T * S if refining else 0, np.int32),
    )  # fmt: skip


@helper
def _matrix_rows(steps, base, S, before, n, s):
    """Prepare the rows of n states from ``before`` on: their offsets and coefficients; return what was taken out."""
    matrix, states, alpha, rows, offset, coefficient = steps.matrix, s.states, s.alpha, s.rows, s.offset, s.coefficient
    if not steps.is_log:
        for a in range(n):
            put(offset, a, base + get(states, before + a) * steps.stride)
            put(coefficient, a, get(alpha, before + a))
        return 0.0
    Sp, top = rows.shape[1], -np.inf
    for a in range(n):
        offset[a] = a * Sp
        coefficient[a] = exp_row(matrix, base + states[before + a] * steps.stride, S, rows, a * Sp, Sp)
        top = max(top, np.float64(coefficient[a]))
    if top == -np.inf:
        top = 0.0
    for a in range(n):
        coefficient[a] = alpha[before + a] * math.exp(coefficient[a] - top)
    return top


@helper
def _push(rows, offset, coefficient, n, emission, at, Sp, belief, to):
    """Set belief[to : to + Sp] = (coefficient @ rows) * emission, flat; return the sum. Equation (1)."""
    W = lanes(belief)
    sums = spread(belief, 0.0)
    k = 0
    while k + 4 * W <= Sp:
        zero = spread(belief, 0.0)
        a0, a1, a2, a3 = zero, zero, zero, zero
        for a in range(n):
            x, row = spread(belief, coefficient[a]), offset[a] + k
            a0, a1 = fma(x, load(rows, row), a0), fma(x, load(rows, row + W), a1)
            a2, a3 = fma(x, load(rows, row + 2 * W), a2), fma(x, load(rows, row + 3 * W), a3)
        a0, a1 = multiply(a0, load(emission, at + k)), multiply(a1, load(emission, at + k + W))
        a2, a3 = multiply(a2, load(emission, at + k + 2 * W)), multiply(a3, load(emission, at + k + 3 * W))
        store(belief, to + k, a0)
        store(belief, to + k + W, a1)
        store(belief, to + k + 2 * W, a2)
        store(belief, to + k + 3 * W, a3)
        sums = add(sums, add(add(a0, a1), add(a2, a3)))
        k += 4 * W
    while k < Sp:
        a0 = spread(belief, 0.0)
        for a in range(n):
            a0 = fma(spread(belief, coefficient[a]), load(rows, offset[a] + k), a0)
        a0 = multiply(a0, load(emission, at + k))
        store(belief, to + k, a0)
        sums = add(sums, a0)
        k += W
    return total(sums)


@helper
def _keep(belief, to, chosen, n, states, alpha, first):
    """Store n chosen states and their normalized alpha from ``first`` on; return c_t. Equation (2)."""
    c = 0.0
    for a in range(n):
        j = get(chosen, a)
        v = get(belief, to + j)
        put(states, first + a, j)
        put(alpha, first + a, v)
        c += v
    inverse = alpha.dtype.type(1 / c if c > 0 else 0.0)
    for a in range(n):
        put(alpha, first + a, get(alpha, first + a) * inverse)
    return c


@helper
def start_forward(T, steps, s):
    """Prepare a forward pass over T positions."""
    s.ptr[0], s.sums[0], s.sums[1] = 0, (T - 1) * steps.log_shift, 1.0


@helper
def forward(start, stop, sequence, steps, gold, rule, s):
    """Choose the beams of positions ``start`` to ``stop`` and fill their alpha; return False if every path is lost.

    ``gold[sequence.first + t]`` is always in the beam of position t, unless ``gold`` is empty.
    """
    S, log_unary, emission, belief = sequence.n_labels, sequence.log_unary, s.emission, s.belief
    ptr, states, alpha, scale, sums = s.ptr, s.states, s.alpha, s.scale, s.sums
    offset, coefficient, selection, chosen = s.offset, s.coefficient, s.selection, s.selection.chosen
    row, shift, tops, kept = s.row, s.shift, s.tops, s.kept
    rows = s.rows if steps.is_log else steps.matrix
    Sp = emission.shape[1]
    for t in range(start, stop):
        tops[t] = exp_row(log_unary, sequence.at + t * sequence.stride, S, emission, t * Sp, Sp)
        sums[0] += tops[t]
        to = t * Sp if belief.shape[0] > 1 else 0
        if t == 0:
            coefficient[0], offset[0] = 1, 0
            row[:] = 1
            mass = _push(row, offset, coefficient, 1, emission, 0, Sp, belief, 0)
        else:
            n = ptr[t] - ptr[t - 1]
            shift[t] = _matrix_rows(steps, steps.first + (t - 1) * steps.time_step, S, ptr[t - 1], n, s)
            sums[0] += shift[t]
            mass = _push(rows, offset, coefficient, n, emission, t * Sp, Sp, belief, to)
        forced = gold[sequence.first + t] if gold.size else -1
        n = select(belief, to, S, Sp, mass, rule, forced, selection)
        c = _keep(belief, to, chosen, n, states, alpha, ptr[t])
        if not c > 0:
            return False
        ptr[t + 1] = ptr[t] + n
        scale[t] = c
        kept[t] = min(1.0, c / mass)
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
def _gather(matrix, at, states, first, n, is_log, shift, row):
    """Set row[:n] to the transitions from one state, whose row starts at flat ``at``, to n states."""
    W = lanes(row)
    for k in range(n):
        put(row, k, get(matrix, at + get(states, first + k)))
    if is_log:
        width = -(-n // W) * W
        row[n:width] = -np.inf
        by = spread(row, row.dtype.type(shift))
        for k in range(0, width, W):
            store(row, k, exponential(subtract(load(row, k), by)))


@helper
def _inside(T, steps, s):
    """Run the forward pass inside the sets in ``s``; return log Z, -inf if no path is left.

    Fill alpha, scale and shift; ``emission`` and ``tops`` are filled already.
    """
    emission, ptr, ahead, shift, states = s.emission, s.ptr, s.ahead, s.shift, s.states
    row, alpha, matrix, stride, is_log = s.row, s.alpha, steps.matrix, steps.stride, steps.is_log
    log_z = (T - 1) * steps.log_shift
    flat = matrix.reshape(-1)
    for t in range(T):
        here, n = ptr[t], ptr[t + 1] - ptr[t]
        log_z += s.tops[t]
        ahead[:n] = 1
        if t > 0:
            base = steps.first + (t - 1) * steps.time_step
            before = ptr[t - 1]
            shift[t] = 0
            if is_log:
                highest = -np.inf
                for a in range(before, here):
                    for k in range(n):
                        highest = max(highest, np.float64(flat[base + states[a] * stride + states[here + k]]))
                shift[t] = highest if highest > -np.inf else 0.0
                log_z += shift[t]
            ahead[:n] = 0
            for a in range(before, here):
                _gather(matrix, base + states[a] * stride, states, here, n, is_log, shift[t], row)
                for k in range(n):
                    ahead[k] += alpha[a] * row[k]
        c = 0.0
        for k in range(n):
            alpha[here + k] = ahead[k] * emission[t, states[here + k]]
            c += alpha[here + k]
        s.scale[t] = c
        log_z += math.log(c) if c > 0 else -np.inf
        if not log_z > -np.inf:
            return -np.inf
        inverse = alpha.dtype.type(1 / c)
        for k in range(n):
            alpha[here + k] *= inverse
    return log_z


@helper(allocates=True)
def _refine(sequence, steps, gold, rule, s):
    """Choose the sets again from the last position to the first by belief times a dense beta; return the new log Z.

    Return nan if this underflows, -inf if no path is left.
    """
    T, S = sequence.n_positions, sequence.n_labels
    emission, beta, belief, chosen, spare = s.emission, s.beta, s.belief, s.selection.chosen, s.spare
    ahead, row = s.ahead, s.row
    matrix, stride, is_log = steps.matrix, steps.stride, steps.is_log
    Sp, W = emission.shape[1], lanes(emission)
    flat = matrix.reshape(-1)
    beta[:] = 1
    used = 0  # of ``spare``, which takes the new states, last position first
    sizes = np.empty(T, np.int64)
    for t in range(T - 1, -1, -1):
        mass = spread(beta, 0.0)
        for k in range(0, Sp, W):
            product = multiply(load(belief, t * Sp + k), load(beta, k))
            store(belief, t * Sp + k, product)
            mass = add(mass, product)
        m = total(mass)
        forced = gold[sequence.first + t] if gold.size else -1
        n = select(belief, t * Sp, S, Sp, m, rule, forced, s.selection)
        mass_kept = 0.0
        for a in range(n):
            spare[used + n - 1 - a] = chosen[a]
            mass_kept += belief[t, chosen[a]]
        if not (m > 0 and mass_kept > 0):
            return np.nan
        s.kept[t] = min(1.0, mass_kept / m)
        used += n
        sizes[t] = n
        if t == 0:
            break
        highest = 0.0
        for a in range(n):
            ahead[a] = emission[t, chosen[a]] * beta[chosen[a]]
        base, shift = steps.first + (t - 1) * steps.time_step, -np.inf
        if is_log:
            for i in range(S):
                for a in range(n):
                    shift = max(shift, np.float64(flat[base + i * stride + chosen[a]]))
        for i in range(S):
            _gather(matrix, base + i * stride, chosen, 0, n, is_log, shift if shift > -np.inf else 0.0, row)
            b = row.dtype.type(0)
            for a in range(n):
                b += row[a] * ahead[a]
            beta[i] = b
            highest = max(highest, np.float64(b))
        if not 0 < highest < np.inf:
            return np.nan
        inverse = beta.dtype.type(1 / highest)
        for i in range(S):
            beta[i] *= inverse
    reverse_sets(sizes, used, s)
    return _inside(T, steps, s)


@helper
def _spread_ahead(states, first, n, ahead, dense, Sp):
    """Set dense (Sp,) to ``ahead`` at n states, else 0."""
    W = lanes(dense)
    for k in range(0, Sp, W):
        store(dense, k, spread(dense, 0.0))
    for k in range(n):
        put(dense, get(states, first + k), get(ahead, k))


@helper
def _row_times(matrix, at, vector, Sp):
    """Return the product of a row of the matrix, which starts at flat index ``at``, and a vector."""
    W = lanes(vector)
    a, b = spread(vector, 0.0), spread(vector, 0.0)
    for k in range(0, Sp - W, 2 * W):
        a = fma(load(matrix, at + k), load(vector, k), a)
        b = fma(load(matrix, at + k + W), load(vector, k + W), b)
    if (Sp // W) % 2:
        a = fma(load(matrix, at + Sp - W), load(vector, Sp - W), a)
    return total(add(a, b))


@helper
def _add_row(matrix, at, vector, x, counts, to):
    """Add x * row of the matrix * vector to counts[to : to + S], in float64; ``at`` and ``to`` are flat."""
    S, W = counts.shape[1], lanes(vector)
    whole = S - S % W
    by = spread(vector, x)
    for k in range(0, whole, W):
        add_to_doubles(counts, to + k, multiply(multiply(load(matrix, at + k), load(vector, k)), by))
    for k in range(whole, S):
        put(counts, to + k, get(counts, to + k) + x * (get(matrix, at + k) * get(vector, k)))


@helper
def _backward(T, steps, limit, weight, final, counts, pairs, s):
    """Run equation (3); if ``final``, produce the outputs of ``marginals``. Return False if it is not safe."""
    beta, ptr, alpha, scale, ahead = s.beta, s.ptr, s.alpha, s.scale, s.ahead
    emission, states, shift, row = s.emission, s.states, s.shift, s.row
    matrix, stride, is_log = steps.matrix, steps.stride, steps.is_log
    dense, Sp = s.dense, emission.shape[1]
    beta[: ptr[T] - ptr[T - 1]] = 1
    end, counting, pairing = 0, final and counts.shape[0] > 0, final and pairs.size > 0
    if pairing:
        for t in range(1, T):
            end += (ptr[t] - ptr[t - 1]) * (ptr[t + 1] - ptr[t])
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
        by = correction / scale[t]
        top = alpha.dtype.type(0)
        for k in range(n):
            b = beta[k] * by
            top = max(top, b)
            ahead[k] = b * emission[t, states[here + k]]
        if not top <= limit:
            return False
        base, before = steps.first + (t - 1) * steps.time_step, ptr[t - 1]
        if pairing:
            end -= (here - before) * n
        many = not is_log and 4 * n > Sp  # whole rows then cost less than single numbers
        if many:
            _spread_ahead(states, here, n, ahead, dense, Sp)
        for a in range(before, here):
            i = states[a]
            begin, to, x = base + i * stride, i * counts.shape[1], alpha[a] * weight
            b0, b1 = alpha.dtype.type(0), alpha.dtype.type(0)
            if many:
                beta[a - before] = _row_times(matrix, begin, dense, Sp)
                if counting:
                    _add_row(matrix, begin, dense, x, counts, to)
                continue
            if is_log:
                _gather(matrix, begin, states, here, n, True, shift[t], row)
                pair = end + (a - before) * n
                for k in range(n):
                    p = get(row, k) * get(ahead, k)
                    b0 += p
                    if counting:
                        j = to + get(states, here + k)
                        put(counts, j, get(counts, j) + x * p)
                    if pairing:
                        put(pairs, pair + k, x * p)
            elif counting:
                for k in range(n):
                    j = get(states, here + k)
                    p = get(matrix, begin + j) * get(ahead, k)
                    b0 += p
                    put(counts, to + j, get(counts, to + j) + x * p)
            else:
                for k in range(0, n - 1, 2):  # two independent sums
                    b0 += get(matrix, begin + get(states, here + k)) * get(ahead, k)
                    b1 += get(matrix, begin + get(states, here + k + 1)) * get(ahead, k + 1)
                if n % 2:
                    b0 += get(matrix, begin + get(states, here + n - 1)) * get(ahead, n - 1)
            beta[a - before] = b0 + b1
    return True


@helper
def marginals(T, steps, safety, weight, counts, pairs, s):
    """Turn ``s.alpha`` into the weighted marginals; return False if the sequence is not safe: then nothing is added.

    ``counts`` (S, S) grows by the weighted expected transitions, unless empty. ``pairs`` takes them position by
    position, |I_{t-1}| x |I_t| numbers each, unless empty.
    """
    if safety.check and not _backward(T, steps, safety.limit, weight, False, counts, pairs, s):
        return False
    return _backward(T, steps, safety.limit, weight, True, counts, pairs, s)


@kernel(allocates=True)
def dense(start, stop, batch, matrices, choice, safety, counts, results, buffer):
    """Run sparse forward-backward on the sequences ``start`` to ``stop``; return where it stopped, and the used buffer.

    The sizes of the beams are not known beforehand: the kernel stops when the next sequence might not fit into
    ``buffer``. A sequence that is not safe in probability space adds nothing and gets log Z = nan.
    """
    lengths, offsets, log_unary = batch
    matrix, batch_step, time_step, is_log, log_shift = matrices
    gold, rule = choice.gold, choice.rule
    T, S = log_unary.shape[1:]
    W = lanes(log_unary)
    s = make_space(T, S, -(-S // W) * W, choice.refine, is_log, log_unary)
    no_pairs, one = np.empty(0, log_unary.dtype), log_unary.dtype.type(1)
    used = 0
    for b in range(start, stop):
        n = lengths[b]
        if used + n * S > len(buffer.states):
            return b, used
        sequence = Sequence(n, S, offsets[b], log_unary, b * T * S, S)
        steps = Steps(matrix, b * batch_step * S * S, matrix.shape[1], time_step * S * S, is_log, log_shift)
        start_forward(n, steps, s)
        log_z = finish_forward(s) if forward(0, n, sequence, steps, gold, rule, s) else -np.inf
        if choice.refine and log_z > -np.inf:
            log_z = _refine(sequence, steps, gold, rule, s)
        if log_z > -np.inf and marginals(n, steps, safety, one, counts, no_pairs, s):
            results.log_z[b] = log_z
            used += copy_beams(sequence, used, s, results, buffer)
        else:
            results.log_z[b] = np.nan
    return stop, used
