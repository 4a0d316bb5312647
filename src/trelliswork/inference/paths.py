"""log Z of structures that are paths of a graph, as a torch function: its gradient is the expected parts and pairs.

CPU tensors go through the compiled `Recursions`. Other devices, second derivatives and inverse temperatures use torch
operations over the edges, level by level; memory is then a few numbers per edge.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.inference.semirings import Expectations, Lattice, Recursions
from trelliswork.inference.tensors import doubles, exp, finite, plus


def expectations(recursions: Recursions, lattice: Lattice, parts: Tensor, pairs: Tensor) -> Expectations:
    """Return log Z (B,) and expected parts (B, P) and pairs (B, Q), arrays, from scores (B, ..) and (..)."""
    return recursions.expectations(lattice, doubles(parts).reshape(len(parts), -1), doubles(pairs).reshape(-1))


def log_partition(recursions: Recursions, lattice: Lattice, parts: Tensor, pairs: Tensor) -> Tensor:
    """Return log Z (B,) in float64 from CPU tensors of parts (B, ..) and pairs (..), differentiable twice."""
    return _LogPartition.apply(parts, pairs, recursions, lattice)


def torch_log_partition(
    recursions: Recursions, lattice: Lattice, parts: Tensor, pairs: Tensor, beta: float = 1, *, each: bool = False
) -> Tensor:
    """Return log Z (B,) in float64 by torch operations; ``beta`` is an inverse temperature, see `log_sum`.

    With ``each``, pairs (B, ..) are those of each sequence.
    """
    links, device = recursions.links(lattice), parts.device
    B, none = len(parts), torch.zeros(1, dtype=torch.float64, device=device)  # the score of no part, at index -1
    row, shared = parts[0].numel(), pairs[0].numel() if each else 0
    part = np.where(links.part >= 0, links.part + row * links.sequence, -1)
    pair = np.where(links.pair >= 0, links.pair + shared * links.sequence, -1)
    scores, between = (torch.cat([x.double().reshape(-1), none]) for x in (parts, pairs))
    term = scores[torch.from_numpy(part).to(device)] + between[torch.from_numpy(pair).to(device)]

    # Nodes are numbered again, by level; those without edges first, of which only node 0 of each sequence has a sum.
    ends = np.cumsum(lattice.nodes)
    level = np.zeros(ends[-1], np.int64)
    level[links.node] = links.level
    order = np.argsort(level, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    starts = np.searchsorted(level[order], np.arange(level.max() + 2))
    first = np.full(starts[1], -np.inf)
    first[place[ends - lattice.nodes]] = 0.0
    sums = [torch.from_numpy(first).to(device)]
    cuts = np.searchsorted(links.level, np.arange(1, len(starts)))
    for at, (start, stop) in enumerate(pairwise(cuts), 1):
        source = place[links.source[start:stop]]
        low = np.searchsorted(starts, source.min(), side="right") - 1  # the earliest level that leads here
        reached = torch.cat(sums[low:])[torch.from_numpy(source - starts[low]).to(device)]
        node = torch.from_numpy(place[links.node[start:stop]] - starts[at]).to(device)
        sums.append(_log_sum(reached + term[start:stop], node, int(starts[at + 1] - starts[at]), beta))
    return torch.cat(sums)[torch.from_numpy(place[ends - 1]).to(device)].reshape(B)


def _log_sum(values: Tensor, node: Tensor, n: int, beta: float) -> Tensor:
    """Return (log sum exp(beta value)) / beta (n,) over the values of each node, differentiable."""
    top = finite(values.new_full((n,), -torch.inf).scatter_reduce(0, node, values.detach(), "amax"))
    sums = values.new_zeros(n).index_add(0, node, exp(plus(values, -top[node]) * beta))
    positive = sums > 0
    return torch.where(positive, torch.where(positive, sums, 1).log() / beta + top, -torch.inf)


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor, pairs: Tensor, recursions: Recursions, lattice: Lattice) -> Tensor:
        ctx.structure = recursions, lattice
        ctx.save_for_backward(parts, pairs)
        if any(ctx.needs_input_grad[:2]):
            ctx.expected = expectations(recursions, lattice, parts, pairs)
            return torch.from_numpy(ctx.expected.log_z)
        scores = doubles(parts).reshape(len(parts), -1), doubles(pairs).reshape(-1)
        return torch.from_numpy(recursions.log_partition(lattice, *scores))

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> Any:
        parts, pairs = inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            wanted = [x for x in inputs if x.requires_grad]
            recursions, lattice = ctx.structure
            log_z = torch_log_partition(recursions, lattice, parts, pairs)
            total = (weights * torch.where(torch.isneginf(log_z), 0, log_z)).sum()
            found = iter(torch.autograd.grad(total, wanted, create_graph=True, materialize_grads=True))
            return *(next(found) if x.requires_grad else None for x in inputs), None, None
        by = weights.numpy()
        gradients = by[:, None] * ctx.expected.parts, by @ ctx.expected.pairs
        shaped = (torch.from_numpy(g).to(x.dtype).reshape(x.shape) for g, x in zip(gradients, inputs, strict=True))
        return *shaped, None, None
