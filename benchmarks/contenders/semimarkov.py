"""Semi-Markov chains: ours and torch-struct on the same scores of segments and transitions.

Each function takes ``{"B": ..., "T": ..., "L": ..., "S": ..., "at_once": ..., "seed": ...}`` and computes log Z and the
marginals of segments (B, T, L, S). ``at_once`` is the number of sequences in a call of the peer. Inputs are converted
to the layout of the peer before the timing.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.declarations import Params, Task

Array = npt.NDArray[np.float32]
NEVER = -1e9  # the peer has no -inf


class Segments(NamedTuple):
    """log Z (B,) and the marginals of segments (B, T, L, S)."""

    log_z: Any
    marginals: Any


def potentials(params: Params) -> tuple[Array, Array]:
    """Return the seeded ``log_segment`` (B, T, L, S) and ``log_pairwise`` (S, S), standard normal float32."""
    B, T, L, S = (params[name] for name in ("B", "T", "L", "S"))
    rng = np.random.default_rng(params["seed"])
    return rng.standard_normal((B, T, L, S), dtype=np.float32), rng.standard_normal((S, S), dtype=np.float32)


def digest(result: Segments) -> dict[str, Any]:
    """Return log Z of 3 sequences, the marginals at 2 positions and the expected number of segments."""
    log_z, marginals = (np.asarray(array, dtype=np.float64) for array in result)
    return {"log_z": log_z[:3].tolist(), "marginals": marginals[0, :2].tolist(), "n_segments": marginals.sum()}


def trelliswork(params: Params) -> Task:
    """Ours, through the public interface; the distribution is constructed in the timed call."""
    import torch

    from trelliswork.distributions import SemiMarkovChain

    log_segment, log_pairwise = (torch.from_numpy(array) for array in potentials(params))

    def expectations() -> Segments:
        found = SemiMarkovChain(log_segment, log_pairwise).expectations()
        return Segments(found.log_z, found.marginals)

    return Task(expectations, digest)


def torch_struct(params: Params) -> Task:
    """torch-struct: log Z and its gradient, without a graph, summed over the labels before each segment.

    Its edges are (B, T, L+1, S, S): start, length, label, label before. The label before the first segment is fixed.
    It multiplies matrices of L S x L S in log space; a few sequences at once need least time and fit into memory.
    """
    import torch
    from torch_struct import LogSemiring, SemiMarkov

    log_segment, log_pairwise = potentials(params)
    B, T, L, S = log_segment.shape
    edges = np.full((B, T, L + 1, S, S), NEVER, np.float32)
    edges[:, :, 1:] = log_segment[..., None] + log_pairwise.T
    edges[:, 0] = NEVER
    edges[:, 0, 1:, :, 0] = log_segment[:, 0]
    for t in range(T):
        edges[:, t, T - t + 1 :] = NEVER  # segments that leave the sequence
    groups = torch.from_numpy(edges).split(params["at_once"])

    def expectations() -> Segments:
        found = []
        for group in groups:
            scores = group.detach().requires_grad_()
            log_z = SemiMarkov(LogSemiring).logpartition(scores)[0].squeeze(0)
            (marginals,) = torch.autograd.grad(log_z.sum(), scores)
            found.append((log_z.detach(), marginals[:, :, 1:].sum(dim=4)))
        return Segments(*(torch.cat(values) for values in zip(*found, strict=True)))

    return Task(expectations, digest)
