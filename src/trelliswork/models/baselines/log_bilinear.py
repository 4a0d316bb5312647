r"""The log-bilinear language model (Mnih and Hinton, 2007), left contexts only, exactly normalised.

.. math::
   p(w \mid w_{-1}, \ldots, w_{-K}) \propto \exp\Big(b_w + q_w \cdot \sum_{l=1}^{K} C_l\, r_{w_{-l}}\Big)

The counterpart of the low-rank Markov random field of order K, which sees both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data.moments.files import Source
from trelliswork.data.moments.text import open_vocabulary, unknown_word
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.baselines.base import LeftToRight, Tokens, read_stream, with_boundaries


class LogBilinear(LeftToRight):
    """A log-bilinear language model: the word's vector against a mix of those of the K words before.

    Parameters
    ----------
    K : int
        Words that a word depends on.
    rank : int
        Length D of the vectors.
    rate, batch_size : float, int
        AdaGrad's first step size, and tokens a batch.
    l2 : float
        Penalty on the vectors: ``l2 / 2`` times their squared norm, against the log-likelihood of all tokens.
    max_iter, max_seconds : int, float or None
        Epochs and seconds at most.
    patience : int
        Stop after so many epochs without a better figure on the development text (without one, of training); the step
        size is halved after each of them.
    min_count, max_words : int
        Rarer words, and all but the so many most frequent ones, are the unknown word ``<unk>``.
    seed : int

    Attributes
    ----------
    vocabulary_ : Vocabulary
        Id 0, ``<S>``, is the begin of a sentence as a context and its end as an event.
    embeddings_ : ndarray (C, D)
        Vectors of words as targets.
    history_ : list of Epoch
        Log-likelihood per token of each epoch, on training (while it changed) and development text.
    reason_ : str
        Why training ended.

    Notes
    -----
    An epoch costs O(distinct contexts * C * D). Results do not depend on the number of threads.
    """

    kind: ClassVar[str] = "lbl"

    def __init__(
        self,
        K: int = 2,
        rank: int = 100,
        *,
        rate: float = 0.1,
        l2: float = 3.0,
        batch_size: int = 1000,
        max_iter: int = 30,
        max_seconds: float | None = None,
        patience: int = 3,
        min_count: int = 1,
        max_words: int | None = None,
        seed: int = 0,
    ) -> None:
        self.K = K
        self.rank = rank
        self.rate = rate
        self.l2 = l2
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.patience = patience
        self.min_count = min_count
        self.max_words = max_words
        self.seed = seed

    def fit(
        self,
        X: Source,
        y: object = None,
        *,
        dev: Source | None = None,
        callback: Callable[[Any], object] | None = None,
    ) -> Self:
        """Learn from a text.

        Parameters
        ----------
        X : path, list of paths, Corpus or list of sentences
            Text files (plain or gzip, one sentence a line), directories of them, or lists of words.
        dev : likewise, optional
            Development text: stop early and keep the best epoch.
        callback : callable, optional
            Called with the ``Epoch`` after each; a true answer stops.
        """
        from trelliswork.models.baselines.log_bilinear_training import contexts_of, start, train

        for name in ("K", "rank", "batch_size", "max_iter", "patience"):
            check_count(name, getattr(self, name))
        if not (self.rate > 0 and self.l2 >= 0):
            raise ValueRangeError(f"rate must be above 0 and l2 not below, got {self.rate} and {self.l2}.")
        vocabulary, ids = read_stream(X, min_count=self.min_count, max_words=self.max_words)
        data = contexts_of(*with_boundaries(ids), self.K)
        held_out = None
        if dev is not None:
            held_out = contexts_of(*with_boundaries(read_stream(dev, vocabulary=vocabulary)[1]), self.K)
        C = len(vocabulary)
        parameters = start(C, self.K, self.rank, np.bincount(data[1], minlength=C), self.seed)
        found, history, reason = train(
            parameters,
            data,
            held_out,
            rate=self.rate,
            l2=self.l2,
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            patience=self.patience,
            seed=self.seed,
            max_seconds=self.max_seconds,
            callback=callback,
        )
        self.vocabulary_, self._parameters_, self.history_, self.reason_ = vocabulary, found, history, reason
        return self

    @property
    def embeddings_(self) -> NDArray[np.float32]:
        """Vectors of words as targets (C, D)."""
        self._check_fitted()
        return self._parameters_.target.numpy()

    def _log_p(self, flat: Tokens, offsets: Tokens) -> NDArray[np.float64]:
        from trelliswork.models.baselines.log_bilinear_training import contexts_of, log_likelihoods

        found = np.zeros(len(flat))
        inside = np.ones(len(flat), bool)
        inside[offsets[:-1]] = False
        found[inside] = log_likelihoods(self._parameters_, *contexts_of(flat, offsets, self.K))
        return found

    def _next(self, context: Tokens) -> NDArray[np.float64]:
        import torch

        last = np.concatenate([np.zeros(self.K, np.int64), context])[: -self.K - 1 : -1].copy()
        p = self._parameters_
        scores = (p.predict(torch.from_numpy(last)[None])[0] @ p.target.T + p.bias).double()
        return torch.softmax(scores, dim=0).numpy()

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain = {
            "parameters": self.get_params(),
            "words": self.vocabulary_.items,
            "unknown": unknown_word(self.vocabulary_),
            "input": getattr(self, "input_", {}),
            "history": [vars(epoch) for epoch in self.history_],
            "reason": self.reason_,
        }
        names = ("context", "mixing", "target", "bias")
        return plain, {name: getattr(self._parameters_, name).numpy() for name in names}

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        import torch

        from trelliswork.models.baselines.log_bilinear_training import Epoch, LBLParameters

        self = cls(**plain["parameters"])
        vocabulary = open_vocabulary(plain["words"], plain["unknown"])
        C, D = len(vocabulary), self.rank
        shapes = {"context": (C, D), "mixing": (self.K, D, D), "target": (C, D), "bias": (C,)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise DataError(f"{name} must have shape {shape}, got {arrays[name].shape}: the file is damaged.")
            check_finite(name, arrays[name])
        self._parameters_ = LBLParameters(**{name: torch.from_numpy(arrays[name]) for name in shapes})
        self.vocabulary_, self.input_ = vocabulary, plain["input"]
        self.history_ = [Epoch(**epoch) for epoch in plain["history"]]
        self.reason_ = plain["reason"]
        return self
