"""Low-rank HMMs: ours, our dense model, and the same recursion with torch autograd.

Each function takes ``{"B": sentences, "T": words, "S": states, "R": rank, "W": word types, "seed": ...}`` and returns
the log evidence of each sentence with its gradients by transition and emission. ``dense`` computes the log evidence
without gradients, which favors it. The task ``forward`` has no gradients for any contender; the task ``inside`` is that
of ``contenders.inside``.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.contenders import inside
from benchmarks.declarations import Contender, Params, Reference, Task

Array = npt.NDArray[np.float32]


class Evidence(NamedTuple):
    """log Z (B,), gradients by left (S, R) and by log emission (W, S); ``None`` without gradients."""

    log_z: Any
    left: Any
    emission: Any


def model(params: Params) -> tuple[Array, Array, Array, Array]:
    """Return the seeded start (S,), left and right (S, R) and emission (W, S), all normalized, float32."""
    S, R, W = (params[name] for name in ("S", "R", "W"))
    rng = np.random.default_rng(params["seed"])
    start, left, right, emission = (
        np.exp(rng.standard_normal(shape, dtype=np.float32)) for shape in ((S,), (S, R), (S, R), (W, S))
    )
    left /= (left @ right.sum(axis=0))[:, None]
    return start / start.sum(), left, right, emission / emission.sum(axis=0)


def words(params: Params) -> npt.NDArray[np.int64]:
    """Return the seeded words (B, T)."""
    return np.random.default_rng(params["seed"] + 1).integers(0, params["W"], (params["B"], params["T"]))


def digest(result: Evidence) -> dict[str, Any]:
    """Return log Z of 3 sentences, which all contenders have."""
    return {"log_z": np.asarray(result.log_z, dtype=np.float64)[:3].tolist()}


def _tensors(params: Params) -> tuple[Any, ...]:
    import torch

    return tuple(torch.from_numpy(array) for array in model(params))


def trelliswork(params: Params) -> Task:
    """Ours, through the torch function: forward and backward."""
    if params.get("task") == "inside":
        return inside.low_rank(params)
    from trelliswork.inference.lowrank import LowRank, log_evidence

    start, left, right, emission = _tensors(params)
    if params.get("task") == "forward":
        return _forward(LowRank(left, right), start, emission, params)
    leaves = [x.requires_grad_() for x in (start.log(), left, right, emission.log())]
    ids, offsets = words(params).ravel(), np.arange(0, params["B"] * params["T"] + 1, params["T"])

    def call() -> Evidence:
        for leaf in leaves:
            leaf.grad = None
        log_z = log_evidence(leaves[0], LowRank(leaves[1], leaves[2]), leaves[3], ids, offsets)
        log_z.sum().backward()
        return Evidence(log_z.detach(), leaves[1].grad, leaves[3].grad)

    return Task(call, digest)


def dense(params: Params) -> Task:
    """Our dense model of the same matrix, forward only; the matrix is built before the timing."""
    if params.get("task") == "inside":
        return inside.dense(params)
    from trelliswork.inference.lowrank import Dense, LowRank

    start, left, right, emission = _tensors(params)
    return _forward(Dense(LowRank(left, right).dense()[0]), start, emission, params)


def _forward(transition: Any, start: Any, emission: Any, params: Params) -> Task:
    """Return the task of the log evidence alone."""
    from trelliswork.inference.lowrank import score

    given = start.log(), transition, emission.log()
    ids, offsets = words(params).ravel(), np.arange(0, params["B"] * params["T"] + 1, params["T"])
    return Task(lambda: Evidence(score(*given, ids, offsets), None, None), digest)


def torch_autograd(params: Params) -> Task:
    """The plain recursion with normalized states, gradients by autograd."""
    if "task" in params:
        raise NotImplementedError("plain torch is measured with gradients only, and has no grammar")
    import torch

    start, left, right, emission = _tensors(params)
    leaves = [x.requires_grad_() for x in (start.log(), left, right, emission.log())]
    ids = torch.from_numpy(words(params))

    def call() -> Evidence:
        for leaf in leaves:
            leaf.grad = None
        first, a, b, scores = leaves
        p = torch.exp(scores)
        alpha = torch.exp(first)[None] * p[ids[:, 0]]
        norm = alpha.sum(dim=1, keepdim=True)
        log_z = torch.log(norm[:, 0])
        for t in range(1, ids.shape[1]):
            alpha = ((alpha / norm) @ a) @ b.T * p[ids[:, t]]
            norm = alpha.sum(dim=1, keepdim=True)
            log_z = log_z + torch.log(norm[:, 0])
        log_z.sum().backward()
        return Evidence(log_z.detach(), leaves[1].grad, leaves[3].grad)

    return Task(call, digest)


def thin_products(params: Params) -> Task:
    """The matrix products of one pass alone, in the same shapes."""
    import torch

    B, T, S, R = (params[name] for name in ("B", "T", "S", "R"))
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(S, R, generator=generator) for _ in range(2))
    states, features = torch.randn(B, S, generator=generator), torch.empty(B, R)
    rows, deep = torch.randn(B * T, S, generator=generator), torch.randn(B * T, R, generator=generator)
    sums = torch.empty(S, R)

    def call() -> None:
        for _ in range(2 * (T - 1)):  # forward and backward
            torch.mm(states, left, out=features)
            torch.mm(features, right.T, out=states)
            states.fill_(1.0)
        for _ in range(2):  # the gradients of left and right
            torch.mm(rows.T, deep, out=sums)

    return Task(call)


def thin_reference(B: int, T: int, S: int, R: int) -> Reference:
    """Return a reference for the rate of GEMMs of the same shapes."""
    n_flops = 2.0 * B * S * R * (4 * (T - 1) + 2 * T)

    return Reference(
        contender=Contender("gemm", "benchmarks.contenders.lowrank:thin_products", environment="", packages=("torch",)),
        params={"B": B, "T": T, "S": S, "R": R},
        describe=lambda seconds: {"gflops": n_flops / seconds / 1e9},
        relate=lambda ours, theirs: {"gemm_fraction": theirs / ours},
    )
