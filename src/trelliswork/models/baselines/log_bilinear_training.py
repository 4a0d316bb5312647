"""Training of log-bilinear language models: exact softmax, AdaGrad on mini-batches of contexts.

The normalizer depends on the context alone, so tokens with the same context share it: an epoch processes distinct
contexts (one third of the tokens of English text at K = 2), each with the words that follow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute.limits import check_cost
from trelliswork.compute.torch_threads import one_thread
from trelliswork.learning.descent import descend
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Watch
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

    def batches(self, size: int, order: Tokens) -> Iterator[Batch]:
        """Yield batches of about ``size`` tokens, of the pieces in some order."""
        N = len(self.words)
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
    adagrad, n_tokens = torch.optim.Adagrad(p, lr=model.learning_rate, eps=_EPSILON), len(data[1])
    best, rng = LBLParameters(*(x.clone() for x in p)), np.random.default_rng(model.seed)
    each = ((k, _Pieces.of(*data, rng)) for k in count(1))
    shuffled = ((k, pieces, rng.permutation(len(pieces.context))) for k, pieces in each)

    def settled(steps: list[Step]) -> str | None:
        """Take note of the last epoch, before the next one."""
        since, n_worse = _since_best(steps)
        for kept, now in zip(best, p, strict=True):
            now.copy_(kept) if since else kept.copy_(now)
        adagrad.param_groups[0]["lr"] = model.learning_rate / 2**n_worse
        ended = watch.development is None and since >= watch.patience
        return f"no better likelihood for {since} epochs" if ended else None

    def epoch(number: int) -> Step:
        # Those before an interruption are drawn, too.
        pieces, order = next((one, order) for k, one, order in shuffled if k == number)
        total = 0.0
        with one_thread():  # so that results do not depend on the number of threads
            for batch in pieces.batches(model.batch_size, order):
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
        rate = adagrad.param_groups[0]["lr"]
        return Step(number, -total / n_tokens, learning_rate=rate, n_tokens=number * n_tokens)

    tensors = p._asdict() | {f"best {name}": x for name, x in best._asdict().items()}
    _, report = descend(
        epoch, tensors, adagrad, watch, max_iter=model.max_iter, settled=settled, snapshot=dict[str, Any]
    )
    settled(report.history)
    for kept, now in zip(best, p, strict=True):
        now.copy_(kept)
    report.value = report.history[max(report.n_iter - _since_best(report.history)[0], 1) - 1].value
    return report


def _since_best(steps: list[Step]) -> tuple[int, int]:
    """Return the number of epochs since the best one, and of all that were no better than those before."""
    since, n_worse, best = 0, 0, -np.inf
    for step in steps:
        value = -step.value if step.dev is None else step.dev
        since, n_worse, best = (0, n_worse, value) if value > best else (since + 1, n_worse + 1, best)
    return since, n_worse
