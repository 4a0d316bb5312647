"""HMM language models with many states: dense transitions, or of low rank by a kernel (paper 4)."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute.checks import check_count
from trelliswork.errors import DataError, ImpossibleError, ValueRangeError
from trelliswork.inference import lowrank
from trelliswork.models.base import Arrays, Estimator
from trelliswork.models.hmm_lm.data import (
    Evidence,
    Text,
    both,
    is_plain,
    number,
    observations,
    open_vocabulary,
    restored_vocabulary,
    sentences_of,
)
from trelliswork.models.hmm_lm.fitting import fit_network, restored_network, training_settings
from trelliswork.models.hmm_lm.kernel_features import FeatureMap
from trelliswork.models.hmm_lm.network import Drawn, Projection
from trelliswork.models.hmm_lm.training import Callback, LMReport, LMStep, perplexity, score_sentences

Tables = tuple[Tensor, lowrank.Transition, Tensor]


class HMMLanguageModel(Estimator):
    r"""A language model of hidden states, with exact probabilities of anything that can be said about a sentence.

    .. math:: p(x) = \sum_z p(z_1) \prod_t p(x_t \mid z_t) \prod_t p(z_{t+1} \mid z_t)

    The end of a sentence is a word. Probabilities come from embeddings of states by small networks, learned by
    gradients of the log evidence. With ``parameterisation="kernel"`` the transition matrix is
    :math:`\mathrm{diag}(d)\, \phi(U) \phi(V)^\top` of rank R, and a word costs O(S R) instead of O(S^2).

    Parameters
    ----------
    n_states : int
    parameterisation : {"softmax", "kernel"}
    n_features : int
        R of the kernel: it pays below n_states / 2.
    feature_map : {"exp", "exp-norm", "relu"}
        phi(u) = exp(W u), exp(W u - |u|^2 / 2), or relu(W u) plus a little.
    projection : {"learned", "fixed", "redrawn"}
        W: learned, random, or random and drawn anew for each batch.
    orthogonal : bool
        Whether random directions are orthogonal.
    band : int
        With a kernel: neighbours on each side with transitions of their own, added to the low-rank matrix.
    clusters : int or dict, optional
        Each word is emitted by a block of states only: so many Brown clusters, or a map of words to cluster numbers.
    hidden : int
        Size of embeddings.
    min_count : int
        Rarer words are ``<unk>``.
    max_epochs, batch_tokens, learning_rate, weight_decay, clip, schedule, patience, stop_after, evaluations
        Of training, see ``learning.hmm_lm_training.TrainingSettings``.
    state_dropout, feature_dropout : float
        The part of states and features that a batch leaves out; the rest is normalised anew.
    start : {"words", "clusters"}, optional
        States begin with the frequencies of words and some noise, or (by default with a kernel) as clusters of tokens.
    em_iterations : int
        Of EM before the gradients, for dense models.
    em_smoothing : float
        Pseudo-count of a transition in EM.
    keep_every : int, optional
        Keep the states of every so many positions while training: less memory, a little slower.
    max_seconds : float, optional
        Stop training then.
    seed : int

    Attributes
    ----------
    vocabulary_ : Vocabulary
        Words; the end of a sentence is one more.
    network_ : StateNetwork
    report_ : LMReport
        Perplexities by time, how training ended.

    Examples
    --------
    >>> text = [["the", "dog", "runs"], ["the", "cat", "runs"], ["a", "dog", "sleeps"]] * 5
    >>> lm = HMMLanguageModel(8, hidden=16, max_epochs=150, batch_tokens=64, learning_rate=0.01, state_dropout=0)
    >>> lm = lm.fit(text)
    >>> lm.predict_next(["the"], 2)[0][0][0] in ("dog", "cat"), lm.perplexity(text) < 2.5
    (True, True)
    """

    kind: ClassVar[str] = "hmm-lm"
    learned: ClassVar[str] = "network_"
    input_: dict[str, Any]
    _tables: Tables | None = None

    def __init__(
        self,
        n_states: int = 512,
        *,
        parameterisation: Literal["softmax", "kernel"] = "softmax",
        n_features: int = 256,
        feature_map: FeatureMap = "exp",
        projection: Projection = "learned",
        orthogonal: bool = True,
        band: int = 0,
        clusters: int | dict[str, int] | None = None,
        hidden: int = 256,
        min_count: int = 1,
        max_epochs: int = 20,
        batch_tokens: int = 2048,
        learning_rate: float = 0.003,
        weight_decay: float = 0.0,
        clip: float = 5.0,
        schedule: Literal["plateau", "linear"] = "plateau",
        patience: int = 4,
        stop_after: int = 12,
        evaluations: int = 4,
        state_dropout: float = 0.1,
        feature_dropout: float = 0.0,
        start: Literal["words", "clusters"] | None = None,
        em_iterations: int = 0,
        em_smoothing: float = 0.1,
        keep_every: int | None = None,
        max_seconds: float | None = None,
        seed: int = 0,
    ) -> None:
        self.n_states = n_states
        self.parameterisation = parameterisation
        self.n_features = n_features
        self.feature_map = feature_map
        self.projection = projection
        self.orthogonal = orthogonal
        self.band = band
        self.clusters = clusters
        self.hidden = hidden
        self.min_count = min_count
        self.max_epochs = max_epochs
        self.batch_tokens = batch_tokens
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.clip = clip
        self.schedule = schedule
        self.patience = patience
        self.stop_after = stop_after
        self.evaluations = evaluations
        self.state_dropout = state_dropout
        self.feature_dropout = feature_dropout
        self.start = start
        self.em_iterations = em_iterations
        self.em_smoothing = em_smoothing
        self.keep_every = keep_every
        self.max_seconds = max_seconds
        self.seed = seed

    def fit(
        self,
        X: Text,
        y: object = None,
        *,
        dev: Text | None = None,
        checkpoint: str | Path | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from sentences.

        Parameters
        ----------
        X : path, Corpus, or list of lists of str
            A path is a text file, one sentence a line.
        y : ignored
        dev : like X, optional
            Validated on several times an epoch: the best parameters are kept, the rate falls, training stops early.
        checkpoint : path, optional
            A file that holds the run; if it is there, training goes on from it, to the same result.
        callback : callable, optional
            Called with each ``LMStep``; a true answer stops, and what was learned is kept.
        """
        training_settings(self).check()
        sentences = sentences_of(X)
        if not sentences:
            raise DataError("no sentence to learn from: X is empty.")
        words = open_vocabulary(sentences, self.min_count)
        data = number(sentences, words)
        held = None if dev is None else number(sentences_of(dev), words)
        network, report = fit_network(self, words, data, held, checkpoint, callback)
        self.vocabulary_, self.network_, self.report_ = words, network, report
        self.n_tokens_, self._tables = data.n_tokens, None
        return self

    def log_evidence(self, X: Text | Sequence[Sequence[Evidence]]) -> NDArray[np.float64]:
        """log p(sentence and its end) of each sentence (n,), natural logarithm.

        A token may also be ``None`` (any word) or a collection of words (one of them): then it is the probability of
        all sentences that fit.
        """
        log_start, transition, log_emission = self.tables()
        sentences = sentences_of(X)  # type: ignore[arg-type]
        if not sentences:
            return np.empty(0)
        if is_plain(sentences):
            return score_sentences(log_start, transition, log_emission, number(sentences, self.vocabulary_))
        rows, data = observations(sentences, self.vocabulary_, log_emission)
        return score_sentences(log_start, transition, rows, data)

    def score(self, X: Text, y: object = None) -> float:
        """Log evidence of all sentences together; ``y`` is not looked at."""
        return float(self.log_evidence(X).sum())

    def perplexity(self, X: Text) -> float:
        """Perplexity per token, an end of sentence each among them."""
        sentences = sentences_of(X)
        n_tokens = sum(len(sentence) + 1 for sentence in sentences)
        if not n_tokens:
            raise DataError("no sentence, so no perplexity: X is empty.")
        return perplexity(float(self.log_evidence(sentences).sum()), n_tokens)

    def log_conditional(self, sentence: Sequence[Evidence], given: Sequence[Evidence]) -> float:
        """log p(``sentence`` | ``given``): both say what is known of each token, as in ``log_evidence``.

        >>> text = [["a", "b"], ["b", "b"]] * 3
        >>> lm = HMMLanguageModel(2, hidden=4, max_epochs=2).fit(text)
        >>> print(f"{sum(np.exp(lm.log_conditional([w, 'b'], [None, 'b'])) for w in lm.vocabulary_):.3f}")
        1.000
        """
        self._check_fitted()
        common = both(sentence, given, self.vocabulary_)
        log_given = float(self.log_evidence([given])[0])
        if log_given == -np.inf:
            raise ImpossibleError("what is given has probability zero: nothing can be said beyond it.")
        return -np.inf if common is None else float(self.log_evidence([common])[0]) - log_given

    def predict_next(self, words: Sequence[str], n: int = 10) -> tuple[list[tuple[str, float]], float]:
        """The n most probable next words after some, with p(word | words); and the probability that it is the end."""
        log_start, transition, log_emission = self.tables()
        check_count("n", n)
        rows, data = log_emission, np.empty(0, np.int64)
        if len(words):
            rows, found = observations([words], self.vocabulary_, log_emission, end=False)
            data = found.words
        p = (torch.exp(log_emission) @ lowrank.following(log_start, transition, rows, data)).double().numpy()
        return self._best_words(p[:-1], n), float(p[-1])

    def fill(self, sentence: Sequence[Evidence], position: int, n: int = 10) -> list[tuple[str, float]]:
        """The n most probable words at a position (from 0), given all that is known of the other tokens."""
        log_start, transition, log_emission = self.tables()
        check_count("n", n)
        if not 0 <= position < len(sentence):
            raise ValueRangeError(f"position must lie between 0 and {len(sentence) - 1}, got {position}.")
        tokens = [*sentence[:position], None, *sentence[position + 1 :]]
        rows, data = observations([tokens], self.vocabulary_, log_emission)
        rows = torch.cat([rows, torch.zeros_like(rows[:1])])  # nothing at all is known here
        data.words[position] = len(rows) - 1
        _, states = lowrank.marginals(log_start, transition, rows, data.words, data.offsets)
        p = (torch.exp(log_emission[:-1]) @ torch.from_numpy(states[position])).double().numpy()
        return self._best_words(p / p.sum(), n)

    def posterior_states(self, X: Text) -> list[NDArray[np.float32]]:
        """p(state | sentence) of each word: one array (T, S) a sentence."""
        log_start, transition, log_emission = self.tables()
        found = []
        for sentence in sentences_of(X):
            rows, data = observations([sentence], self.vocabulary_, log_emission)
            _, states = lowrank.marginals(log_start, transition, rows, data.words, data.offsets)
            found.append(states[:-1].astype(np.float32))
        return found

    def best_states(self, X: Text) -> list[list[str]]:
        """The most probable states of each sentence (``#0``, ``#1``, ...), one a word; time O(S^2) a word."""
        log_start, transition, log_emission = self.tables()
        sentences = sentences_of(X)
        if not sentences:
            return []
        rows, data = observations(sentences, self.vocabulary_, log_emission)
        states, _ = lowrank.viterbi(log_start, transition, rows, data.words, data.offsets)
        ends = data.offsets.tolist()
        return [[f"#{z}" for z in states[a : b - 1]] for a, b in pairwise(ends)]

    def sample_states(self, sentence: Sequence[Evidence], n: int = 1, *, seed: int = 0) -> list[list[str]]:
        """n samples of the states of a sentence, one a word, from p(states | sentence)."""
        log_start, transition, log_emission = self.tables()
        check_count("n", n)
        rows, data = observations([sentence], self.vocabulary_, log_emission)
        drawn = lowrank.sample_states(log_start, transition, rows, data.words, n, np.random.default_rng(seed))
        return [[f"#{z}" for z in states[:-1]] for states in drawn.tolist()]

    def sample(self, n: int = 1, *, seed: int = 0, max_length: int = 200) -> list[tuple[list[str], list[str]]]:
        """Random sentences from the model: words and states."""
        log_start, transition, log_emission = self.tables()
        check_count("n", n)
        check_count("max_length", max_length)
        rng, found = np.random.default_rng(seed), []
        for _ in range(n):
            words: list[str] = []
            states: list[str] = []
            odds = log_start.exp()
            while len(words) < max_length:
                z = lowrank.draw(odds.numpy(), rng)
                w = lowrank.draw(log_emission[:, z].exp().numpy(), rng)
                if w == len(self.vocabulary_):
                    break
                words.append(self.vocabulary_[w])
                states.append(f"#{z}")
                odds = transition.row(z)
            found.append((words, states))
        return found

    def top_words(self, state: int, n: int = 10) -> list[tuple[str, float]]:
        """The n most probable words of a state, with p(word | state); the end of a sentence is ``<eos>``."""
        log_emission = self.tables()[2]
        check_count("n", n)
        if not 0 <= state < self.n_states_:
            raise ValueRangeError(f"the model has states 0 to {self.n_states_ - 1}, got {state}.")
        p = log_emission[:, state].exp().double().numpy()
        names = [*self.vocabulary_, "<eos>"]
        return [(names[i], float(p[i])) for i in np.argsort(-p, kind="stable")[:n]]

    def state_frequencies(self, n_steps: int = 200) -> NDArray[np.float64]:
        """How often each state is used in running text (S,): a new sentence begins after each end."""
        log_start, transition, log_emission = self.tables()
        start, end = log_start.exp()[None], log_emission[-1].exp()
        p, out = start.clone(), torch.empty_like(start)
        features = torch.empty(1, transition.width, dtype=start.dtype)
        for _ in range(n_steps):
            transition.push(p * (1 - end), features, out)
            p = out + (p @ end)[:, None] * start
            p = p / p.sum()
        return p[0].double().numpy()

    def transition_matrix(self) -> NDArray[np.float32]:
        """p(next state | state) (S, S)."""
        return self.tables()[1].dense().numpy().copy()

    def transition_spectrum(self) -> NDArray[np.float64]:
        """Singular values of the transition matrix, largest first: R of them for low rank (S for others)."""
        transition = self.tables()[1]
        if isinstance(transition, lowrank.LowRank) and transition.band is None:
            inner = [torch.linalg.qr(part.double())[1] for part in (transition.left, transition.right)]
            return torch.linalg.svdvals(inner[0] @ inner[1].T).numpy()
        return torch.linalg.svdvals(transition.dense().double()).numpy()

    def tables(self) -> Tables:
        """log p(first state) (S,), the transition, log p(word | state) (V + 1, S) with the end of sentence last."""
        self._check_fitted()
        if self._tables is None:
            with torch.no_grad():
                drawn, net = Drawn(), self.network_
                self._tables = net.log_start(drawn), net.transition(drawn), net.log_emission(drawn)
        return self._tables

    @property
    def n_states_(self) -> int:
        """States of the model that was learned."""
        self._check_fitted()
        return self.network_.shape.n_states

    def known_words(self) -> set[str]:
        """The words of training."""
        return set(self.vocabulary_)

    def _best_words(self, p: NDArray[np.float64], n: int) -> list[tuple[str, float]]:
        return [(self.vocabulary_[i], float(p[i])) for i in np.argsort(-p, kind="stable")[:n]]

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain: dict[str, Any] = {
            "parameters": self.get_params(),
            "shape": asdict(self.network_.shape),
            "words": list(self.vocabulary_),
            "tokens": self.n_tokens_,
            "report": asdict(self.report_),
            "input": getattr(self, "input_", {}),
        }
        arrays = {f"network.{name}": value.detach().numpy() for name, value in self.network_.state_dict().items()}
        if self.network_.blocks is not None:
            arrays["clusters"] = self.network_.blocks[0].numpy()
        return plain, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(**plain["parameters"])
        words = restored_vocabulary(plain["words"])
        network = restored_network(plain["shape"], arrays, len(words) + 1)
        report = dict(plain["report"])
        history = [LMStep(**step) for step in report.pop("history")]
        self.vocabulary_, self.network_, self.report_ = words, network, LMReport(**report, history=history)
        self.n_tokens_, self.input_ = plain["tokens"], plain["input"]
        return self
