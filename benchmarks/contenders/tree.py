"""Trees: ours, torch-struct, SuPar and JAX on the same scores.

Each function takes ``{"task": "projective", "nonprojective" or "inside", "B": ..., "n": ..., "seed": ...}``; ``inside``
also takes the numbers of nonterminals ``N`` and preterminals ``P``. ``projective`` and ``nonprojective`` compute log
Z and the marginals of arcs, single root; ``inside`` computes log Z of a dense grammar and its gradients: expected
rules, preterminals and roots. ``second-order`` (ours alone, against our first order) takes the number of candidate
heads ``n_heads`` and the ``strength`` of the scores of parts. Choices favor the peer, see the functions. Inputs are
converted to the layout of the peer before the timing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.contenders.chain import _bypass_supar_init
from benchmarks.declarations import Params, Task

Array = npt.NDArray[np.float32]


class Arcs(NamedTuple):
    """log Z (B,) and marginals (B, n+1, n+1) by head and word."""

    log_z: Any
    marginals: Any


class Inside(NamedTuple):
    """log Z (B,), expected rules (B, N, S, S), preterminals (B, n, P)."""

    log_z: Any
    rules: Any
    terminals: Any


def arc_scores(params: Params) -> Array:
    """Return the seeded ``log_arc`` (B, n+1, n+1), standard normal float32."""
    B, N = params["B"], params["n"] + 1
    return np.random.default_rng(params["seed"]).standard_normal((B, N, N), dtype=np.float32)


def grammar(params: Params) -> tuple[Array, Array, Array]:
    """Return the seeded scores of roots (N,), rules (N, S, S) and terminals (B, n, P), standard normal float32."""
    B, n, N, P = (params[name] for name in ("B", "n", "N", "P"))
    rng = np.random.default_rng(params["seed"])
    root, rules, terminals = (
        rng.standard_normal(shape, dtype=np.float32) for shape in ((N,), (N, N + P, N + P), (B, n, P))
    )
    return root, rules, terminals


def digest_arcs(result: Arcs) -> dict[str, Any]:
    """Return log Z of 3 sentences, the marginals of some arcs and their sum."""
    log_z, marginals = (np.asarray(array, dtype=np.float64) for array in result)
    arcs = marginals[:, :, 1:] * (np.eye(marginals.shape[1])[:, 1:] == 0)
    return {"log_z": log_z[:3].tolist(), "marginals": arcs[0, :6, :6].tolist(), "n_arcs": arcs.sum()}


def digest_inside(result: Inside) -> dict[str, Any]:
    """Return log Z of 3 sentences, some expected rules, their sum, and preterminals of the first position."""
    log_z, rules, terminals = (np.asarray(array, dtype=np.float64) for array in result)
    return {
        "log_z": log_z[:3].tolist(),
        "rules": rules[0, 0, :5, :5].tolist(),
        "n_rules": rules.sum(),
        "terminals": terminals[0, 0].tolist(),
    }


def second_order(params: Params) -> Task:
    """Ours: belief propagation with the settings of the parser."""
    from experiments.bp_accuracy import candidates
    from trelliswork.inference.tree import second_order as engine
    from trelliswork.models.parser.second_order import Propagation

    given = candidates(
        params["n"],
        params["B"],
        np.random.default_rng(params["seed"]),
        n_heads=params["n_heads"],
        strength=params["strength"],
    )

    def infer() -> Any:
        return engine.infer(*given[1:], max_iter=Propagation.max_iter, tree_every=Propagation.tree_every, tolerance=0.0)

    def digest(result: Any) -> dict[str, Any]:
        return {"log_z": result.log_partition[:3].tolist(), "arcs": result.arcs[:36].tolist()}

    return Task(infer, digest)


def first_order(params: Params) -> Task:
    """Ours: inside-outside on all arcs of the same sentences; compared if the parts have no weight."""
    if params["task"] != "second-order":
        raise NotImplementedError("only for comparison with second order.")
    from experiments.bp_accuracy import candidates
    from trelliswork.inference.tree import eisner, tree_potentials

    given = candidates(params["n"], params["B"], np.random.default_rng(params["seed"]), n_heads=params["n_heads"])

    def expectations() -> Arcs:
        return Arcs(*eisner.expectations(tree_potentials(given.log_arc)))

    def digest(result: Arcs) -> dict[str, Any]:
        n = params["n"]
        at = [(h, d) for h in range(n + 1) for d in range(1, n + 1) if h != d][:36]
        return {"log_z": result.log_z[:3].tolist(), "arcs": [float(result.marginals[0, h, d]) for h, d in at]}

    return Task(expectations, digest if params["strength"] == 0 else None)


def trelliswork(params: Params) -> Task:
    """Ours, through the public interface; the distribution is constructed in the timed call."""
    if params["task"] == "second-order":
        return second_order(params)
    import torch

    from trelliswork.distributions.dependency_tree import ProjectiveTree, SpanningTree
    from trelliswork.distributions.grammar_tree import GrammarTree

    if params["task"] == "inside":
        root, rules, terminals = (torch.from_numpy(array) for array in grammar(params))
        N, at = len(root), range(params["n"])

        @torch.no_grad()
        def inside() -> Inside:
            e = GrammarTree(root, rules, terminals).expectations()
            return Inside(e.log_z, e.rules, e.symbols[:, at, at, N:])

        return Task(inside, digest_inside)
    scores = torch.from_numpy(arc_scores(params))
    kind = ProjectiveTree if params["task"] == "projective" else SpanningTree

    @torch.no_grad()
    def expectations() -> Arcs:
        return Arcs(*kind(scores).expectations())

    return Task(expectations, digest_arcs)


def torch_struct(params: Params) -> Task:
    """torch-struct; marginals are the gradient of one partition, without a graph.

    Its non-projective partition adds 1e-5 to every weight; that is set to 0. Its grammars take the rules of each
    sentence, which are built before the timing.
    """
    if params["task"] == "second-order":
        raise NotImplementedError("torch-struct has no second-order dependency trees.")
    import torch
    from torch_struct import CKY, DepTree, LogSemiring
    from torch_struct.deptree import deptree_part

    if params["task"] == "inside":
        root, rules, terminals = (torch.from_numpy(array) for array in grammar(params))
        B = len(terminals)
        inputs = terminals, rules.expand(B, *rules.shape).clone(), root.expand(B, len(root)).clone()
        for scores in inputs:
            scores.requires_grad_()

        def inside() -> Inside:
            log_z = CKY(LogSemiring).logpartition(inputs)[0].squeeze(0)
            by_terminals, by_rules, _ = torch.autograd.grad(log_z.sum(), inputs)
            return Inside(log_z.detach(), by_rules, by_terminals)

        return Task(inside, digest_inside)
    scores = torch.from_numpy(arc_scores(params))
    on_diagonal = scores[:, 1:, 1:].clone()  # root arcs are on the diagonal
    on_diagonal.diagonal(0, 1, 2).copy_(scores[:, 0, 1:])
    on_diagonal.requires_grad_()
    struct = DepTree(LogSemiring)
    struct.multiroot = False

    def projective() -> Any:
        log_z, inputs = struct.logpartition(on_diagonal)
        (marginals,) = torch.autograd.grad(log_z.sum(), inputs)
        return Arcs(log_z.detach().squeeze(0), marginals.squeeze(0))

    def nonprojective() -> Arcs:
        log_z = deptree_part(on_diagonal, False, eps=0.0)
        (gradient,) = torch.autograd.grad(log_z.sum(), on_diagonal)
        marginals = torch.zeros_like(scores)
        marginals[:, 1:, 1:] = gradient
        marginals[:, 0, 1:] = gradient.diagonal(0, 1, 2)
        return Arcs(log_z.detach(), marginals)

    return Task(projective if params["task"] == "projective" else nonprojective, digest_arcs)


def supar(params: Params) -> Task:
    """SuPar's structs: log partition and its gradient, without a graph; scores are by word and head."""
    if params["task"] in ("inside", "second-order"):
        raise NotImplementedError("SuPar's structs have no grammars, and no second order of this kind.")
    import torch

    _bypass_supar_init()
    from supar.structs import DependencyCRF, MatrixTree

    kind: Callable[..., Any] = DependencyCRF if params["task"] == "projective" else MatrixTree
    scores = torch.from_numpy(arc_scores(params)).transpose(1, 2).contiguous().requires_grad_()

    def expectations() -> Arcs:
        log_z = kind(scores).log_partition
        (marginals,) = torch.autograd.grad(log_z.sum(), scores)
        return Arcs(log_z.detach(), marginals.transpose(1, 2))

    return Task(expectations, digest_arcs)


def jax(params: Params) -> Task:
    """The matrix-tree theorem in compiled JAX, as SynJax computes it."""
    if params["task"] != "nonprojective":
        raise NotImplementedError("only the matrix-tree theorem is implemented in JAX.")
    import jax as jx
    import jax.numpy as jnp

    scores = jnp.asarray(arc_scores(params))

    def log_partition(log_arc: Any) -> Any:
        weights = jnp.exp(log_arc[:, 1:])
        arcs = weights[1:] * (1 - jnp.eye(len(log_arc) - 1))
        laplacian = (jnp.diag(arcs.sum(axis=0)) - arcs).at[0].set(weights[0])
        return jnp.linalg.slogdet(laplacian)[1]

    both = jx.jit(jx.vmap(jx.value_and_grad(log_partition)))

    def expectations() -> Arcs:
        return Arcs(*jx.block_until_ready(both(scores)))

    return Task(expectations, digest_arcs)
