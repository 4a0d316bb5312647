"""Choice of a beam from the masses of states, by partial selection in linear time without sorting.

How many values reach a threshold, and their sum, takes one sweep over whole vectors. So the threshold is bisected until
few values are undecided, and only these are compared one by one, by quickselect. Of equal values the first ones are
taken. Sums are as precise as the values.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, get, lanes, largest, load, maximum, put, spread, total, where_greater

UNDECIDED = 8  # values that are left for quickselect
PROBES = 40
SKIPPED = 4  # vectors that are skipped together if none of their values is large enough


class Rule(NamedTuple):
    """Keep the smallest number of states that is at least ``least`` and has a share ``keep`` of the mass (1: all).

    With a ``ratio`` of at most 1: all states whose value is at least ``ratio`` times the largest, and at least
    ``least`` states.
    """

    least: int
    keep: float
    ratio: float


class Selection(NamedTuple):
    """Result and working memory of ``select``."""

    chosen: Any  # (n,) the result, ascending
    work: Any  # (n,) or more
    guess: Any  # (1,) where the search starts, as a share of the best: it changes the time, not the result


class BeamRows(NamedTuple):
    """States of all positions in compressed rows, with their masses; those of position i are ptr[i]:ptr[i + 1]."""

    ptr: Any
    states: Any  # empty if every position has all states, 0 to S-1
    masses: Any


@helper(allocates=True)
def make_selection(n, width, like):
    """Allocate a ``Selection`` among n values in the precision of the array ``like``."""
    return Selection(np.empty(n, np.int32), np.empty(width, like.dtype), np.full(1, 0.03, like.dtype))


@helper
def _tally(values, at, width, low):
    """Return the number of values[at : at + width] that reach ``low``, and their sum."""
    by, one, zero = spread(values, low), spread(values, 1.0), spread(values, 0.0)
    count, mass = zero, zero
    for k in range(at, at + width, lanes(values)):
        v = load(values, k)
        count = add(count, where_greater(by, v, zero, one))
        mass = add(mass, where_greater(by, v, zero, v))
    return np.int64(total(count)), np.float64(total(mass))


@helper
def _boundary(work, n, least, target):
    """Return how many of work[:n], largest first, give ``least`` values and a sum of ``target``, and the last of them.

    Weighted quickselect; ``work`` is reordered. Expected time O(n).
    """
    low, high = 0, n
    count, mass = 0, 0.0
    while low < high:
        a, b, c = work[low], work[(low + high) // 2], work[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        middle, sums = low, 0.0
        for k in range(low, high):  # move larger ones to the front, without branches
            v = work[k]
            work[k] = work[middle]
            work[middle] = v
            larger = v > pivot
            middle += larger
            sums += v if larger else 0.0
        n_larger = middle - low
        if count + n_larger >= least and mass + sums >= target:
            high = middle
            continue
        count += n_larger
        mass += sums
        low = middle
        n_equal = 0
        for k in range(low, high):
            v = work[k]
            work[k] = work[low + n_equal]
            work[low + n_equal] = v
            n_equal += v == pivot
        needed = max(1, least - count)
        if mass + needed * np.float64(pivot) < target:
            needed = max(needed, int(min(np.float64(n), math.ceil((target - mass) / pivot))))
        if needed <= n_equal:
            return count + needed, pivot
        count += n_equal
        mass += n_equal * np.float64(pivot)
        low += n_equal
    return n, work[n - 1] if n > 0 else work.dtype.type(0)


@helper
def _bracket(values, at, n, width, best, least, target, guess):
    """Find thresholds low < high with few values between them; values >= low are enough, values >= high are not.

    Return both (a low of 0 means all positive values), the number of values that reach ``high``, and their sum.
    ``guess`` is updated for the next search.
    """
    dtype = values.dtype.type
    low, high = dtype(0), dtype(2) * best
    n_low, n_high, mass_high = n, 0, 0.0
    probe = guess[0] * best
    for _ in range(PROBES):
        count, mass = _tally(values, at, width, probe)
        enough = (count >= least) & (mass >= target)
        low, n_low = probe if enough else low, count if enough else n_low
        high, n_high = high if enough else probe, n_high if enough else count
        mass_high = mass_high if enough else mass
        if n_low - n_high <= UNDECIDED:
            break
        if low > 0:
            probe = dtype(math.sqrt(np.float64(low) * np.float64(high)))  # bisection of the logarithms
        else:
            probe = high * dtype(0.01)
        if not (low < probe and probe < high):
            break
    if low > 0:
        guess[0] = low / best
    return low, high, n_high, mass_high


@helper
def _collect(values, at, n, width, low, chosen):
    """Fill ``chosen`` with the indices of values that reach ``low`` (0: all positive ones); return their number."""
    count, step = 0, SKIPPED * lanes(values)
    for start in range(0, width, step):
        stop = min(start + step, width)
        if largest_of(values, at + start, stop - start) < low:
            continue
        for j in range(start, min(stop, n)):
            v = get(values, at + j)
            put(chosen, count, j)
            count += (v >= low) & (v > 0)
    return count


@helper
def select(values, at, n, width, mass, rule, forced, selection):
    """Choose among values[at : at + n] (flat, zeros up to ``width``) by a rule; fill ``chosen``, return their number.

    ``mass`` is the sum of the values. Zeros are not chosen, but ``forced`` (-1: none) always is.
    """
    least, keep, ratio = rule
    chosen, work, guess = selection
    best = largest_of(values, at, width)
    if keep >= 1:  # zeros too: the check for underflow must see them
        for j in range(n):
            put(chosen, j, j)
        return n
    if not best > 0:
        return _force(forced, _collect(values, at, n, width, values.dtype.type(0), chosen), chosen)
    if ratio <= 1:
        cut = values.dtype.type(best * ratio)
        reached, _ = _tally(values, at, width, cut)
        if reached >= least and cut > 0:
            return _force(forced, _collect(values, at, n, width, cut, chosen), chosen)
    target = keep * mass
    low, high, n_high, mass_high = _bracket(values, at, n, width, best, least, target, guess)
    n_candidates, n_open = _collect(values, at, n, width, low, chosen), 0
    for k in range(n_candidates):
        v = get(values, at + get(chosen, k))
        put(work, n_open, v)
        n_open += v < high
    needed, last = _boundary(work, n_open, least - n_high, target - mass_high)
    if needed == n_open:
        return _force(forced, n_candidates, chosen)
    count = 0
    for k in range(n_candidates):
        j = get(chosen, k)
        put(chosen, count, j)
        count += get(values, at + j) >= last
    if count > n_high + needed:  # too many are equal to the last one
        surplus, kept = count - n_high - needed, count
        for k in range(count - 1, -1, -1):
            if surplus > 0 and get(values, at + get(chosen, k)) == last:
                surplus -= 1
                kept -= 1
                for m in range(k, kept):
                    put(chosen, m, get(chosen, m + 1))
        count = kept
    return _force(forced, count, chosen)


@helper
def _force(forced, count, chosen):
    """Insert ``forced`` (-1: none) into the ascending ``chosen``; return their number."""
    if forced < 0:
        return count
    place = count
    while place > 0 and chosen[place - 1] > forced:
        place -= 1
    if place > 0 and chosen[place - 1] == forced:
        return count
    for k in range(count, place, -1):
        chosen[k] = chosen[k - 1]
    chosen[place] = forced
    return count + 1


@helper
def largest_of(values, at, width):
    """Return the largest of values[at : at + width], whole vectors."""
    W = lanes(values)
    top = load(values, at)
    for k in range(W, width, W):
        top = maximum(load(values, at + k), top)
    return largest(top)


@kernel(allocates=True)
def choose(start, stop, rows, forced, rule, width, inside, kept, sizes):
    """Choose the beams of positions ``start`` to ``stop`` from the masses in ``rows`` (a ``BeamRows``).

    ``inside`` marks the masses that are chosen, ``kept`` gets their share and ``sizes`` their number. ``forced[i]``,
    one of the states of position i, is always chosen. ``width`` is the largest number of states in whole vectors.
    """
    ptr, states, masses = rows
    row, selection = np.zeros(width, masses.dtype), make_selection(width, width, masses)
    for i in range(start, stop):
        first, n = ptr[i], ptr[i + 1] - ptr[i]
        mass, gold = 0.0, -1
        for k in range(n):
            row[k] = masses[first + k]
            mass += row[k]
            if states.size and states[first + k] == forced[i]:
                gold = k
        row[n:] = 0
        if not states.size:
            gold = forced[i]
        m = select(row, 0, n, width, mass, rule, gold, selection)
        share = 0.0
        for k in range(m):
            inside[first + selection.chosen[k]] = True
            share += row[selection.chosen[k]]
        kept[i], sizes[i] = min(1.0, share / mass), m
