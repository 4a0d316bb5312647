"""Linear chains: ours, dynamax, pytorch-crf, SuPar and torch-struct on the same potentials.

Each function takes ``{"task": "expectations" or "viterbi", "B": ..., "T": ..., "S": ..., "seed": ...}``.
``expectations`` computes log Z, the node marginals and the edge marginals summed over positions. Choices favor the
peer, see the functions. Inputs are converted to the layout of the peer before the timing.
"""

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.declarations import Params, Task

Array = npt.NDArray[np.float32]


class Expectations(NamedTuple):
    """Expectations of a chain: (B,), (B, T, S), and (B, S, S) or summed over the batch (S, S)."""

    log_z: Any
    marginals: Any
    counts: Any


def potentials(params: Params) -> tuple[Array, Array]:
    """Return the seeded ``log_unary`` (B, T, S) and ``log_pairwise`` (S, S), standard normal float32."""
    B, T, S = params["B"], params["T"], params["S"]
    rng = np.random.default_rng(params["seed"])
    return rng.standard_normal((B, T, S), dtype=np.float32), rng.standard_normal((S, S), dtype=np.float32)


def digest_expectations(result: Expectations) -> dict[str, Any]:
    """Return log Z of 3 sequences, marginals of 2 positions, some summed edge marginals and their total."""
    log_z, marginals, counts = (np.asarray(array, dtype=np.float64) for array in result)
    total = counts if counts.ndim == 2 else counts.sum(axis=0)
    return {
        "log_z": log_z[:3].tolist(),
        "marginals": marginals[0, :2].tolist(),
        "edges": total[:6, :6].tolist(),
        "n_edges": total.sum(),
    }


def digest_labels(log_unary: Array, log_pairwise: Array) -> Callable[[Any], dict[str, Any]]:
    """Return the digest of best paths (B, T): the scores of the first 3, computed here from the labels."""

    def digest(labels: Any) -> dict[str, Any]:
        paths = np.asarray(labels)[:3]
        unary = np.take_along_axis(log_unary[:3].astype(np.float64), paths[..., None], axis=-1)
        pairwise = log_pairwise.astype(np.float64)[paths[:, :-1], paths[:, 1:]]
        return {"scores": (unary.sum(axis=(1, 2)) + pairwise.sum(axis=1)).tolist()}

    return digest


def trelliswork(params: Params) -> Task:
    """Ours, through the public interface; the distribution is constructed in the timed call.

    With ``"source": "numpy"``, through ``inference.chain``, on arrays: checks and layout are part of the call.
    """
    if params.get("source") == "numpy":
        return _on_arrays(params)
    import torch

    from trelliswork.distributions import LinearChain

    arrays = potentials(params)
    log_unary, log_pairwise = (torch.from_numpy(array) for array in arrays)

    def expectations() -> Any:
        return LinearChain(log_unary, log_pairwise).expectations()

    def viterbi() -> Any:
        return LinearChain(log_unary, log_pairwise).mode

    return _task(params, arrays, expectations, viterbi)


def _on_arrays(params: Params) -> Task:
    from trelliswork.inference import chain

    arrays = potentials(params)

    def expectations() -> Expectations:
        log_z, found = chain.expectations(chain.chain_potentials(*arrays), counts=True)
        return Expectations(log_z, found.marginals, found.counts)

    def viterbi() -> Any:
        return chain.viterbi(chain.chain_potentials(*arrays))[0]

    return _task(params, arrays, expectations, viterbi)


def dynamax(params: Params) -> Task:
    """dynamax, compiled and mapped over the batch.

    Its filters take any non-negative matrix, so the transition matrix is ``exp(log_pairwise)`` and the
    initial distribution all ones; the "log likelihood" is then log Z. Its two-filter smoother is not
    faster.
    """
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model.inference import hmm_posterior_mode, hmm_smoother

    arrays = potentials(params)
    log_unary, log_pairwise = (jnp.asarray(array) for array in arrays)
    ones, pairwise = jnp.ones(params["S"]), jnp.exp(log_pairwise)

    @jax.jit
    def smooth(log_unary: Any, pairwise: Any) -> Any:
        post = jax.vmap(hmm_smoother, (None, None, 0))(ones, pairwise, log_unary)
        return post.marginal_loglik, post.smoothed_probs, post.trans_probs

    @jax.jit
    def mode(log_unary: Any, pairwise: Any) -> Any:
        return jax.vmap(hmm_posterior_mode, (None, None, 0))(ones, pairwise, log_unary)

    def expectations() -> Expectations:
        return Expectations(*jax.block_until_ready(smooth(log_unary, pairwise)))

    def viterbi() -> Any:
        return jax.block_until_ready(mode(log_unary, pairwise))

    return _task(params, arrays, expectations, viterbi)


