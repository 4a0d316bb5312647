"""HMM language models with many states: dense transitions, or of low rank by a kernel (paper 4)."""

import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute.checks import check_count
from trelliswork.data.files import shorten, whole_number
from trelliswork.data.ids import read_sentences
from trelliswork.data.vocabulary import END
from trelliswork.errors import DataError, ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference import lowrank
from trelliswork.learning.distributed import one_process
from trelliswork.learning.report import Callback, FitReport
from trelliswork.models.base import Arrays, Description, Table, watch_for
from trelliswork.models.entrance import COLUMNS
from trelliswork.models.hmm_lm.data import (
    Evidence,
    Text,
    both,
    is_plain,
    number,
    observations,
    open_vocabulary,
    restored_vocabulary,
)
from trelliswork.models.hmm_lm.fitting import (
    Start,
    new_network,
    restored_network,
    start_network,
    training_mark,
    word_clusters,
)
from trelliswork.models.hmm_lm.kernel_features import FeatureMap
from trelliswork.models.hmm_lm.network import Drawn, NetworkShape, Projection
from trelliswork.models.hmm_lm.training import TrainingSettings, score_sentences, text_development, train
from trelliswork.models.parameters import (
    TRAINING,
    FurtherOptions,
    LearningRate,
    MinCount,
    Parameter,
    Patience,
    Seed,
    estimator,
    later,
    option,
)
from trelliswork.models.tasks import Incremental, Ranked, best_words, blanks, by_label

Tables = tuple[Tensor, lowrank.Transition, Tensor]


