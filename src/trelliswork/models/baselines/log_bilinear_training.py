"""Training of log-bilinear language models: exact softmax, gradients by hand, AdaGrad on mini-batches of contexts.

The normaliser depends on the context alone, so that tokens with the same context share it: an epoch goes over distinct
contexts (one third of the tokens of English text at K = 2), each with the words that follow it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads
from trelliswork.compute.torch_threads import one_thread
from trelliswork.inference.lifted import tiles
from trelliswork.models.baselines.base import Tokens
from trelliswork.models.baselines.ngrams import positions_in_sentence

_MOST = 16  # tokens of one context that go into one batch, lest frequent contexts shake the steps
_EPSILON = 1e-8
_PARTS = 4  # of a batch or of the parameters, for as many threads


@dataclass
class Epoch:
    """How one epoch went; log-likelihoods are per token, ends of sentences counted."""

    iteration: int
    train: float
    dev: float | None
    seconds: float


@dataclass
class LBLParameters:
    """``context`` (C, D) vectors of words before, ``mixing`` (K, D, D), ``target`` (C, D) and ``bias`` (C,)."""

    context: Tensor
    mixing: Tensor
    target: Tensor
    bias: Tensor

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [self.context, self.mixing, self.target, self.bias]

    def copy(self) -> LBLParameters:
        """A copy of its own."""
        return LBLParameters(*(tensor.clone() for tensor in self.tensors()))

    def predict(self, contexts: Tensor) -> Tensor:
        """The predicted vectors (B, D) of contexts (B, K)."""
        vectors = self.context[contexts]
        return torch.einsum("bkd,kde->be", vectors, self.mixing)


def contexts_of(flat: Tokens, offsets: Tokens, K: int) -> tuple[Tokens, Tokens]:
    """The K words before each event, the nearest first, ``<S>`` beyond the begin (n, K); the events (n,)."""
    depth = positions_in_sentence(len(flat), offsets)
    at = np.flatnonzero(depth > 0)
    found = np.zeros((len(at), K), np.int64)
    for k in range(1, K + 1):
        inside = depth[at] >= k
        found[inside, k - 1] = flat[at[inside] - k]
    return found, flat[at]


def start(C: int, K: int, rank: int, counts: NDArray[np.int64], seed: int) -> LBLParameters:
    """Small random vectors, and the log frequencies of words as biases: the unigram model."""
    generator = torch.Generator().manual_seed(seed)
    vectors = [torch.randn(C, rank, generator=generator) * 0.1 for _ in range(2)]
    mixing = torch.eye(rank).repeat(K, 1, 1) / K
    bias = torch.from_numpy(np.log((counts + 0.5) / (counts + 0.5).sum()).astype(np.float32))
    return LBLParameters(vectors[0], mixing, vectors[1], bias)


@dataclass
class _Pieces:
    """Tokens grouped by context: piece p has ``context[p]`` and the words ``words[ends[p] : ends[p + 1]]``."""

    context: Tokens
    ends: Tokens
    words: Tokens

    @classmethod
    def of(cls, contexts: Tokens, words: Tokens, C: int, rng: np.random.Generator | None) -> _Pieces:
        """Group them; with ``rng`` the words of a context are dealt into pieces at random."""
        order = np.arange(len(words)) if rng is None else rng.permutation(len(words))
        for k in range(contexts.shape[1]):
            order = order[np.argsort(contexts[order, k], kind="stable")]
        sorted_contexts = contexts[order]
        new = np.concatenate([[True], (sorted_contexts[1:] != sorted_contexts[:-1]).any(axis=1)])
        begin = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        if rng is not None:
            new |= (np.arange(len(new)) - begin) % _MOST == 0
        firsts = np.flatnonzero(new)
        return cls(sorted_contexts[firsts], np.append(firsts, len(words)), words[order])

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Random batches of about so many tokens: contexts (B, K), tokens of each (B,), rows (T,), words (T,)."""
        order = rng.permutation(len(self.context))
        lengths = np.diff(self.ends)[order]
        edges = np.searchsorted(np.cumsum(lengths), np.arange(0, len(self.words) + size, size), side="right")
        for a, b in pairwise(np.unique(edges).tolist()):
            some, n = order[a:b], lengths[a:b]
            rows = np.repeat(np.arange(len(some)), n)
            within = np.arange(len(rows)) - np.repeat(np.cumsum(n) - n, n)
            words = self.words[self.ends[some][rows] + within]
            yield tuple(map(torch.from_numpy, (self.context[some], n.astype(np.float32), rows, words)))  # type: ignore[misc]