def pytorch_crf(params: Params) -> Task:
    """pytorch-crf: its normalizer and the gradients of that, which are the marginals.

    The edge marginals are summed over the batch, which is less work than ours. The mask is
    boolean, since ``torch.where`` no longer takes bytes.
    """
    import torch
    import torchcrf

    arrays = potentials(params)
    log_unary, log_pairwise = (torch.from_numpy(array) for array in arrays)
    emissions = log_unary.transpose(0, 1).contiguous().requires_grad_()
    mask = torch.ones(emissions.shape[:2], dtype=torch.bool)
    crf = torchcrf.CRF(params["S"])
    with torch.no_grad():
        crf.transitions.copy_(log_pairwise)
        crf.start_transitions.zero_()
        crf.end_transitions.zero_()

    def expectations() -> Expectations:
        log_z = crf._compute_normalizer(emissions, mask)
        marginals, counts = torch.autograd.grad(log_z.sum(), (emissions, crf.transitions))
        return Expectations(log_z.detach(), marginals.transpose(0, 1), counts)

    @torch.no_grad()
    def viterbi() -> Any:
        return crf.decode(emissions, mask)

    return _task(params, arrays, expectations, viterbi)


def supar(params: Params) -> Task:
    """SuPar's structs: log partition and its gradients with respect to both scores.

    The gradients are computed in one pass and without a graph, which is cheaper than its
    ``marginals``; the edge marginals are summed over the batch.
    """
    import torch

    _bypass_supar_init()
    from supar.structs import LinearChainCRF

    S = params["S"]
    arrays = potentials(params)
    scores = torch.from_numpy(arrays[0]).requires_grad_()
    trans = torch.zeros(S + 1, S + 1)  # the last row and column are for start and end
    trans[:-1, :-1] = torch.from_numpy(arrays[1])

    def expectations() -> Expectations:
        edges = trans.detach().requires_grad_()
        log_z = LinearChainCRF(scores, edges).log_partition
        marginals, counts = torch.autograd.grad(log_z.sum(), (scores, edges))
        return Expectations(log_z.detach(), marginals, counts[:-1, :-1])

    def viterbi() -> Any:
        return LinearChainCRF(scores, trans).argmax

    return _task(params, arrays, expectations, viterbi)


def torch_struct(params: Params) -> Task:
    """torch-struct on edge potentials (B, T-1, next, previous), which are computed before the timing.

    The marginals are the gradient of one ``partition`` without a graph, which takes half the time and memory of
    ``partition`` and ``marginals``.
    """
    import torch
    import torch_struct
    from torch.distributions import Distribution

    Distribution.set_default_validate_args(False)  # it declares no constraints, for which torch warns
    arrays = potentials(params)
    log_unary, log_pairwise = (torch.from_numpy(array) for array in arrays)
    edges = log_unary[:, 1:, :, None] + log_pairwise.T
    edges[:, 0] += log_unary[:, 0, None, :]
    edges.requires_grad_()

    def expectations() -> Expectations:
        log_z = torch_struct.LinearChainCRF(edges).partition
        (marginals,) = torch.autograd.grad(log_z.sum(), edges)
        nodes = torch.cat([marginals[:, :1].sum(dim=2), marginals.sum(dim=3)], dim=1)
        return Expectations(log_z.detach(), nodes, marginals.sum(dim=1).transpose(1, 2))

    def viterbi() -> Any:
        best = torch_struct.LinearChainCRF(edges).argmax  # one-hot, as edges
        return torch.cat([best[:, :1].sum(dim=2), best.sum(dim=3)], dim=1).argmax(dim=-1)

    return _task(params, arrays, expectations, viterbi)


def _task(
    params: Params, arrays: tuple[Array, Array], expectations: Callable[[], Any], viterbi: Callable[[], Any]
) -> Task:
    if params["task"] == "viterbi":
        return Task(viterbi, digest_labels(*arrays))
    return Task(expectations, digest_expectations)


def _bypass_supar_init() -> None:
    """Make ``supar.structs`` importable alone: the __init__ of the package imports stanza and transformers."""
    if "supar" in sys.modules:
        return
    spec = importlib.util.find_spec("supar")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("No module named 'supar'")
    root = Path(next(iter(spec.submodule_search_locations)))
    for name, folder in (("supar", root), ("supar.utils", root / "utils")):
        module = types.ModuleType(name)
        module.__path__ = [str(folder)]
        sys.modules[name] = module
