"""How a beam is chosen from the masses of states: by partial selection, in linear time, never a full sort.

A rule keeps the smallest number of states that is at least ``least`` and has a share ``keep`` of the mass; a share of 1
keeps all. Or else, with a ``ratio`` of at most 1, all whose value is at least ``ratio`` times the
largest, and at least ``least``. Of equal values those that stand first are taken. Sums are as
precise as the values.

Which values a threshold keeps, how many and how much, is a quick sweep over whole vectors. So the threshold is bisected
until few values are undecided, and only these are looked at one by one.

Numba's disk cache does not notice edits here in the kernels that call it: ``make clean-kernels`` after a change.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import add, get, lanes, largest, load, maximum, put, spread, total

UNDECIDED = 8  # so few values are settled one by one
PROBES = 40
FEW = 32  # vectors; a loop over their values that never branches is the faster one


@intrinsic
def lanes_from(typingctx, vector, low):
    """``lanes_from(v, low)``: one bit a lane, set where v >= low."""

    def codegen(context, builder, signature, args):
        reached = builder.fcmp_ordered(">=", *args)
        return builder.zext(builder.bitcast(reached, ir.IntType(vector.width)), ir.IntType(64))

    return types.int64(vector, vector), codegen


@intrinsic
def part_from(typingctx, vector, low):
    """``part_from(v, low)``: v where v >= low, else 0."""

    def codegen(context, builder, signature, args):
        zero = ir.Constant(vector.ir_type, [0.0] * vector.width)
        return builder.select(builder.fcmp_ordered(">=", *args), args[0], zero)

    return vector(vector, vector), codegen


@intrinsic
def n_bits(typingctx, bits):
    """``n_bits(m)``: how many bits are set."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.int64), codegen


@intrinsic
def first_bit(typingctx, bits):
    """``first_bit(m)``: the lowest bit that is set; m is not 0."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@intrinsic
def add_to_doubles(typingctx, array, index, vector):
    """``add_to_doubles(array, k, v)``: add the vector to float64 numbers from flat index k on."""

    def codegen(context, builder, signature, args):
        wide = ir.VectorType(ir.DoubleType(), vector.width)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), wide.as_pointer())
        value = args[2] if vector.dtype == types.float64 else builder.fpext(args[2], wide)
        builder.store(builder.fadd(builder.load(pointer, align=8), value), pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@helper
def _tally(values, at, width, low):
    """How many of values[at : at + width] reach ``low``, and their sum."""
    W = lanes(values)
    by = spread(values, low)
    count, mass = 0, spread(values, 0.0)
    for k in range(at, at + width, W):
        v = load(values, k)
        count += n_bits(lanes_from(v, by))
        mass = add(mass, part_from(v, by))
    return count, np.float64(total(mass))


@helper
def _boundary(work, n, least, target):
    """How many of work[:n] are needed, largest first, for ``least`` of them and a sum ``target``; and the last value.

    Weighted quickselect; ``work`` is reordered. Expected time O(n).
    """
    low, high = 0, n
    count, mass = 0, 0.0
    while low < high:
        a, b, c = work[low], work[(low + high) // 2], work[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        middle, sums = low, 0.0
        for k in range(low, high):  # larger ones to the front, without branches
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
    """Thresholds low < high with few values between: what reaches ``low`` is enough, what reaches ``high`` is not.

    Returns both (a low of 0 means all positive values), and how many values reach ``high`` and their sum. ``guess``
    (1,) is where to begin, as a share of the best; it is left where the next search does well to begin.
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
def _settle(work, n, least, target):
    """As ``_boundary`` for at most UNDECIDED values: each is tried as the last one, without branches."""
    for k in range(n, UNDECIDED):
        put(work, k, work.dtype.type(0))
    needed, last = n + 1, work.dtype.type(0)
    for k in range(n):
        v = get(work, k)
        count, mass = _tally(work, 0, UNDECIDED, v)
        enough = (count >= least) & (mass >= target) & (count < needed)
        needed = count if enough else needed
        last = v if enough else last
    if needed > n:
        return n, last
    same = 0
    for k in range(n):
        same += get(work, k) == last
    if same > 1:
        return _boundary(work, n, least, target)
    return needed, last


@helper
def _collect(values, at, n, width, low, chosen):
    """Fill ``chosen`` with the places of values that reach ``low`` (0: all positive ones); return how many."""
    count = 0
    W = lanes(values)
    if low > 0 and width > FEW * W:
        by = spread(values, low)
        for k in range(0, width, W):
            bits = lanes_from(load(values, at + k), by)
            while bits:
                put(chosen, count, k + first_bit(bits))
                count += 1
                bits &= bits - 1
        return count
    for j in range(n):
        v = get(values, at + j)
        put(chosen, count, j)
        count += (v >= low) & (v > 0)
    return count


@helper
def select(values, at, n, width, mass, least, keep, ratio, forced, chosen, work, guess):
    """Choose among values[at : at + n] (flat, zeros up to ``width``) by a rule; fill ``chosen``, return how many.

    ``mass`` is their sum. Zeros are not chosen, but ``forced`` (-1: none) always is. ``guess`` (1,) of the values'
    type is between 0 and 1 and carries over from one choice to the next; it changes the time, not the result.
    """
    best = largest_of(values, at, width)
    if keep >= 1:  # zeros too: one that underflowed must not escape the check for safety
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
    if n_open <= UNDECIDED and len(work) > UNDECIDED:
        needed, last = _settle(work, n_open, least - n_high, target - mass_high)
    else:
        needed, last = _boundary(work, n_open, least - n_high, target - mass_high)
    if needed == n_open:
        return _force(forced, n_candidates, chosen)
    count = 0
    for k in range(n_candidates):
        j = get(chosen, k)
        put(chosen, count, j)
        count += get(values, at + j) >= last
    if count > n_high + needed:  # of those equal to the last one some are too many
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
    """Put ``forced`` (-1: none) among the chosen, in its place; return how many there are now."""
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
    """The largest of values[at : at + width], whole vectors."""
    W = lanes(values)
    top = load(values, at)
    for k in range(W, width, W):
        top = maximum(load(values, at + k), top)
    return largest(top)
