"""Inside-outside of a low-rank grammar, in rank space and as a dense grammar, both by our package.

Each function takes ``{"B": ..., "n": ..., "N": ..., "P": ..., "R": ..., "seed": ...}`` and returns log Z and the
expected counts of roots, left children and preterminals. The rules of the dense grammar are built before the timing.
"""

from typing import Any, NamedTuple

import numpy as np

from benchmarks.declarations import Params, Task


class Inside(NamedTuple):
    """log Z (B,), expected roots (N,), left children (S,), preterminals (B, n, P)."""

    log_z: Any
    roots: Any
    lefts: Any
    terminals: Any


def factors(params: Params) -> Any:
    """Return the seeded low-rank grammar with standard normal scores."""
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
        e = lowrank.expectations(given)
        return Inside(e.log_z, e.roots, e.lefts.sum(axis=0), e.terminals)

    return Task(inside, digest)


def dense(params: Params) -> Task:
    """Ours, with dense rules."""
    from trelliswork.inference.span import grammar

    given = factors(params).dense()

    def inside() -> Inside:
        e = grammar.expectations(given)
        return Inside(
            e.log_z, e.roots.sum(axis=0), e.rules.sum(axis=(0, 1, 3)), e.terminals
        )  # the sum takes little time

    return Task(inside, digest)
