r"""The log-bilinear language model (Mnih and Hinton, 2007), left contexts only, exactly normalized.

.. math::
   p(w \mid w_{-1}, \ldots, w_{-K}) \propto \exp\Big(b_w + q_w \cdot \sum_{l=1}^{K} C_l\, r_{w_{-l}}\Big)

The counterpart of the low-rank Markov random field of order K, which sees both sides.
"""

import os
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.data.ids import Source
from trelliswork.data.vocabulary import Vocabulary
from trelliswork.errors import DataError
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.distributed import one_process
from trelliswork.learning.report import Callback, counting_callback
from trelliswork.learning.watch import Development
from trelliswork.models.base import Arrays, Description, check_finite, watch_for
from trelliswork.models.baselines.base import LeftToRight, Tokens, read_training
from trelliswork.models.parameters import (
    L2,
    TRAINING,
    LearningRate,
    MaxWords,
    MinCount,
    Parameter,
    Patience,
    Seed,
    Unknown,
    estimator,
)


@estimator
class LogBilinear(LeftToRight):
    """A log-bilinear language model: the vector of a word against a mix of the vectors of the K words before.

    The step size is halved after each epoch without an improvement on the development text (without such text, of
    training), and training continues from the best epoch. One thread and one process train it.

    Attributes
    ----------
    vocabulary_ : tuple of str
        Id 0, ``<s>``, is the start of a sentence as a context and its end as an event.
    report_ : FitReport
        Its values are negative log-likelihoods per token of each epoch, summed while the parameters change.

    Notes
    -----
    An epoch costs O(distinct contexts * C * D). Results do not depend on the number of threads.
    """

    family: ClassVar[str] = "log-bilinear"
    _title: ClassVar[str] = "Log-bilinear language model"

    context_size: Annotated[int, Parameter("Number of preceding words that a word depends on.", minimum=1)] = 2
    _: KW_ONLY
    rank: Annotated[int, Parameter("Length D of the vectors.", minimum=1)] = 100
    learning_rate: LearningRate = 0.1
    l2: L2 = 1.5
    batch_size: Annotated[int, Parameter("Tokens per update.", minimum=1, panel=TRAINING)] = 1000
    max_iter: Annotated[int, Parameter("Maximum number of epochs.", minimum=1, panel=TRAINING)] = 30
    patience: Patience = 3
    min_count: MinCount = 1
    max_words: MaxWords = None
    unknown: Unknown = "symbol"
    seed: Seed = 0

    def fit(
        self,
        X: Source,
        y: object = None,
        *,
        dev: Source | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
    ) -> Self:
        """Train on a text.

        Parameters
        ----------
        X : Path, list of Path, Corpus or list of sentences
            Text files (plain or gzip, one sentence per line), directories of them, or lists of words.
        y : ignored
        dev : like X, optional
            Development text: stop early and keep the best epoch.
        """
        from trelliswork.models.baselines.log_bilinear_training import contexts_of, log_likelihoods, start, train

        self._check_parameters()
        one_process("a log-bilinear model")
        counting = counting_callback(callback)
        limits: Any = {"min_count": self.min_count, "max_words": self.max_words, "unknown": self.unknown}
        text = read_training(X, callback=counting, **limits)
        vocabulary, K = text.vocabulary, self.context_size
        data = contexts_of(text.ids, text.offsets, K)
        C = len(vocabulary)
        parameters = start(C, K, self.rank, np.bincount(data[1], minlength=C), self.seed)
        development = held = None
        if dev is not None:
            other = read_training(dev, vocabulary=vocabulary, callback=counting)
            held = contexts_of(other.ids, other.offsets, K)
            contexts, words = held
            development = Development(
                "log-probability per token", lambda _: float(log_likelihoods(parameters, contexts, words).mean())
            )
        mark = self._values("max_iter")
        all_data = *data, *(held or (None, None))
        watch = watch_for(self, development, checkpoint, lambda: fingerprint(mark, *all_data), callback, max_minutes)
        report = train(parameters, data, watch, self)
        self._words, self._parameters_, self.report_ = vocabulary, parameters, report
        return self

    @property
    def _reach(self) -> int:
        """Number of words before a word that its probability depends on."""
        return self.context_size

    def _description(self) -> Description:
        facts = {"words": len(self._words) - 1, "context_size": self.context_size, "rank": self.rank}
        return Description("Log-bilinear language model", facts)

    def vectors(self) -> NDArray[np.float32]:
        """Return the vectors of words as targets (C, D)."""
        self._check_fitted()
        return self._parameters_.target.numpy()

    def _log_p(self, flat: Tokens, offsets: Tokens) -> NDArray[np.float64]:
        from trelliswork.models.baselines.log_bilinear_training import contexts_of, log_likelihoods

        log_p = np.zeros(len(flat))
        inside = np.ones(len(flat), bool)
        inside[offsets[:-1]] = False
        log_p[inside] = log_likelihoods(self._parameters_, *contexts_of(flat, offsets, self.context_size))
        return log_p

    def _next(self, context: Tokens) -> NDArray[np.float64]:
        K = self.context_size
        last = np.concatenate([np.zeros(K, np.int64), context])[: -K - 1 : -1].copy()
        p = self._parameters_
        scores = (p.predict(torch.from_numpy(last)[None])[0] @ p.target.T + p.bias).double()
        return torch.softmax(scores, dim=0).numpy()

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain = {"words": self._words.items, "unknown": self._words.unknown_word}
        return plain, {name: x.numpy() for name, x in self._parameters_._asdict().items()}

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        from trelliswork.models.baselines.log_bilinear_training import LBLParameters

        vocabulary = Vocabulary.restored(plain["words"], plain["unknown"])
        C, D = len(vocabulary), self.rank
        shapes = {"context": (C, D), "mixing": (self.context_size, D, D), "target": (C, D), "bias": (C,)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise DataError(f"{name} must have shape {shape}, got {arrays[name].shape}: the file is damaged.")
            check_finite(name, arrays[name])
        self._parameters_ = LBLParameters(**{name: torch.from_numpy(arrays[name]) for name in shapes})
        self._words = vocabulary
