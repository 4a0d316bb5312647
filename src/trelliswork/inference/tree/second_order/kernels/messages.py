"""Messages of each kind of factor as odds; ``beliefs`` has the equations."""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import add, divide, get, lanes, load, multiply, multiply_add, put, spread, store

FORCED = 1e40  # represents infinite odds


class Automata(NamedTuple):
    """Arrays of the automata over the children of one side."""

    E: Any  # exponentials of the scores of sibling parts
    odds: Any  # (A,) of arcs, without the automaton's own message
    off_shares: Any  # (A,) 1 / (1 + odds)
    beta: Any  # scratch, (size + 2, size + 1) flat; meaning as in ``plain``
    gamma: Any  # scratch, 2 (size + 1)
    s: Any  # (A,) messages to the arcs


class Pairs(NamedTuple):
    """Arrays of the pairs of arcs, in padded blocks: one block per word, one row per arc into it."""

    E: Any  # exponentials of the scores
    gu: Any  # messages to upper arcs
    gl: Any  # messages to lower arcs
    T: Any  # (A,) product of all messages to an arc
    G: Any  # (A,) product of the messages of pairs
    products: Any  # scratch, one row and a vector


@helper(error_model="numpy")
def side(first, step, size, at, arrays: Automata):
    """Send the messages of one side's automaton, whose parts start at E[at]; return Z.

    The children's arcs are ``first``, ``first + step``, ... Sums use probabilities instead of odds, so that no product
    exceeds 1. ``beta[j, i]`` is stored at ``beta[j * (size + 1) + i]``.
    """
    E, odds, off_shares, beta, gamma, s = arrays
    width = size + 1
    put(beta, width, 1.0)
    for j in range(1, size + 1):
        a, on, row = first + step * (j - 1), 0.0, j * width
        o = get(odds, a)
        off_share = get(off_shares, a)
        part = at + j * (j - 1) // 2
        for i in range(j):
            value = get(beta, row + i)
            on += value * get(E, part + i)
            put(beta, row + width + i, value * off_share)
        put(beta, row + width + j, on * o * off_share)
        put(gamma, width + j, on)
    part, z = at + width * size // 2, 0.0
    for i in range(width):
        put(gamma, i, get(E, part + i))
        z += get(beta, width * width + i) * get(E, part + i)
    for j in range(size, 0, -1):
        a, off, row = first + step * (j - 1), 0.0, j * width
        o = get(odds, a)
        off_share = get(off_shares, a)
        part = at + j * (j - 1) // 2
        follow = get(gamma, j)
        for i in range(j):
            g = get(gamma, i)
            off += get(beta, row + i) * g
            put(gamma, i, off_share * (g + get(E, part + i) * o * follow))
        put(s, a, get(gamma, width + j) * follow / off if off > 0 else np.inf)
    return z


@helper(error_model="numpy")
def side_beliefs(first, step, size, at, arrays: Automata, z, beliefs, to):
    """Fill the beliefs of the parts of a side from index ``to`` on, after `side` returned ``z``."""
    E, odds, off_shares, beta, gamma, _ = arrays
    width, to = size + 1, to - at
    part = at + width * size // 2
    inverse = 1 / z
    for i in range(width):
        put(gamma, i, get(E, part + i))
        put(beliefs, to + part + i, get(beta, width * width + i) * get(E, part + i) * inverse)
    for j in range(size, 0, -1):
        a, row = first + step * (j - 1), j * width
        o = get(odds, a)
        off_share = get(off_shares, a)
        part = at + j * (j - 1) // 2
        follow = o * off_share * get(gamma, j)
        for i in range(j):
            step_on = get(E, part + i) * follow
            put(beliefs, to + part + i, get(beta, row + i) * step_on * inverse)
            put(gamma, i, off_share * get(gamma, i) + step_on)


@helper(error_model="numpy")
def pairs(uppers, first_upper, last_upper, first_lower, size, at, arrays: Pairs):
    """Send the messages of one word's block: uppers[first_upper:last_upper] by ``size`` arcs from ``first_lower`` on.

    The block starts at ``at``; return its end.
    """
    E, gu, gl, T, G, products = arrays
    W = lanes(E)
    one = spread(E, 1.0)
    for k in range(0, size, W):
        store(products, k, one)
    for p in range(first_upper, last_upper):
        u = get(uppers, p)
        odds_u, product = spread(E, get(T, u)), one
        for k in range(0, size, W):
            e, by_u, by_l = load(E, at + k), load(gu, at + k), load(gl, at + k)
            odds_l = load(T, first_lower + k)
            new_l = divide(multiply_add(odds_u, e, by_u), add(odds_u, by_u))
            new_u = divide(multiply_add(odds_l, e, by_l), add(odds_l, by_l))
            store(gu, at + k, new_u)
            store(gl, at + k, new_l)
            product = multiply(product, new_u)
            store(products, k, multiply(load(products, k), new_l))
        store(products, size, product)
        for k in range(W):
            put(G, u, get(G, u) * get(products, size + k))
        at += size
    return at


@helper(error_model="numpy")
def pair_values(uppers, first_upper, last_upper, first_lower, size, at, arrays: Pairs, bethe):
    """Replace E of a block by beliefs; multiply ``bethe`` [log, product] by each pair's value over its variables'."""
    E, gu, gl, T, _, products = arrays
    W = lanes(E)
    one = spread(E, 1.0)
    for p in range(first_upper, last_upper):
        odds_u, product = spread(E, get(T, get(uppers, p))), one
        for k in range(0, size, W):
            by_u, by_l, odds_l = load(gu, at + k), load(gl, at + k), load(T, first_lower + k)
            both = multiply(multiply(odds_u, odds_l), load(E, at + k))
            mass = add(both, multiply_add(by_u, add(by_l, odds_l), multiply(odds_u, by_l)))
            store(E, at + k, divide(both, mass))
            each = multiply(multiply(by_u, by_l), multiply(add(one, odds_u), add(one, odds_l)))
            product = multiply(product, divide(mass, each))
        store(products, 0, product)
        for k in range(W):
            collect(bethe, get(products, k))
        at += size
    return at


@helper(error_model="numpy")
def collect(bethe, value):
    """Multiply ``bethe`` [log, product] by a value; logarithms are taken only when the product leaves its range."""
    bethe[1] *= value
    if not (bethe[1] > 1e-100 and bethe[1] < 1e100):
        bethe[0] += math.log(bethe[1]) if bethe[1] > 0 else -np.inf
        bethe[1] = 1.0


@helper(error_model="numpy")
def tree_odds(n, x, D, into, in_arcs, tops, t):
    """Fill the odds t (A,) of the tree factor from weights x and derivatives D, both shifted by ``tops``."""
    for d in range(1, n + 1):
        mass = 0.0
        for p in range(into[d], into[d + 1]):
            mass += x[in_arcs[p]] * D[in_arcs[p]]
        for p in range(into[d], into[d + 1]):
            a = in_arcs[p]
            others = mass - x[a] * D[a]
            if others < 0.5 * mass:  # the difference would lose digits
                others = 0.0
                for q in range(into[d], into[d + 1]):
                    if q != p:
                        others += x[in_arcs[q]] * D[in_arcs[q]]
            odds = 0.0
            if D[a] > 0:
                odds = min(D[a] / (others * tops[d]), FORCED) if others > 0 else FORCED
            t[a] = odds
