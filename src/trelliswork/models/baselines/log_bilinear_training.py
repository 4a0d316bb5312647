"""Training of log-bilinear language models: exact softmax, AdaGrad on mini-batches of contexts.

The normalizer depends on the context alone, so tokens with the same context share it: an epoch processes distinct
contexts (one third of the tokens of English text at K = 2), each with the words that follow it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute.limits import check_cost
from trelliswork.compute.torch_threads import one_thread
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Saved, Watch
from trelliswork.models.baselines.base import Tokens
from trelliswork.models.baselines.ngrams import positions_in_sentence

if TYPE_CHECKING:
    from trelliswork.models.baselines.log_bilinear import LogBilinear

_MOST = 16  # tokens of one context in one batch, so that frequent contexts do not dominate a step
_EPSILON = 1e-8
_SCORES = 1 << 22  # scores of words that are in memory at a time


class LBLParameters(NamedTuple):
    """``context`` (C, D) vectors of words before, ``mixing`` (K, D, D), ``target`` (C, D) and ``bias`` (C,)."""

    context: Tensor
    mixing: Tensor
    target: Tensor
    bias: Tensor

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
    order: Tokens  # places of the words in the text

    @classmethod
    def of(cls, contexts: Tokens, words: Tokens, rng: np.random.Generator | None) -> _Pieces:
        """Group tokens by context; with ``rng`` the words of a context are split into pieces at random."""
        order = np.arange(len(words)) if rng is None else rng.permutation(len(words))
        order = order[np.lexsort(contexts[order].T)]
        sorted_contexts = contexts[order]
        new = np.ones(len(words), bool)
        new[1:] = (sorted_contexts[1:] != sorted_contexts[:-1]).any(axis=1)
        first = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        if rng is not None:
            new |= (np.arange(len(new)) - first) % _MOST == 0
        firsts = np.flatnonzero(new)
        return cls(sorted_contexts[firsts], np.append(firsts, len(words)), words[order], order)

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


def log_likelihood(p: LBLParameters, contexts: Tensor, n: Tensor, rows: Tensor, words: Tensor) -> Tensor:
    """Return the log-likelihood of a batch."""
    scores = torch.addmm(p.bias, p.predict(contexts), p.target.T)
    return scores[rows, words].sum() - n @ scores.logsumexp(1)


def log_likelihoods(p: LBLParameters, contexts: Tokens, words: Tokens) -> NDArray[np.float64]:
    """Return the exact log p of each word after its context (n,)."""
    log_p = np.empty(len(words))
    pieces = _Pieces.of(contexts, words, None)
    at_once = max(1, _SCORES // len(p.bias))
    with one_thread():
        for a in range(0, len(pieces.context), at_once):
            some = slice(pieces.ends[a], pieces.ends[min(a + at_once, len(pieces.context))])
            scores = torch.addmm(p.bias, p.predict(torch.from_numpy(pieces.context[a : a + at_once])), p.target.T)
            rows = np.repeat(np.arange(len(scores)), np.diff(pieces.ends[a : a + at_once + 1]))
            log_p[pieces.order[some]] = scores.double().log_softmax(1)[rows, pieces.words[some]].numpy()
    return log_p


def train(p: LBLParameters, data: tuple[Tokens, Tokens], watch: Watch, model: LogBilinear) -> FitReport:
    """Train parameters in place by AdaGrad; they end as the best ones.

    After an epoch without an improvement on the development data (without such data, of training) it continues from the
    best epoch with half the rate.
    """
    rng, adagrad = np.random.default_rng(model.seed), torch.optim.Adagrad(p, lr=model.learning_rate, eps=_EPSILON)
    report, options = FitReport(False, f"{model.max_iter} epochs", np.nan), adagrad.param_groups[0]
    best, best_value, worse = [x.clone() for x in p], -np.inf, 0
    groups = {"now": p, "best": best, "sums": [adagrad.state[x]["sum"] for x in p]}

    def state() -> Saved:
        plain = {"rng": rng.bit_generator.state, "rate": options["lr"], "best_value": best_value, "worse": worse}
        arrays = {f"{name}.{k}": x.numpy() for name, group in groups.items() for k, x in enumerate(group)}
        return plain | {"history": report.steps()}, arrays

    saved = watch.resume()
    if saved is not None:
        plain, arrays = saved
        rng.bit_generator.state = plain["rng"]
        options["lr"], best_value, worse = plain["rate"], plain["best_value"], plain["worse"]
        report.resume(plain["history"])
        for name, group in groups.items():
            _copy(group, [torch.from_numpy(arrays[f"{name}.{k}"]) for k in range(len(group))])
    started, n_tokens = time.perf_counter() - report.seconds, len(data[1])
    while True:
        if watch.development is None and worse >= watch.patience:
            report.reason, report.converged = f"no better likelihood for {worse} epochs", True
            break
        iteration = report.n_iter + 1
        if iteration > model.max_iter:
            break
        total = 0.0
        with one_thread():  # so that results do not depend on the number of threads
            for batch in _Pieces.of(*data, rng).batches(model.batch_size, rng):
                n = len(batch[3])
                for x in p:
                    x.requires_grad_()
                log_p = log_likelihood(p, *batch)
                squares = torch.stack([x.square().sum() for x in p[:3]]).sum()
                slopes = torch.autograd.grad((model.l2 * n / n_tokens * squares - log_p) / n, p)
                total += log_p.item()
                for x, slope in zip(p, slopes, strict=True):
                    x.requires_grad_(False)
                    x.grad = slope
                adagrad.step()
        step = Step(
            iteration,
            -total / n_tokens,
            seconds=time.perf_counter() - started,
            learning_rate=options["lr"],
            n_tokens=iteration * n_tokens,
        )
        report.add(step)
        measured = watch.measure(step, {})
        value = total / n_tokens if measured is None else measured
        if value > best_value:
            best_value, worse = value, 0
            _copy(best, p)
        else:
            worse, options["lr"] = worse + 1, options["lr"] / 2
            _copy(p, best)
        reason = watch.after(step, {}, state)
        if reason is not None:
            report.reason, report.converged = reason, not watch.interrupted
            break
    watch.finish({}, report)
    _copy(p, best)
    report.value = report.history[max(report.n_iter - worse, 1) - 1].value
    return report


def _copy(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
