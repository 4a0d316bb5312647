"""Training of log-bilinear language models: exact softmax, gradients by hand, AdaGrad on mini-batches of contexts.

The normalizer depends on the context alone, so tokens with the same context share it: an epoch processes distinct
contexts (one third of the tokens of English text at K = 2), each with the words that follow it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads
from trelliswork.compute.limits import check_cost
from trelliswork.compute.torch_threads import one_thread
from trelliswork.inference.lifted import tiles
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Saved, Watch
from trelliswork.models.baselines.base import Tokens
from trelliswork.models.baselines.ngrams import positions_in_sentence

_MOST = 16  # tokens of one context in one batch, so that frequent contexts do not dominate a step
_EPSILON = 1e-8
_PARTS = 4  # of a batch or of the parameters, for as many threads


@dataclass
class LBLParameters:
    """``context`` (C, D) vectors of words before, ``mixing`` (K, D, D), ``target`` (C, D) and ``bias`` (C,)."""

    context: Tensor
    mixing: Tensor
    target: Tensor
    bias: Tensor

    def tensors(self) -> list[Tensor]:
        """Return all tensors."""
        return [self.context, self.mixing, self.target, self.bias]

    def copy(self) -> LBLParameters:
        """Return a copy."""
        return LBLParameters(*(tensor.clone() for tensor in self.tensors()))

    def predict(self, contexts: Tensor) -> Tensor:
        """Return the predicted vectors (B, D) of contexts (B, K)."""
        vectors = self.context[contexts]
        return torch.einsum("bkd,kde->be", vectors, self.mixing)


def contexts_of(flat: Tokens, offsets: Tokens, K: int) -> tuple[Tokens, Tokens]:
    """Return the K words before each event, nearest first, ``<s>`` beyond the start (n, K); and the events (n,)."""
    depth = positions_in_sentence(len(flat), offsets)
    at = np.flatnonzero(depth > 0)
    contexts = np.zeros((len(at), K), np.int64)
    for k in range(1, K + 1):
        inside = depth[at] >= k
        contexts[inside, k - 1] = flat[at[inside] - k]
    return contexts, flat[at]


def start(C: int, K: int, rank: int, counts: NDArray[np.int64], seed: int) -> LBLParameters:
    """Return small random vectors, and the log frequencies of words as biases: the unigram model."""
    check_cost(f"a model of rank {rank:,} for {C:,} words", n_bytes=16.0 * (2 * C * rank + K * rank**2))
    generator = torch.Generator().manual_seed(seed)
    vectors = [torch.randn(C, rank, generator=generator) * 0.1 for _ in range(2)]
    mixing = torch.eye(rank).repeat(K, 1, 1) / K
    bias = torch.from_numpy(np.log((counts + 0.5) / (counts + 0.5).sum()).astype(np.float32))
    return LBLParameters(vectors[0], mixing, vectors[1], bias)


Batch = tuple[Tensor, Tensor, Tensor, Tensor]  # contexts (B, K), their numbers of tokens (B,), rows and words (T,)


@dataclass
class _Pieces:
    """Tokens grouped by context: piece p has ``context[p]`` and the words ``words[ends[p] : ends[p + 1]]``."""

    context: Tokens
    ends: Tokens
    words: Tokens

    @classmethod
    def of(cls, contexts: Tokens, words: Tokens, C: int, rng: np.random.Generator | None) -> _Pieces:
        """Group tokens by context; with ``rng`` the words of a context are split into pieces at random."""
        order = np.arange(len(words)) if rng is None else rng.permutation(len(words))
        for k in range(contexts.shape[1]):
            order = order[np.argsort(contexts[order, k], kind="stable")]
        sorted_contexts = contexts[order]
        new = np.ones(len(words), bool)
        new[1:] = (sorted_contexts[1:] != sorted_contexts[:-1]).any(axis=1)
        first = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        if rng is not None:
            new |= (np.arange(len(new)) - first) % _MOST == 0
        firsts = np.flatnonzero(new)
        return cls(sorted_contexts[firsts], np.append(firsts, len(words)), words[order])

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield random batches of about ``size`` tokens."""
        order, N = rng.permutation(len(self.context)), len(self.words)
        lengths = np.diff(self.ends)[order]
        edges = np.searchsorted(np.cumsum(lengths), np.arange(0, N + size, size), side="right")
        for a, b in pairwise(np.unique(edges).tolist()):
            some, n = order[a:b], lengths[a:b]
            rows = np.repeat(np.arange(len(some)), n)
            within = np.arange(len(rows)) - np.repeat(np.cumsum(n) - n, n)
            words = self.words[self.ends[some][rows] + within]
            yield tuple(map(torch.from_numpy, (self.context[some], n.astype(np.float32), rows, words)))  # type: ignore[misc]


