"""log Z of structures that are paths of a graph, as a torch function: its gradient is the expected parts and pairs.

CPU tensors go through the compiled `Recursions`. Other devices and second derivatives use torch operations over the
edges, level by level; memory is then a few numbers per edge.
"""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.inference import tensors
from trelliswork.inference.semirings import Lattice, Recursions
from trelliswork.inference.tensors import doubles, exp, finite, plus


def log_partition(recursions: Recursions, lattice: Lattice, parts: Tensor, pairs: Tensor) -> Tensor:
    """Return log Z (B,) in float64 from CPU tensors of parts (B, ..) and pairs (..), differentiable twice."""
    scores = doubles(parts).reshape(len(parts), -1), doubles(pairs).reshape(-1)

    def compute(wanted: bool) -> Any:
        if not wanted:
            return recursions.log_partition(lattice, *scores), None
        log_z, nodes, sums = recursions.expectations(lattice, *scores)
        return log_z, lambda by: (by[:, None] * torch.from_numpy(nodes), by @ torch.from_numpy(sums))

    return tensors.log_partition(compute, partial(torch_log_partition, recursions, lattice), parts, pairs)


def torch_log_partition(
    recursions: Recursions, lattice: Lattice, parts: Tensor, pairs: Tensor, *, each: bool = False
) -> Tensor:
    """Return log Z (B,) in float64 by torch operations; with ``each``, pairs (B, ..) are those of each sequence."""
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
        sums.append(_log_sum(reached + term[start:stop], node, int(starts[at + 1] - starts[at])))
    return torch.cat(sums)[torch.from_numpy(place[ends - 1]).to(device)].reshape(B)


def _log_sum(values: Tensor, node: Tensor, n: int) -> Tensor:
    """Return log sum exp(value) (n,) over the values of each node, differentiable."""
    top = finite(values.new_full((n,), -torch.inf).scatter_reduce(0, node, values.detach(), "amax"))
    sums = values.new_zeros(n).index_add(0, node, exp(plus(values, -top[node])))
    positive = sums > 0
    return torch.where(positive, torch.where(positive, sums, 1).log() + top, -torch.inf)
