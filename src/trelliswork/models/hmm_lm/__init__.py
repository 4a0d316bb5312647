"""HMM language models with many states: states in blocks, dense or of low rank by a kernel (paper 4)."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, asdict, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute.checks import check_count
from trelliswork.compute.limits import check_cost
from trelliswork.data.files import shorten, whole_number
from trelliswork.data.ids import read_sentences
from trelliswork.data.vocabulary import END
from trelliswork.errors import DataError, ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference import lowrank
from trelliswork.learning.distributed import one_process
from trelliswork.learning.report import Callback
from trelliswork.models.base import Arrays, Description, Table, watch_for
from trelliswork.models.entrance import COLUMNS
from trelliswork.models.hmm.steering import Speaking
from trelliswork.models.hmm_lm.data import (
    Evidence,
    Text,
    both,
    is_plain,
    number,
    observed,
    open_vocabulary,
    restored_vocabulary,
)
from trelliswork.models.hmm_lm.fitting import (
    n_blocks_of,
    new_network,
    restored_network,
    settings_for,
    start_network,
    training_mark,
    word_clusters,
)
from trelliswork.models.hmm_lm.kernel_features import FeatureMap
from trelliswork.models.hmm_lm.network import NetworkShape, Projection, Tables
from trelliswork.models.hmm_lm.objective import Sentences
from trelliswork.models.hmm_lm.speaking import BlockSpeaker, matrix_of, spoken
from trelliswork.models.hmm_lm.training import TrainingSettings, text_development, train
from trelliswork.models.hmm_lm.training import torch_threads as threads_for
from trelliswork.models.parameters import (
    TRAINING,
    FurtherOptions,
    MinCount,
    Parameter,
    Patience,
    Seed,
    estimator,
    later,
    option,
)
from trelliswork.models.tasks import Incremental, Ranked, best_words, blanks
from trelliswork.rules import Rule

COUNTED = 20_000  # tokens of the training text whose expected states are counted


class State(NamedTuple):
    """The state of a model after some words of a sentence."""

    block: int  # of the last word; -1 before the first
    p: NDArray[np.floating]  # (k,) p(state of the block | words so far)


@estimator
class HMMLanguageModel(Speaking, Incremental):
    r"""A language model with hidden states: exact probabilities of sentences and of any evidence about them.

    .. math:: p(x) = \sum_z p(z_1) \prod_t p(x_t \mid z_t) \prod_t p(z_{t+1} \mid z_t)

    Words belong to C clusters, and a word of cluster c comes from the k = S / C states of block c only. A transition
    first chooses the next block, then a state in it, so that a word costs O(k^2) instead of O(S^2). Models with one
    block have a network over all states instead of vectors of each state; with a ``rank`` R the transitions of states
    are :math:`\mathrm{diag}(d)\, \phi(U) \phi(V)^\top`. The parameters are trained by gradients, by one process.

    Attributes
    ----------
    vocabulary_ : tuple of str
        Words; the end of a sentence is one more event.
    report_ : FitReport
        Its iterations are epochs; values are negative log-probability per token of training batches, with dropout.

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
    _fit_sets: ClassVar[str] = "_network"
    _tables: Tables | None = later(None)
    _spoken: BlockSpeaker | None = later(None)
    _frequencies: NDArray[np.float64] | None = later(None)

    n_states: Annotated[int, Parameter("Number of hidden states.", minimum=1)] = 512
    _: KW_ONLY
    n_blocks: Annotated[
        int | None,
        Parameter(
            "Number of blocks of states, each for a Brown cluster of words; 1 lets all states emit all words.",
            minimum=1,
            unset="by n_states: 128 for 32,768; 1 below 1,024 or with a rank",
        ),
    ] = None
    rank: Annotated[
        int | None,
        Parameter(
            "Rank of the transitions in a block, or of the whole matrix if there is one block, by a kernel.",
            minimum=1,
            unset="dense transitions",
        ),
    ] = None
    hidden: Annotated[
        int | None, Parameter("Size of the vectors of states.", minimum=1, unset="128 with blocks, else 256")
    ] = None
    state_dropout: Annotated[
        float | None,
        Parameter(
            "Fraction of the states of each block that a batch leaves out.",
            minimum=0,
            below=1,
            panel=TRAINING,
            unset="0.5 with blocks, else 0.1",
        ),
    ] = None
    dropout: Annotated[
        float | None,
        Parameter(
            "Fraction of the numbers in the vectors of states in blocks that a batch leaves out.",
            minimum=0,
            below=1,
            panel=TRAINING,
            unset="0.1, or 0.15 from 20 epochs on",
        ),
    ] = None
    min_count: MinCount = 1
    max_iter: Annotated[
        int | None,
        Parameter(
            "Number of epochs; the learning rate falls to 0 until the last.",
            minimum=1,
            panel=TRAINING,
            unset="by the size of the text, or as many as the time limit allows",
        ),
    ] = None
    batch_tokens: Annotated[
        int | None,
        Parameter("Tokens per update.", minimum=1, panel=TRAINING, unset="5632 with blocks, else 2048"),
    ] = None
    learning_rate: Annotated[
        float | None,
        Parameter("Learning rate.", above=0, panel=TRAINING, unset="0.014 with blocks, else 0.003"),
    ] = None
    patience: Patience = 12
    seed: Seed = 0
    options: FurtherOptions = None
    feature_map: Annotated[
        FeatureMap,
        Parameter("Features of the kernel: exp(W u), exp(W u - |u|^2 / 2), or relu(W u) plus a small constant."),
    ] = option("exp")
    projection: Annotated[Projection, Parameter("Projection W of the features: learned, or random.")] = option(
        "learned"
    )

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
        X : Path, list of Path, Corpus, or list of lists of str
            Text files have one sentence per line.
        y : ignored
        dev : like X, optional
            Measured after each epoch: the best parameters are kept, training stops after ``patience`` epochs without an
            improvement.
        max_minutes : float, optional
            Time limit: without ``max_iter``, there are as many epochs as fit into it.
        """
        self._check_parameters()
        one_process("an HMM language model")
        started = time.perf_counter()
        sentences = read_sentences(X)
        if not sentences:
            raise DataError("X has no sentences to learn from.")
        words = open_vocabulary(sentences, self.min_count)
        data = number(sentences, words)
        held = None if dev is None else number(read_sentences(dev), words)
        n_blocks = n_blocks_of(self.n_blocks, self.n_states, self.rank, len(words))
        hidden = self.hidden or (128 if n_blocks > 1 else 256)
        shape = NetworkShape(self.n_states, len(words) + 1, hidden, self.rank or 0, self.feature_map, self.projection)
        clusters = word_clusters(n_blocks, words, data) if n_blocks > 1 else None
        network = new_network(shape, clusters, data, self.seed)
        names = [field.name for field in fields(TrainingSettings) if field.name != "fit_time"]
        given = {name: getattr(self, name) for name in names}
        settings = settings_for(given, data.n_tokens, blocked=n_blocks > 1, timed=max_minutes is not None)
        arrays = data.words, data.offsets, held and held.words, held and held.offsets, clusters
        mark = partial(training_mark, settings, shape, self.patience, *arrays)
        watch = watch_for(
            self, None if held is None else text_development(network, held), checkpoint, mark, callback, max_minutes
        )
        if not watch.resumes():
            start_network(network, data, self.seed, watch)
        report = train(network, data, settings, watch, seconds=time.perf_counter() - started)
        self._words, self._network, self.report_ = words, network, report
        self._n_tokens, self._tables, self._spoken = data.n_tokens, None, None
        self._frequencies = self._counted(data)
        return self

    def _counted(self, data: Sentences) -> NDArray[np.float64]:
        """Return the frequency of each state at the words of sentences of the text, evenly chosen (S,)."""
        tables = self._computed()
        share = min(1.0, COUNTED / data.n_tokens)
        some = data.select(np.flatnonzero(np.diff(np.floor(share * np.arange(len(data) + 1)))))
        counts = torch.zeros(tables.log_start.shape, dtype=torch.float64)
        with threads_for(self._network):
            for at, p in lowrank.posteriors(*tables[:3], some.words, some.offsets, tables.blocks):
                inner = torch.from_numpy(some.words[at] != len(self._words))  # no sentence ends
                counts.index_add_(0, torch.from_numpy(tables.blocks[some.words[at]])[inner], p[inner].double())
        found = counts.reshape(-1)[: self.n_states].numpy()
        return np.asarray(found / max(found.sum(), 1e-300))

    def log_prob(
        self, X: Text | Sequence[Sequence[Evidence]], *, known: Sequence[Sequence[Evidence]] | None = None
    ) -> NDArray[np.float64]:
        """Return the natural log-probability of each sentence with its end (n,).

        A token may also be ``None`` (any word) or a collection of words (one of them): then it is the probability of
        all matching sentences. With ``known``, which has such tokens too, it is the probability given what is known.

        >>> text = [["a", "b"], ["b", "b"]] * 3
        >>> lm = HMMLanguageModel(2, hidden=4, max_iter=2).fit(text)
        >>> p = [np.exp(lm.log_prob([[w, "b"]], known=[[None, "b"]])[0]) for w in lm.vocabulary_]
        >>> print(f"{sum(p):.3f}")
        1.000
        """
        tables = self._computed()
        sentences = read_sentences(X)
        if known is not None:
            return self._log_conditional(sentences, read_sentences(known))
        if not sentences:
            return np.empty(0)
        if is_plain(sentences):
            data = number(sentences, self._words)
            return lowrank.score(*tables[:3], data.words, data.offsets, tables.blocks)
        return np.array([self._messages(sentence).log_z for sentence in sentences])

    def _log_conditional(self, sentences: Sequence[Any], known: Sequence[Any]) -> NDArray[np.float64]:
        """Return log p(sentence | what is known about it)."""
        if len(sentences) != len(known):
            raise ShapeError(f"known must have as many sentences as X, {len(sentences)}, got {len(known)}.")
        log_known = self.log_prob(known)
        if (log_known == -np.inf).any():
            raise ImpossibleError("what is known has probability zero, so nothing is conditional on it.")
        agreed = [both(*pair, self._words) for pair in zip(sentences, known, strict=True)]
        log_both = [-np.inf if one is None else float(self.log_prob([one])[0]) for one in agreed]
        return np.array(log_both) - log_known

    @torch.no_grad()
    def _messages(self, sentence: Sequence[Evidence], *, end: bool = True) -> lowrank.Messages:
        """Return the messages of a sentence with evidence."""
        tables = self._computed()
        return lowrank.Messages(*tables[:2], observed(sentence, self._words, tables, end=end))

    def _evidence(self, X: Text) -> tuple[NDArray[np.float64], int]:
        sentences = read_sentences(X)
        return self.log_prob(sentences), sum(len(sentence) + 1 for sentence in sentences)

    def predict_next(
        self, words: Sequence[str], n: int = 10, *, unknown: bool = False, rules: Rule | str | None = None
    ) -> Ranked:
        """Return the n most probable words after the start of a sentence; ``</s>`` is its end.

        ``<unk>`` is one of them if ``unknown``; probabilities are those of the model in either case (see ``fill``).
        With ``rules`` they are given that the finished sentence satisfies these rules about words.
        """
        tables = self._computed()
        check_count("n", n)
        states, now = tables.log_start.exp(), None
        if len(words):
            given = self._messages(words, end=False).possible(
                "these words have probability zero, so no word can follow them."
            )
            with torch.no_grad():
                states = given.following(len(states))
                now = torch.zeros_like(states)
                now[torch.from_numpy(given.evidence[-1].blocks)] = given.alpha[-1]
        if rules is not None:
            ids, before = self._words.ids(words), None if now is None else now.double().numpy().reshape(-1)
            return self._best_words(self._steered(rules).following(before, ids), n, unknown)
        p = spoken(tables.log_emission.exp(), tables.blocks, states).double().numpy()
        return self._best_words(p / p.sum(), n, unknown)  # the sum differs from one by the rounding of float32

    def start(self) -> State:
        """Return the state before the first word of a sentence."""
        tables = self._computed()
        return State(-1, tables.log_start.new_zeros(tables.log_start.shape[1]).numpy())

    @torch.no_grad()
    def extend_many(self, states: Sequence[State], words: Sequence[str]) -> tuple[NDArray[np.float64], list[State]]:
        """Return log p(word | state) of one word for each of n states (n,), and the states after the words.

        ``</s>`` is the end of the sentence, after which the state is that of ``start``. Scores are natural logarithms:
        those of the words of a sentence and of its end sum to its log evidence. The scores after an impossible word
        are -inf.
        """
        log_start, transition, log_emission, blocks = self._computed()
        ids = np.array(self._extensions(states, words, len(self._words)), np.int64)
        if not len(ids):
            return np.empty(0), []
        k = log_start.shape[1]
        if not all(isinstance(s, State) and np.shape(s.p) == (k,) and -1 <= s.block < len(log_start) for s in states):
            raise ShapeError(f"each state must be a State with p of shape (k,), k={k}: take the states of this model.")
        before, after = np.array([s.block for s in states]), blocks[ids]
        rows = torch.from_numpy(np.array([s.p for s in states], log_start.numpy().dtype))
        predicted = log_start.exp()[torch.from_numpy(after)]
        inner = np.flatnonzero(before >= 0)
        if len(inner):
            predicted[torch.from_numpy(inner)] = lowrank.step(transition, rows[inner], before[inner], after[inner])
        emission = log_emission[torch.from_numpy(ids)]
        top = emission.amax(dim=1, keepdim=True).clamp_min(torch.finfo(emission.dtype).min)
        joint = predicted * torch.exp(emission - top)
        total = joint.sum(dim=1, keepdim=True)
        p = (joint / total.clamp_min(torch.finfo(total.dtype).tiny)).numpy()
        end, start = len(self._words), self.start()
        new = [start if w == end else State(int(c), row) for w, c, row in zip(ids, after, p, strict=True)]
        return (total.double().log() + top)[:, 0].numpy(), new

    @torch.no_grad()
    def fill(self, sentence: str | Sequence[Evidence], n: int = 10, *, unknown: bool = False) -> list[Ranked]:
        """Return the n most probable words for each blank (``None``, or ``___`` in a string), best first.

        Other tokens may be collections of words, as in ``log_prob``. ``<unk>`` is one of the answers if
        ``unknown``; probabilities are those of the model in either case.
        """
        check_count("n", n)
        tables = self._computed()
        tokens, emission = blanks(sentence), tables.log_emission.exp()  # type: ignore[arg-type]
        messages = self._messages(tokens).possible("this sentence has probability zero, so no word fills its blanks.")
        ranked = []
        for t, beta in enumerate(messages.backward()[: len(tokens)]):
            if tokens[t] is None:
                blocks = torch.from_numpy(messages.evidence[t].blocks)
                states = torch.zeros_like(tables.log_start).index_copy(0, blocks, messages.predicted[t] * beta)
                p = spoken(emission, tables.blocks, states).double().numpy()
                p[-1] = 0  # the end of a sentence is no word
                ranked.append(self._best_words(p[:-1] / p.sum(), n, unknown))
        return ranked

    @torch.no_grad()
    def predict_marginals(self, X: Text) -> list[list[dict[str, float]]]:
        """Return p(state | sentence) of each word, as a dict by state of the word's block, best first."""
        return [[dict(word) for word in self._posteriors(sentence)] for sentence in read_sentences(X)]

    def _posteriors(self, sentence: Sequence[Evidence]) -> Iterator[Ranked]:
        """Yield the states of each word with their probabilities, best first."""
        messages = self._messages(sentence).possible("this sentence has probability zero, so it has no states.")
        beta, k = messages.backward(), self._computed().log_start.shape[1]
        for t in range(len(sentence)):
            p = (messages.alpha[t] * beta[t]).flatten()
            states = (torch.from_numpy(messages.evidence[t].blocks)[:, None] * k + torch.arange(k)).flatten()
            order = torch.argsort(p, descending=True, stable=True)
            yield [(f"#{z}", value) for z, value in zip(states[order].tolist(), p[order].tolist(), strict=True)]

    @torch.no_grad()
    def predict(self, X: Text) -> list[list[str]]:
        """Return the most probable states of each sentence (``#0``, ``#1``, ...), one per word."""
        tables, paths = self._computed(), []
        for sentence in read_sentences(X):
            states, _ = lowrank.viterbi(*tables[:2], observed(sentence, self._words, tables))
            paths.append([f"#{z}" for z in states[:-1]])
        return paths

    @property
    def _speaker(self) -> BlockSpeaker:
        if self._spoken is None:
            self._spoken = BlockSpeaker(self._computed(), self.vocabulary_)
        return self._spoken

    def _named(self, words: list[int], states: list[int]) -> tuple[list[str], list[str]]:
        return [self._words[w] for w in words], [f"#{z}" for z in states]

    def top_words(self, label: str, n: int = 10) -> Ranked:
        """Return the n most probable words of a state such as ``#7``; ``</s>`` is the end of a sentence."""
        self._check_fitted()
        check_count("n", n)
        best = self._best_words(self._speaker.spoken_by(self._state_number(label)), n)
        return [pair for pair in best if pair[1] > 0]

    def _state_number(self, state: str) -> int:
        number = whole_number(str(state).removeprefix("#"))
        if number is None or number >= self._n_states:
            raise ValueRangeError(f"the model has states #0 to #{self._n_states - 1}, got {shorten(str(state))}.")
        return number

    def _state_frequencies(self) -> NDArray[np.float64]:
        """Return the frequency of each state in the training text (S,), expected over a sample of its sentences."""
        self._check_fitted()
        assert self._frequencies is not None
        return self._frequencies.copy()

    def transitions(self) -> NDArray[np.float32]:
        """Return p(next state | state) (S, S); with blocks, a row lacks the probability of the sentence end."""
        S = self._n_states
        check_cost(f"a matrix of {S:,} states", n_bytes=8.0 * S**2)
        return matrix_of(self._computed().transition)[:S, :S].numpy().copy()

    def _computed(self) -> Tables:
        """Return the probabilities of the model; with blocks, the last block is that of the sentence end."""
        self._check_fitted()
        if self._tables is None:
            with threads_for(self._network):
                self._tables = self._network.tables()
        return self._tables

    @property
    def _n_states(self) -> int:
        """Number of states of the fitted model."""
        self._check_fitted()
        return self._network.shape.n_states

    def known_words(self) -> set[str]:
        """Return the words of training."""
        return set(self._words)

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the most frequent states and blocks with their words, and the blocks before and after each block."""
        frequencies = self._state_frequencies()
        if label is not None:
            chosen = [self._state_number(label)]
        else:
            chosen = (-frequencies).argsort(kind="stable")[:n].tolist()
        facts: dict[str, Any] = {
            "states": self._n_states,
            "words": len(self._words),
            "dev_perplexity": None if self.report_.dev is None else float(np.exp(-self.report_.dev)),
        }
        rows: list[tuple[Any, ...]] = [
            (f"#{z}", float(frequencies[z]), [list(word) for word in self.top_words(f"#{z}", n)]) for z in chosen
        ]
        tables = [Table("top_words", "Words of the most frequent states", ("state", "frequency", "words"), rows)]
        if self._network.clusters is not None:
            tables.append(self._described_blocks(n, frequencies))
        return Description(f"HMM language model with {self._n_states} states", facts, tables)

    @torch.no_grad()
    def _described_blocks(self, n: int, frequencies: NDArray[np.float64]) -> Table:
        """Return a table of the most frequent blocks: their words, and the blocks before and after them."""
        _, transition, log_emission, blocks = self._computed()
        assert isinstance(transition, lowrank.Blocks)
        assert transition.log_leave is not None
        C = len(transition.left) - 1
        joint = torch.from_numpy(frequencies).reshape(C, -1)
        flow = torch.einsum("ck,ckd->cd", joint, transition.log_leave[:-1].double().exp())
        common = (log_emission.double().exp()[:-1] * joint[blocks[:-1]]).sum(dim=1).numpy()
        own = [np.flatnonzero(blocks[:-1] == c) for c in range(C)]
        best = [words[np.argsort(-common[words], kind="stable")][:3] for words in own]
        names = [f"{c}: {', '.join(self._words[int(w)] for w in best[c])}" for c in range(C)] + [END]

        def best_blocks(p: Tensor) -> Ranked:
            return best_words(names, (p / p.sum()).numpy(), 5)

        order = np.argsort(-joint.sum(dim=1).numpy(), kind="stable")[:n].tolist()
        rows: list[tuple[Any, ...]] = [
            (names[c], float(joint[c].sum()), len(own[c]), best_blocks(flow[:, c]), best_blocks(flow[c])) for c in order
        ]
        return Table(
            "blocks", "Most frequent blocks of words", ("block", "frequency", "words", "before", "after"), rows
        )

    def _best_words(self, p: NDArray[np.float64], n: int, unknown: bool = True) -> Ranked:
        return best_words([*self._words, END], p, n, self._left_out(unknown))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain: dict[str, Any] = {
            "shape": asdict(self._network.shape),
            "words": list(self._words),
            "tokens": self._n_tokens,
        }
        arrays = {f"network.{name}": value.detach().numpy() for name, value in self._network.state_dict().items()}
        arrays["frequencies"] = self._state_frequencies()
        if self._network.clusters is not None:
            arrays["clusters"] = self._network.clusters
        return plain, arrays

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        words = restored_vocabulary(plain["words"])
        network = restored_network(plain["shape"], arrays, len(words) + 1)
        self._words, self._network, self._n_tokens = words, network, plain["tokens"]
        self._frequencies = arrays.get("frequencies")
        if self._frequencies is None or self._frequencies.shape != (network.shape.n_states,):
            raise DataError("the weights do not match model.json: they have no frequency of each state.")