def gradients(p: LBLParameters, contexts: Tensor, n: Tensor, rows: Tensor, words: Tensor) -> tuple[float, list[Tensor]]:
    """Return minus the log-likelihood of a batch, and its gradient by ``context, mixing, target, bias``."""
    vectors = p.context[contexts]
    predicted = torch.einsum("bkd,kde->be", vectors, p.mixing)
    log_norm, d_predicted, d_target, d_bias = _expected(p, predicted, n)
    seen, targets = predicted[rows], p.target[words]
    observed = (seen * targets).sum(1) + p.bias[words]
    loss = float(n.double() @ log_norm) - float(observed.sum(dtype=torch.float64))
    d_target.index_add_(0, words, seen, alpha=-1)
    d_predicted.index_add_(0, rows, targets, alpha=-1)
    d_bias.sub_(torch.bincount(words, minlength=len(p.bias)))
    d_mixing = torch.einsum("bkd,be->kde", vectors, d_predicted)
    d_vectors = torch.einsum("be,kde->bkd", d_predicted, p.mixing)
    d_context = torch.zeros_like(p.context).index_add_(0, contexts.flatten(), d_vectors.flatten(0, 1))
    return loss, [d_context, d_mixing, d_target, d_bias]


def _expected(p: LBLParameters, predicted: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return log Z of each context (B,), and the gradient of sum n log Z by predicted vectors, ``target``, ``bias``.

    Few rows per thread, so that their probabilities stay in the cache; the partition depends on sizes alone.
    """
    B, D = predicted.shape
    C = len(p.bias)
    right = _wide(p.target, p.bias)
    left = _wide(predicted, torch.ones(B, dtype=predicted.dtype))
    across = right.T.contiguous()
    ranges = threads.cut(np.full(B, C), multiple=16, least=100_000, most=_PARTS)
    number = {start: k for k, (start, _) in enumerate(ranges)}
    parts = torch.zeros(len(ranges), *right.shape, dtype=right.dtype)
    log_norm, d_left = torch.empty(B, dtype=torch.float64), torch.empty_like(left)
    height = tiles.tile_rows(C, right.element_size())

    def work(first: int, stop: int) -> None:
        total = parts[number[first]]
        for a in range(first, stop, height):
            b = min(a + height, stop)
            odds = left[a:b] @ across
            top = odds.amax(1, keepdim=True)
            norm = odds.sub_(top).exp_().sum(1, keepdim=True)
            log_norm[a:b] = (top.double() + norm.double().log())[:, 0]
            share = n[a:b, None] / norm
            torch.mul(odds @ right, share, out=d_left[a:b])
            total.addmm_(odds.T, left[a:b] * share)

    tiles.run(work, ranges)
    d_right = parts.sum(0)
    return log_norm, d_left[:, :D].contiguous(), d_right[:, :D].contiguous(), d_right[:, D].contiguous()


def _wide(vectors: Tensor, column: Tensor) -> Tensor:
    """Return vectors with one more column, padded with zeros to a fast width."""
    n, D = vectors.shape
    wide = torch.zeros(n, -(-(D + 1) // tiles.WIDE) * tiles.WIDE, dtype=vectors.dtype)
    wide[:, :D], wide[:, D] = vectors, column
    return wide


def log_likelihoods(p: LBLParameters, contexts: Tokens, words: Tokens) -> NDArray[np.float64]:
    """Return the exact log p of each word after its context (n,)."""
    C = len(p.bias)
    if not len(words):
        return np.zeros(0)
    if C ** contexts.shape[1] < 2**62:
        keys = contexts @ (C ** np.arange(contexts.shape[1]))
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        distinct = contexts[first]
    else:
        distinct, inverse = np.unique(contexts, axis=0, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    across = p.target.T.contiguous()
    log_p = np.empty(len(words))
    height = tiles.tile_rows(C, p.bias.element_size())

    def work(start: int, stop: int) -> None:
        for a in range(start, stop, height):
            b = min(a + height, stop)
            some = order[ends[a] : ends[b]]
            scores = torch.addmm(p.bias, p.predict(torch.from_numpy(distinct[a:b])), across)
            rows = torch.from_numpy(inverse[some] - a)
            chosen = scores[rows, torch.from_numpy(words[some])].double()
            top = scores.amax(1, keepdim=True)
            log_norm = top[:, 0].double() + scores.sub_(top).exp_().sum(1).double().log()
            log_p[some] = (chosen - log_norm[rows]).numpy()

    tiles.run(work, tiles.row_ranges(len(distinct), C))
    return log_p


def _step(p: LBLParameters, slopes: list[Tensor], sums: list[Tensor], rate: float, l2: float, n_tokens: int) -> None:
    """Take one step of AdaGrad on the mean over a batch."""

    def work(start: int, stop: int) -> None:
        for tensor, slope, squares in zip(p.tensors(), slopes, sums, strict=True):
            if tensor is p.mixing:
                if start > 0:
                    continue
                x, g, s = tensor, slope, squares
            else:
                x, g, s = tensor[start:stop], slope[start:stop], squares[start:stop]
            if tensor is not p.bias:
                g.add_(x, alpha=l2)
            g.div_(n_tokens)
            s.addcmul_(g, g)
            x.addcdiv_(g, s.sqrt().add_(_EPSILON), value=-rate)

    C = len(p.bias)
    tiles.run(work, threads.cut(np.full(C, p.target.shape[1]), least=10_000, most=_PARTS))


def train(
    p: LBLParameters,
    data: tuple[Tokens, Tokens],
    watch: Watch,
    *,
    learning_rate: float,
    l2: float,
    batch_size: int,
    max_iter: int,
    seed: int,
) -> FitReport:
    """Train parameters in place by AdaGrad; they end as the best ones.

    After an epoch without an improvement on the development data (without such data, of training) it continues from the
    best epoch with half the rate.
    """
    rng, rate = np.random.default_rng(seed), learning_rate
    sums = [torch.zeros_like(tensor) for tensor in p.tensors()]
    report = FitReport(False, f"{max_iter} epochs", np.nan)
    best, best_value, worse = p.copy(), -np.inf, 0
    groups = {"now": p.tensors(), "best": best.tensors(), "sums": sums}

    def state() -> Saved:
        plain = {"rng": rng.bit_generator.state, "rate": rate, "best_value": best_value, "worse": worse}
        arrays = {f"{name}.{k}": x.numpy() for name, group in groups.items() for k, x in enumerate(group)}
        return plain | {"history": report.steps()}, arrays

    saved = watch.resume()
    if saved is not None:
        plain, arrays = saved
        rng.bit_generator.state = plain["rng"]
        rate, best_value, worse = plain["rate"], plain["best_value"], plain["worse"]
        report.resume(plain["history"])
        for name, group in groups.items():
            _copy(group, [torch.from_numpy(arrays[f"{name}.{k}"]) for k in range(len(group))])
    started, n_tokens = time.perf_counter() - report.seconds, len(data[1])
    while True:
        if watch.development is None and worse >= watch.patience:
            report.reason, report.converged = f"no better likelihood for {worse} epochs", True
            break
        iteration = report.n_iter + 1
        if iteration > max_iter:
            break
        total = 0.0
        for batch in _Pieces.of(*data, len(p.bias), rng).batches(batch_size, rng):
            with one_thread():  # small products outside of tiles: waiting for each other costs more than it saves
                loss, slopes = gradients(p, *batch)
            total -= loss
            n = len(batch[3])
            _step(p, slopes, sums, rate, 2 * l2 * n / n_tokens, n)
        step = Step(
            iteration,
            -total / n_tokens,
            seconds=time.perf_counter() - started,
            learning_rate=rate,
            n_tokens=iteration * n_tokens,
        )
        report.add(step)
        measured = watch.measure(step, {})
        value = total / n_tokens if measured is None else measured
        if value > best_value:
            best_value, worse = value, 0
            _copy(best.tensors(), p.tensors())
        else:
            worse, rate = worse + 1, rate / 2
            _copy(p.tensors(), best.tensors())
        reason = watch.after(step, {}, state)
        if reason is not None:
            report.reason, report.converged = reason, not watch.interrupted
            break
    watch.finish({}, report)
    _copy(p.tensors(), best.tensors())
    report.value = report.history[max(report.n_iter - worse, 1) - 1].value
    return report


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
