"""Hidden Markov models of words: taggers and induced states, also from partly labeled sentences."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Corpus, Vocabulary
from trelliswork.data.vocabulary import END, UNKNOWN, strings
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.inference.chain.beam import Beam, chosen_beam
from trelliswork.learning import whole
from trelliswork.learning.report import Callback
from trelliswork.learning.watch import Development
from trelliswork.models.base import Arrays, Description, Table, check_label
from trelliswork.models.entrance import SYMBOLS
from trelliswork.models.hmm.data import Sentences, States, Token, fill_states, read_sentences
from trelliswork.models.hmm.decoding import StateChain, chain_from_table, state_beam
from trelliswork.models.hmm.em import Algorithm
from trelliswork.models.hmm.emissions import Emissions, emissions_from_state
from trelliswork.models.hmm.steering import Speaking, StateSpeaker, Steering
from trelliswork.models.hmm.tagging import ChainTagger
from trelliswork.models.hmm.training import Learned, Stream, Unknown, learn
from trelliswork.models.parameters import (
    MODEL,
    TRAINING,
    FurtherOptions,
    MinCount,
    Parameter,
    Patience,
    Seed,
    Tol,
    estimator,
    later,
    option,
    parse_beam,
)
from trelliswork.models.tasks import LanguageModel, Tagger, best_words, blanks
from trelliswork.rules import Rule

Path = str | os.PathLike[str]
Dev = Sentences | Corpus | tuple[Sentences | Corpus, States | None]


def _prior(text: str) -> Any:
    return Parameter(text, minimum=0, below=math.inf, panel=TRAINING)


@estimator
class HMM(ChainTagger, Speaking):
    """A tagger and language model: each state depends on the preceding ones, each word on its state.

    One ``fit`` takes sentences whose states are all known (a tagger, estimated by counting), all unknown (induced by
    EM), or partly known.

    Attributes
    ----------
    labels_ : tuple of str
        Names of the states: known ones, and ``#0``, ``#1``, ... for others.
    vocabulary_ : tuple of str
        Words of the model, ``<unk>`` among them if it has that symbol; integers as strings.
    report_ : FitReport
        Report of the training; ``details["posterior"]`` after variational Bayes, ``details["restarts"]`` after several
        starts.

    Examples
    --------
    >>> hmm = HMM().fit([["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]])
    >>> hmm.predict([["the", "dog", "runs"]])
    [['D', 'N', 'V']]
    """

    family: ClassVar[str] = "hmm"
    _tokens: ClassVar[tuple[type, ...]] = SYMBOLS
    _title: ClassVar[str] = "Hidden Markov model"
    _induced: bool = later()
    _any_chain: Any = later()  # with the beam that was set when it was last used
    _emissions: Emissions = later()
    _spoken: StateSpeaker | None = later(None)
    _stream: Stream | None = later(None)  # of partial_fit

    n_states: Annotated[
        int | None,
        Parameter(
            "Number of states; needed if none is known. More than the known ones add states without a name.",
            minimum=1,
            unset="the known states",
        ),
    ] = None
    _: KW_ONLY
    order: Annotated[
        int,
        Parameter(
            "Number of preceding states that a state depends on; 2 and 3 need known states.", minimum=1, maximum=3
        ),
    ] = 1
    unknown: Annotated[
        Unknown,
        Parameter(
            "Words that do not occur in training: suffix scores them by their suffixes and shapes as in TnT, symbol as "
            "<unk>."
        ),
    ] = "suffix"
    end: Annotated[
        bool, Parameter("Whether the end of a sentence is an event; if not, the lengths of sentences are given.")
    ] = True
    beam: Annotated[
        Beam | str | None,
        Parameter(
            "Keep few states per token (n-grams of states with order 2 and 3), in EM and tagging: kl=0.005,min=10; "
            "size=20; threshold=6.9,min=1 (TnT's); auto chooses a beam where it is faster. The evidence is then a "
            "lower bound.",
            panel=MODEL,
            unset="exact inference",
            parse=parse_beam,
        ),
    ] = None
    transition_prior: Annotated[
        float,
        _prior(
            "Pseudo-count or Dirichlet parameter of each transition and of the end. Not used by a tagger estimated "
            "from known states and suffixes; partly labeled words get priors from the labeled ones."
        ),
    ] = 0.1
    emission_prior: Annotated[
        float,
        _prior("Pseudo-count or Dirichlet parameter of each word of a state; used where transition_prior is."),
    ] = 0.01
    min_count: MinCount = 1
    algorithm: Annotated[
        Algorithm,
        Parameter(
            "EM (maximum likelihood, or MAP with priors), or variational Bayes.",
            panel=TRAINING,
        ),
    ] = "em"
    max_iter: Annotated[int, Parameter("Maximum number of EM iterations.", minimum=1, panel=TRAINING)] = 100
    tol: Tol = 1e-5
    n_restarts: Annotated[
        int,
        Parameter("Number of random starts if no state is known; the best continues.", minimum=1, panel=TRAINING),
    ] = 1
    patience: Patience = 20
    seed: Seed = 0
    options: FurtherOptions = None
    probe: Annotated[
        int, Parameter("Iterations of each random start before the best is chosen.", minimum=1, panel=TRAINING)
    ] = option(5)
    dtype: Annotated[
        Literal["float32", "float64"],
        Parameter("Precision of EM; float32 is twice as fast.", panel=TRAINING),
    ] = option("float64")

    def fit(
        self,
        X: Sentences | Corpus,
        y: States | None = None,
        *,
        dev: Dev | None = None,
        checkpoint: Path | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
    ) -> Self:
        """Train on sentences.

        Parameters
        ----------
        X : list of lists of str or int, or Corpus
            Words, or ids from 0; the first column of a corpus.
        y : list of lists, optional
            The state of each token, ``None`` where it is unknown; also ``None`` for a whole sentence.
        dev : (X, y) or X, optional
            Development data: EM stops when the accuracy, or without y the mean log-probability per token, has not
            increased for ``patience`` iterations, and the best iteration is kept. A measurement takes about as long as
            an iteration. In a group of processes every rank gets all of it.
        """
        self._check_parameters()
        chosen_beam(self.beam, 1)  # raises an error for text that is not a beam
        sentences = read_sentences(X, training=True)
        development, held = (None, None) if dev is None else self._development(dev)
        if development is not None and development.metric == "accuracy" and not whole.anywhere(_any_known(y)):
            raise ValueRangeError("dev has labels, but training has none to compare with: pass dev=X without labels.")
        run: Any = {"checkpoint": checkpoint, "callback": callback, "max_minutes": max_minutes}
        learned = learn(sentences, y, self, development, held, **run)
        if development is not None and not learned.report.history:  # estimated by counting
            learned.report.metric, learned.report.dev = development.metric, development.measure(learned)
        return self._set(learned)

    def partial_fit(self, X: Sentences | Corpus, *, words: Mapping[Any, int] | None = None) -> Self:
        """Take one step of stepwise EM on a batch of sentences, for text that does not fit into memory.

        Call it for each batch, in one pass over the text or several. Needs ``n_states`` and ``unknown="symbol"``.

        Parameters
        ----------
        X : as in ``fit``
            Sentences without labels. In a group of processes each has a part of the batch, which may be empty.
        words : dict of str (or int) to int
            How often each word occurs in the whole text, in the first call. Words that are not listed, or occur less
            often than ``min_count``, share the symbol ``<unk>``.
        """
        self._check_parameters()
        sentences = read_sentences(X, training=True)
        if self._stream is None:
            if words is None:
                raise ValueRangeError("the first call of partial_fit needs words={...}, how often each word occurs.")
            self._stream = Stream.begin(sentences, words, self)
        self._stream, learned = self._stream.after(sentences, self)
        return self._set(learned)

    @property
    def kind(self) -> str:
        """Whether log-probabilities of text are "exact", or "lower" bounds (with a beam)."""
        self._check_fitted()
        return "exact" if self._chain.beam is None else "lower"

    def _evidence(self, X: Sentences | Corpus) -> tuple[NDArray[np.float64], int]:
        sentences = read_sentences(X)
        return self.log_prob(sentences), sum(len(sentence) + self._chain.has_end for sentence in sentences)

    def score(self, X: Sentences | Corpus, y: Any = None) -> float:
        """Return the token accuracy if labels are given, else the mean log-probability per token.

        Tokens whose label is ``None`` do not count; sentence ends count as tokens if they are events.
        """
        if y is None:
            return LanguageModel.score(self, X)
        return Tagger.score(self, X, fill_states(read_sentences(X), y))

    def predict_next(
        self, words: Sequence[Token], n: int = 10, *, unknown: bool = False, rules: Rule | str | None = None
    ) -> list[tuple[Any, float]]:
        """Return the n most probable words after the start of a sentence; ``</s>`` is its end.

        ``<unk>`` is one of them if ``unknown``; probabilities are those of the model in either case (see ``fill``).
        With ``rules`` they are given that the finished sentence satisfies these rules about words.
        """
        self._check_fitted()
        check_count("n", n)
        read_sentences([words] if len(words) else [])
        rows = np.empty((0, len(self._labels)))
        if len(words):
            rows = self._emissions.rows(words, np.array([0, len(words)]))
        now, speaker = self._chain.now(rows), self._speaker
        before = None if now is None else np.append(now, 0.0)
        if rules is None:
            every = speaker.spoken(speaker.start if before is None else speaker.after(before))
        else:
            ids = {word: k for k, word in enumerate(self._emissions.words)}
            every = self._steered(rules).following(before, [ids.get(word, ids.get(UNKNOWN, -1)) for word in words])
        p, end = every[:-1], float(every[-1])
        ends = [(END, end)] if self._chain.has_end else []
        ranked = [*self._ranked(p, n, unknown), *ends]
        return sorted(ranked, key=lambda pair: -pair[1])[:n]

    def fill(
        self, sentence: str | Sequence[Token | None], n: int = 10, *, unknown: bool = False
    ) -> list[list[tuple[Any, float]]]:
        """Return the n most probable words for each blank (``None``, or ``___`` in a string), best first.

        With several blanks each list is a marginal distribution. ``<unk>`` is one of the words if ``unknown``;
        probabilities are those of the model in either case.
        """
        self._check_fitted()
        check_count("n", n)
        tokens: list[Any] = blanks(sentence)  # type: ignore[arg-type]
        offsets, at = np.array([0, len(tokens)]), [t for t, token in enumerate(tokens) if token is None]
        any_word = self._emissions.words[0]
        rows = self._emissions.rows([any_word if token is None else token for token in tokens], offsets)
        rows[at] = 0.0  # the probabilities of all words sum to 1
        _, marginals = self._chain.marginals(rows, offsets)
        return [self._ranked(p, n, unknown) for p in marginals[at] @ np.exp(self._emissions.table())]

    @property
    def _speaker(self) -> StateSpeaker:
        chain = self._chain
        if self._spoken is None or self._spoken.chain is not chain:
            names = [str(word) for word in self._emissions.words]
            self._spoken = StateSpeaker(chain, np.exp(self._emissions.table()), names)
        return self._spoken

    def _named(self, words: list[int], states: list[int]) -> tuple[list[Any], list[str]]:
        listed, label = self._emissions.words, self._chain.contexts.label
        return [listed[w] for w in words], self._labels.strings(label[states] if states else [])

    def _steered(self, rules: Rule | str) -> Steering:
        self._check_fitted()
        if not self._chain.has_end:
            raise ValueRangeError("rules about words need the end of sentences as an event: train with end=True.")
        return super()._steered(rules)

    def top_words(self, label: str, n: int = 10) -> list[tuple[Any, float]]:
        """Return the n most probable words of a state, with p(word | state)."""
        self._check_fitted()
        check_count("n", n)
        return self._ranked(np.exp(self._emissions.table()[self._labels.id(label)]), n)

    def transitions(self) -> NDArray[np.float64]:
        """Return p(next state | state) (S, S); the rest of a row is the end. With order 2 the mean over sentences."""
        self._check_fitted()
        return self._chain.transitions()

    def known_words(self) -> set[str]:
        """Return the words of training."""
        self._check_fitted()
        return set(self._words) - {UNKNOWN}

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the most probable words and next states of each state."""
        self._check_fitted()
        check_label(label, self._labels)
        follow, states = self.transitions(), list(self._labels) if label is None else [label]
        rows: list[tuple[Any, ...]] = []
        for state in states:
            row = follow[self._labels.id(state)]
            after = [[self._labels[j], float(row[j])] for j in np.argsort(-row, kind="stable")[:5]]
            rows.append((state, [list(word) for word in self.top_words(state, n)], after))
        facts = {
            "order": self.order,
            "induced": self._induced,
            "labels": list(self._labels),
            "words": len(self.known_words()),
        }
        tables = [Table("states", "Words and next states of each state", ("state", "words", "next"), rows)]
        kind = "induced" if self._induced else "labeled"
        return Description(f"HMM of order {self.order} with {len(self._labels)} {kind} states", facts, tables)

    def _development(self, dev: Dev) -> tuple[Development, Any]:
        """Return the metric of learned models on the development data, and these as plain data."""
        data: Any = dev if isinstance(dev, tuple) and len(dev) == 2 else (dev, None)
        sentences = read_sentences(data[0])
        labels = None if data[1] is None else fill_states(sentences, data[1])
        metric = "log-probability per token" if labels is None else "accuracy"

        def sums(learned: Learned, first: int, last: int) -> tuple[float, float]:
            return self._measure(sentences[first:last], labels and labels[first:last], learned)

        return Development.of_shares(metric, len(sentences), sums), (sentences, labels)

    def _measure(self, X: Sentences, y: States | None, learned: Learned) -> tuple[float, float]:
        """Return the sum of the scores of tokens under a model with the parameters of this one, and their number."""
        model = type(self)(**self.get_params())._set(learned)
        if y is None:
            log_p, n_tokens = model._evidence(X)
            return float(log_p.sum()), n_tokens
        rows: Any = zip(model.predict(X), y, strict=True)
        known = [label == given for row in rows for label, given in zip(*row, strict=True) if given is not None]
        return float(sum(known)), len(known)

    def _set(self, learned: Learned) -> Self:
        self._labels, self._any_chain, self._emissions = learned.labels, learned.chain, learned.emissions
        self._induced, self.report_, self.calibration_ = learned.induced, learned.report, None
        words = [str(word) for word in learned.emissions.words]
        self._words = Vocabulary(words, unknown=UNKNOWN if UNKNOWN in words else None)
        return self

    @property
    def _chain(self) -> StateChain:
        """The chain of the states with the present beam."""
        beam = state_beam(self.beam, len(self._labels), self._any_chain.order)
        if beam != self._any_chain.beam:
            self._any_chain = replace(self._any_chain, beam=beam)
        return self._any_chain

    def _scores(
        self, sentences: Sequence[Sequence[Any]], offsets: NDArray[np.int64], out: NDArray[np.bool_] | None
    ) -> NDArray[np.float64]:
        rows = self._emissions.rows([token for sentence in sentences for token in sentence], offsets)
        if out is not None:
            rows[out] = -np.inf
            # Evidence overrides the lexicon: a word may have a state in which it did not occur.
            rows[~out & ~(rows > -np.inf).any(axis=1, keepdims=True)] = 0
        return rows

    def _ranked(self, p: NDArray[np.float64], n: int, unknown: bool = True) -> list[tuple[Any, float]]:
        """Return the n most probable words of a distribution over all words."""
        return best_words(self._emissions.words, p, n, self._left_out(unknown))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        emissions, arrays = self._emissions.state()
        plain: dict[str, Any] = {
            "labels": list(self._labels),
            "induced": self._induced,
            "order": self._chain.order,
            "end": self._chain.has_end,
            "emissions": emissions,
        }
        return plain, arrays | {"ngrams": self._chain.log_table}

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        chain = chain_from_table(arrays["ngrams"], plain["order"], self.beam, end=plain["end"])
        emissions, labels = emissions_from_state(plain["emissions"], arrays), Vocabulary(strings(plain["labels"]))
        if not chain.n_states == emissions.n_states == len(labels):
            raise DataError("the weights do not match model.json: they belong to different models.")
        self._set(Learned(labels, chain, emissions, plain["induced"], self.report_))


def _any_known(y: States | None) -> bool:
    return y is not None and any(state is not None for states in y if states is not None for state in states)