def gradients(p: LBLParameters, contexts: Tensor, n: Tensor, rows: Tensor, words: Tensor) -> tuple[float, list[Tensor]]:
    """Minus the log-likelihood of a batch, and its gradient by ``context, mixing, target, bias``."""
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
    """log Z of each context (B,), and the gradient of sum n log Z by the predicted vectors, ``target`` and ``bias``.

    Few rows a thread, so that their probabilities stay near the core; how they are cut depends on sizes alone.
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

    def work(begin: int, stop: int) -> None:
        total = parts[number[begin]]
        for a in range(begin, stop, height):
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
    """Vectors with one more column, filled with zeros to a width that is fast."""
    n, D = vectors.shape
    found = torch.zeros(n, -(-(D + 1) // tiles.WIDE) * tiles.WIDE, dtype=vectors.dtype)
    found[:, :D], found[:, D] = vectors, column
    return found


def log_likelihoods(p: LBLParameters, contexts: Tokens, words: Tokens) -> NDArray[np.float64]:
    """Exact log p of each word after its context (n,)."""
    C = len(p.bias)
    if C ** contexts.shape[1] < 2**62:
        keys = contexts @ (C ** np.arange(contexts.shape[1]))
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        distinct = contexts[first]
    else:
        distinct, inverse = np.unique(contexts, axis=0, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    across = p.target.T.contiguous()
    found = np.empty(len(words))
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
            found[some] = (chosen - log_norm[rows]).numpy()

    tiles.run(work, tiles.row_ranges(len(distinct), C))
    return found


def _step(p: LBLParameters, slopes: list[Tensor], sums: list[Tensor], rate: float, l2: float, n_tokens: int) -> None:
    """One step of AdaGrad on the mean of a batch."""

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
    dev: tuple[Tokens, Tokens] | None,
    *,
    rate: float,
    l2: float,
    batch_size: int,
    max_iter: int,
    patience: int,
    seed: int,
    max_seconds: float | None,
    callback: Callable[[Epoch], object] | None,
) -> tuple[LBLParameters, list[Epoch], str]:
    """AdaGrad from ``p`` (which is changed); the best parameters on ``dev``, what happened, and why it ended.

    After an epoch without a better figure on ``dev`` (of training, without ``dev``) it goes on from the best one with
    half the rate.
    """
    began, rng = time.perf_counter(), np.random.default_rng(seed)
    sums = [torch.zeros_like(tensor) for tensor in p.tensors()]
    history: list[Epoch] = []
    best, best_value, worse = p.copy(), -np.inf, 0
    n_tokens = len(data[1])
    for iteration in range(1, max_iter + 1):
        total, late = 0.0, False
        for batch in _Pieces.of(*data, len(p.bias), rng).batches(batch_size, rng):
            with one_thread():  # small products outside of tiles: waiting for each other costs more than it saves
                loss, slopes = gradients(p, *batch)
            total -= loss
            share = len(batch[3]) / n_tokens
            _step(p, slopes, sums, rate, l2 * share, len(batch[3]))
            late = max_seconds is not None and time.perf_counter() - began > max_seconds
            if late:
                break
        value = total / n_tokens if dev is None else float(log_likelihoods(p, *dev).mean())
        epoch = Epoch(iteration, total / n_tokens, None if dev is None else value, time.perf_counter() - began)
        history.append(epoch)
        if value > best_value or (late and dev is None):
            best, best_value, worse = p.copy(), value, 0
        else:
            worse, rate = worse + 1, rate / 2
            for tensor, old in zip(p.tensors(), best.tensors(), strict=True):
                tensor.copy_(old)
        if callback is not None and callback(epoch):
            return best, history, "stopped by the callback"
        if late:
            return best, history, "the time was over"
        if worse >= patience:
            return best, history, f"no better figure in {patience} epochs"
    return best, history, "max_iter was reached"
