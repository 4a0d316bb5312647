"""Inside-outside of a low-rank grammar: in rank space, and as the dense grammar it stands for; both ours.

Each function takes ``{"B": ..., "n": ..., "N": ..., "P": ..., "R": ..., "seed": ...}`` and gives log Z and the expected
uses of roots, symbols under rules and preterminals. The dense one gets its rules laid out before the timing.
"""

from typing import Any, NamedTuple

import numpy as np

from benchmarks.declarations import Params, Task


class Inside(NamedTuple):
    """log Z (B,), expected roots (N,), uses of each symbol as a left child (S,), preterminals (B, n, P)."""

    log_z: Any
    roots: Any
    lefts: Any
    terminals: Any


def factors(params: Params) -> Any:
    """Return the seeded low-rank grammar: scores standard normal."""
    from trelliswork.inference.span.lowrank import LowRankGrammar

    B, n, N, P, R = (params[name] for name in ("B", "n", "N", "P", "R"))
    rng = np.random.default_rng(params["seed"])
    shapes = (N,), (N, R), (R, N + P), (R, N + P), (B, n, P)
    root, up, left, right, terminals = (rng.standard_normal(shape) for shape in shapes)
    return LowRankGrammar(root, up, left, right, terminals, np.full(B, n))


def digest(result: Inside) -> dict[str, Any]:
    """Return log Z of 3 sentences, the roots, the left children and the first position's preterminals."""
    log_z, roots, lefts, terminals = (np.asarray(array, dtype=np.float64) for array in result)
    return {
        "log_z": log_z[:3].tolist(),
        "roots": roots[:5].tolist(),
        "lefts": lefts[:5].tolist(),
        "terminals": terminals[0, 0, :10].tolist(),
    }


def low_rank(params: Params) -> Task:
    """Ours, in rank space."""
    from trelliswork.inference.span import lowrank

    given = factors(params)

    def inside() -> Inside:
        found = lowrank.expectations(given)
        return Inside(found.log_z, found.roots, found.lefts.sum(axis=0), found.terminals)

    return Task(inside, digest)


def dense(params: Params) -> Task:
    """Ours, with all rules laid out (not timed)."""
    from trelliswork.inference.span import grammar

    given = factors(params).dense()

    def inside() -> Inside:
        found = grammar.expectations(given)
        return Inside(
            found.log_z, found.roots.sum(axis=0), found.rules.sum(axis=(0, 1, 3)), found.terminals
        )  # the sum over rules is a small part of the time

    return Task(inside, digest)