@estimator
class HMMLanguageModel(Incremental):
    r"""A language model with hidden states: exact probabilities of sentences and of any evidence about them.

    .. math:: p(x) = \sum_z p(z_1) \prod_t p(x_t \mid z_t) \prod_t p(z_{t+1} \mid z_t)

    The end of a sentence is a word. Probabilities come from embeddings of states by small networks, trained by
    gradients of the log evidence, by one process. With a ``rank`` R the transition matrix is
    :math:`\mathrm{diag}(d)\, \phi(U) \phi(V)^\top`, and a word costs O(S R) instead of O(S^2).

    Attributes
    ----------
    vocabulary_ : tuple of str
        Words; the end of a sentence is one more event.
    network_ : StateNetwork
        Trained network.
    report_ : FitReport
        Its iterations are validations; values are negative log evidence per token of training batches, with dropout.

    Examples
    --------
    >>> text = [["the", "dog", "runs"], ["the", "cat", "runs"], ["a", "dog", "sleeps"]] * 5
    >>> lm = HMMLanguageModel(8, hidden=16, max_iter=150, batch_tokens=64, learning_rate=0.01, state_dropout=0)
    >>> lm = lm.fit(text)
    >>> lm.predict_next(["the"], 2)[0][0] in ("dog", "cat"), lm.perplexity(text) < 2.5
    (True, True)
    """

    family: ClassVar[str] = "hmm-lm"
    _tokens: ClassVar[tuple[type, ...]] = (*COLUMNS, set, frozenset, type(None))  # also any word, or one of some
    _title: ClassVar[str] = "HMM language model"
    _fit_sets: ClassVar[str] = "network_"
    _tables: Tables | None = later(None)

    n_states: Annotated[int, Parameter("Number of hidden states.", minimum=1)] = 512
    _: KW_ONLY
    rank: Annotated[
        int | None,
        Parameter(
            "Rank of the transition matrix, which a kernel gives. Faster than dense below n_states / 2.",
            minimum=1,
            unset="dense transitions",
        ),
    ] = None
    n_blocks: Annotated[
        int | None,
        Parameter(
            "Number of Brown clusters of words: each is emitted by its own block of states only.",
            minimum=1,
            unset="all states emit all words",
        ),
    ] = None
    hidden: Annotated[int, Parameter("Size of the embeddings.", minimum=1)] = 256
    initialization: Annotated[
        Literal["words", "clusters"] | None,
        Parameter(
            "Initial states: frequencies of words with noise, or clusters of tokens.",
            panel=TRAINING,
            unset="clusters with a rank, else words",
        ),
    ] = None
    em_iterations: Annotated[
        int, Parameter("EM iterations before gradient training, for dense models.", minimum=0, panel=TRAINING)
    ] = 0
    state_dropout: Annotated[
        float, Parameter("Fraction of states that a batch leaves out.", minimum=0, below=1, panel=TRAINING)
    ] = 0.1
    min_count: MinCount = 1
    max_iter: Annotated[int, Parameter("Maximum number of epochs.", minimum=1, panel=TRAINING)] = 20
    batch_tokens: Annotated[int, Parameter("Tokens per update.", minimum=1, panel=TRAINING)] = 2048
    learning_rate: LearningRate = 0.003
    patience: Patience = 12
    seed: Seed = 0
    options: FurtherOptions = None
    feature_map: Annotated[
        FeatureMap,
        Parameter("Features of the kernel: exp(W u), exp(W u - |u|^2 / 2), or relu(W u) plus a small constant."),
    ] = option("exp")
    projection: Annotated[
        Projection, Parameter("Projection W of the features: learned, random, or random and redrawn per batch.")
    ] = option("learned")
    orthogonal: Annotated[bool, Parameter("Whether random projections are orthogonal.")] = option(True)
    band: Annotated[
        int,
        Parameter(
            "With a rank: number of neighboring states on each side with their own transition weights, added to "
            "the low-rank matrix.",
            minimum=0,
        ),
    ] = option(0)
    feature_dropout: Annotated[
        float,
        Parameter("Fraction of kernel features that a batch leaves out.", minimum=0, below=1, panel=TRAINING),
    ] = option(0.0)
    weight_decay: Annotated[float, Parameter("Weight decay of AdamW.", minimum=0, panel=TRAINING)] = option(0.0)
    schedule: Annotated[
        Literal["plateau", "linear"],
        Parameter(
            "Learning rate schedule: divide by 4 after decay_patience validations without improvement, or decrease "
            "linearly to 0 over max_iter epochs.",
            panel=TRAINING,
        ),
    ] = option("plateau")
    decay_patience: Annotated[
        int,
        Parameter(
            "Validations without an improvement before the plateau schedule divides the rate.",
            minimum=1,
            panel=TRAINING,
        ),
    ] = option(4)
    evaluations: Annotated[
        int, Parameter("Validations per epoch; each counts as an iteration.", minimum=1, panel=TRAINING)
    ] = option(4)
    keep_every: Annotated[
        int | None,
        Parameter(
            "Store the states of every N-th position only while training: less memory, slightly slower.",
            minimum=1,
            panel=TRAINING,
            unset="all positions",
        ),
    ] = option(None)
    clip: ClassVar = 5.0  # norm of the gradient per token: only broken batches exceed it
    em_smoothing: ClassVar = 0.1  # pseudo-count of a transition in EM

    def fit(
        self,
        X: Text,
        y: object = None,
        *,
        dev: Text | None = None,
        checkpoint: str | Path | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
    ) -> Self:
        """Train on sentences.

        Parameters
        ----------
        X : path, list of paths, Corpus, or list of lists of str
            Text files have one sentence per line.
        y : ignored
        dev : like X, optional
            Measured ``evaluations`` times per epoch: the best parameters are kept, the rate decreases, training stops
            after ``patience`` validations without an improvement.
        checkpoint : path, optional
            A file for the state of training. If it exists, training resumes from it, with the same result.
            ``save`` deletes it.
        callback : callable, optional
            Called with a `Step` after each validation; a true result stops training.
        max_minutes : float, optional
            Time limit: stop before an iteration that would end later.
        """
        self._check_parameters()
        one_process("an HMM language model")
        sentences = read_sentences(X)
        if not sentences:
            raise DataError("X has no sentences to learn from.")
        words = open_vocabulary(sentences, self.min_count)
        data = number(sentences, words)
        held = None if dev is None else number(read_sentences(dev), words)
        shape, start = self._shape(len(words) + 1), self._first_states()
        clusters = word_clusters(self.n_blocks, words, data)
        network = new_network(shape, clusters, data, self.seed)
        settings = TrainingSettings(**{name: getattr(self, name) for name in TrainingSettings.__dataclass_fields__})
        arrays = data.words, data.offsets, held and held.words, held and held.offsets, clusters
        mark = partial(training_mark, settings, shape, start, self.patience, *arrays)
        watch = watch_for(
            self, None if held is None else text_development(network, held), checkpoint, mark, callback, max_minutes
        )
        started = time.perf_counter()
        if not watch.resumes():
            start_network(network, data, start, self.seed, watch)
        report = train(network, data, settings, watch, seconds=time.perf_counter() - started)
        self._words, self.network_, self.report_ = words, network, report
        self.n_tokens_, self._tables = data.n_tokens, None
        return self

    def log_prob(self, X: Text | Sequence[Sequence[Evidence]]) -> NDArray[np.float64]:
        """Return the natural log-probability of each sentence with its end (n,).

        A token may also be ``None`` (any word) or a collection of words (one of them): then it is the probability of
        all matching sentences.
        """
        log_start, transition, log_emission = self.tables()
        sentences = read_sentences(X)
        if not sentences:
            return np.empty(0)
        if is_plain(sentences):
            return score_sentences(log_start, transition, log_emission, number(sentences, self._words))
        rows, data = observations(sentences, self._words, log_emission)
        return score_sentences(log_start, transition, rows, data)

    def _evidence(self, X: Text) -> tuple[NDArray[np.float64], int]:
        sentences = read_sentences(X)
        return self.log_prob(sentences), sum(len(sentence) + 1 for sentence in sentences)

    def log_conditional(self, sentence: Sequence[Evidence], given: Sequence[Evidence]) -> float:
        """Return log p(``sentence`` | ``given``), both with evidence per token as in ``log_prob``.

        >>> text = [["a", "b"], ["b", "b"]] * 3
        >>> lm = HMMLanguageModel(2, hidden=4, max_iter=2).fit(text)
        >>> print(f"{sum(np.exp(lm.log_conditional([w, 'b'], [None, 'b'])) for w in lm.vocabulary_):.3f}")
        1.000
        """
        self._check_fitted()
        common = both(sentence, given, self._words)
        log_given = float(self.log_prob([given])[0])
        if log_given == -np.inf:
            raise ImpossibleError("the given evidence has probability zero, so nothing is conditional on it.")
        return -np.inf if common is None else float(self.log_prob([common])[0]) - log_given

    def predict_next(self, words: Sequence[str], n: int = 10, *, unknown: bool = False) -> Ranked:
        """Return the n most probable words after the start of a sentence; ``</s>`` is its end.

        ``<unk>`` is one of them if ``unknown``; probabilities are those of the model in either case (see ``fill``).
        """
        log_start, transition, log_emission = self.tables()
        check_count("n", n)
        rows, data = log_emission, np.empty(0, np.int64)
        if len(words):
            rows, given = observations([words], self._words, log_emission, end=False)
            data = given.words
        p = (torch.exp(log_emission) @ lowrank.following(log_start, transition, rows, data)).double().numpy()
        return self._best_words(p / p.sum(), n, unknown)  # the sum differs from one by the rounding of float32

    def start(self) -> NDArray[np.floating]:
        """Return the state before the first word of a sentence; a state is p(next hidden state | words so far) (S,)."""
        return self.tables()[0].exp().numpy()

    def extend_many(
        self, states: Sequence[NDArray[np.floating]], words: Sequence[str]
    ) -> tuple[NDArray[np.float64], list[NDArray[np.floating]]]:
        """Return log p(word | state) of one word for each of n states (n,), and the states after the words.

        ``</s>`` is the end of the sentence, after which the state is that of ``start``. Scores are natural logarithms:
        those of the words of a sentence and of its end sum to its log evidence. The scores after an impossible word
        are -inf.
        """
        log_start, transition, log_emission = self.tables()
        ids, shape = self._extensions(states, words, len(self._words)), (len(states), len(log_start))
        if not ids:
            return np.empty(0), []
        if {np.shape(state) for state in states} != {shape[1:]}:
            raise ShapeError(f"each state must have shape (S,) with S={shape[1]}: take the states of this model.")
        given = np.array(states, log_start.numpy().dtype)
        scores, after = lowrank.step(torch.from_numpy(given), transition, log_emission[ids])
        first = self.start() if len(self._words) in ids else None
        rows = zip(ids, after.numpy(), strict=True)
        return scores, [row if first is None or i < len(self._words) else first for i, row in rows]

    def fill(self, sentence: str | Sequence[Evidence], n: int = 10, *, unknown: bool = False) -> list[Ranked]:
        """Return the n most probable words for each blank (``None``, or ``___`` in a string), best first.

        Other tokens may be collections of words, as in ``log_prob``. ``<unk>`` is one of the answers if
        ``unknown``; probabilities are those of the model in either case.
        """
        check_count("n", n)
        log_start, transition, log_emission = self.tables()
        tokens = blanks(sentence)  # type: ignore[arg-type]
        rows, data = observations([tokens], self._words, log_emission)
        ranked = []
        for position in (t for t, token in enumerate(tokens) if token is None):
            some, words = torch.cat([rows, torch.zeros_like(rows[:1])]), data.words.copy()
            words[position] = len(some) - 1  # no evidence at all, not even that it is a word
            _, states = lowrank.marginals(log_start, transition, some, words, data.offsets)
            p = (torch.exp(log_emission[:-1]) @ torch.from_numpy(states[position])).double().numpy()
            ranked.append(self._best_words(p / p.sum(), n, unknown))
        return ranked

    def predict_marginals(self, X: Text) -> list[list[dict[str, float]]]:
        """Return p(state | sentence) of each word, as a dict by state, best first."""
        log_start, transition, log_emission = self.tables()
        names, result = [f"#{z}" for z in range(self.n_states_)], []
        for sentence in read_sentences(X):
            rows, data = observations([sentence], self._words, log_emission)
            _, states = lowrank.marginals(log_start, transition, rows, data.words, data.offsets)
            result += by_label(names, states[:-1], [len(sentence)])
        return result

    def predict(self, X: Text) -> list[list[str]]:
        """Return the most probable states of each sentence (``#0``, ``#1``, ...), one per word; O(S^2) per word."""
        log_start, transition, log_emission = self.tables()
        sentences = read_sentences(X)
        if not sentences:
            return []
        rows, data = observations(sentences, self._words, log_emission)
        states, _ = lowrank.viterbi(log_start, transition, rows, data.words, data.offsets)
        ends = data.offsets.tolist()
        return [[f"#{z}" for z in states[a : b - 1]] for a, b in pairwise(ends)]

    def sample_states(self, sentence: Sequence[Evidence], n: int = 1, *, seed: int | None = None) -> list[list[str]]:
        """Return n samples of the states of a sentence, one per word, from p(states | sentence)."""
        log_start, transition, log_emission = self.tables()
        check_count("n", n)
        rows, data = observations([sentence], self._words, log_emission)
        drawn = lowrank.sample_states(log_start, transition, rows, data.words, n, np.random.default_rng(seed))
        return [[f"#{z}" for z in states[:-1]] for states in drawn.tolist()]

    def sample(self, n: int = 1, *, seed: int | None = None, max_length: int = 200) -> list[list[str]]:
        """Return n random sentences; longer ones than ``max_length`` are cut."""
        return [words for words, _ in self.sample_with_states(n, seed=seed, max_length=max_length)]

    def sample_with_states(
        self, n: int = 1, *, seed: int | None = None, max_length: int = 200
    ) -> list[tuple[list[str], list[str]]]:
        """Return n random sentences with their states."""
        log_start, transition, log_emission = self.tables()
        check_count("n", n)
        check_count("max_length", max_length)
        rng, sentences = np.random.default_rng(seed), []
        for _ in range(n):
            words: list[str] = []
            states: list[str] = []
            odds = log_start.exp()
            while len(words) < max_length:
                z = lowrank.draw(odds.numpy(), rng)
                w = lowrank.draw(log_emission[:, z].exp().numpy(), rng)
                if w == len(self._words):
                    break
                words.append(self._words[w])
                states.append(f"#{z}")
                odds = transition.row(z)
            sentences.append((words, states))
        return sentences

    def top_words(self, state: str, n: int = 10) -> Ranked:
        """Return the n most probable words of a state (``#7``); ``</s>`` is the end of a sentence."""
        log_emission = self.tables()[2]
        check_count("n", n)
        number = whole_number(str(state).removeprefix("#"))
        if number is None or number >= self.n_states_:
            raise ValueRangeError(f"the model has states #0 to #{self.n_states_ - 1}, got {shorten(str(state))}.")
        return self._best_words(log_emission[:, number].exp().double().numpy(), n)

    def state_frequencies(self, n_steps: int = 200) -> NDArray[np.float64]:
        """Return the frequency of each state in running text (S,): a new sentence starts after each end."""
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
        """Return the singular values of the transition matrix, largest first: R for low rank, else S."""
        transition = self.tables()[1]
        if isinstance(transition, lowrank.LowRank) and transition.band is None:
            inner = [torch.linalg.qr(part.double())[1] for part in (transition.left, transition.right)]
            return torch.linalg.svdvals(inner[0] @ inner[1].T).numpy()
        return torch.linalg.svdvals(transition.dense().double()).numpy()

    def tables(self) -> Tables:
        """Return log p(first state) (S,), the transition, and log p(word | state) (V + 1, S), sentence end last."""
        self._check_fitted()
        if self._tables is None:
            with torch.no_grad():
                drawn, net = Drawn(), self.network_
                self._tables = net.log_start(drawn), net.transition(drawn), net.log_emission(drawn)
        return self._tables

    @property
    def n_states_(self) -> int:
        """Number of states of the fitted model."""
        self._check_fitted()
        return self.network_.shape.n_states

    def known_words(self) -> set[str]:
        """Return the words of training."""
        return set(self._words)

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the most frequent states with their words, and the spectrum of the transition matrix."""
        frequencies = self.state_frequencies()
        if label is not None:
            self.top_words(label, 1)  # raises an error if there is no such state
            chosen = [int(label.removeprefix("#"))]
        else:
            chosen = (-frequencies).argsort(kind="stable")[:n].tolist()
        spectrum = self.transition_spectrum()
        facts = {
            "states": self.n_states_,
            "words": len(self._words),
            "rank": int((spectrum > 1e-5).sum()),
            "spectrum": spectrum[:n].tolist(),
            "dev_perplexity": None if self.report_.dev is None else float(np.exp(-self.report_.dev)),
        }
        rows: list[tuple[Any, ...]] = [
            (f"#{z}", float(frequencies[z]), [list(word) for word in self.top_words(f"#{z}", n)]) for z in chosen
        ]
        tables = [Table("top_words", "Words of the most frequent states", ("state", "frequency", "words"), rows)]
        return Description(f"HMM language model with {self.n_states_} states", facts, tables)

    def _shape(self, n_words: int) -> NetworkShape:
        """Return the checked shape of the network."""
        if self.band and self.rank is None:
            raise ValueRangeError(f"band needs a rank: dense rows need none, got {self.band}.")
        if self.em_iterations and (self.rank is not None or self.n_blocks is not None):
            raise ValueRangeError("em_iterations need a dense model without n_blocks: set it to 0.")
        options = self.feature_map, self.projection, self.orthogonal, self.band
        return NetworkShape(self.n_states, n_words, self.hidden, self.rank or 0, *options)

    def _first_states(self) -> Start:
        """Return the initialization, by default the one that works: kernels learn slowly if all states are alike."""
        kernel = self.rank is not None
        possible = self.n_blocks is None and not self.em_iterations and not (kernel and self.projection == "redrawn")
        if self.initialization == "clusters" and not possible:
            raise ValueRangeError(
                "initialization='clusters' cannot be combined with n_blocks, em_iterations or projection='redrawn': "
                "use initialization='words'."
            )
        default: Literal["words", "clusters"] = "clusters" if kernel and possible else "words"
        return Start(self.initialization or default, self.em_iterations, self.em_smoothing)

    def _best_words(self, p: NDArray[np.float64], n: int, unknown: bool = True) -> Ranked:
        return best_words([*self._words, END], p, n, self._left_out(unknown))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain: dict[str, Any] = {
            "parameters": self.get_params(),
            "shape": asdict(self.network_.shape),
            "words": list(self._words),
            "tokens": self.n_tokens_,
            "report": self.report_.to_dict(),
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
        self._words, self.network_, self.n_tokens_ = words, network, plain["tokens"]
        self.report_ = FitReport.from_dict(plain["report"])
        return self
