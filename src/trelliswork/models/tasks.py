"""Kinds of models by task: taggers, tree parsers and language models.

The command line, the report and the explorer ask for the task of a model, never for its class. Every estimator of a
task has the methods below with the same signatures and return types (``tests/models/test_vocabulary.py``).
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.compute.padding import unpad
from trelliswork.data.corpus import Column
from trelliswork.data.ids import Source, TextIds, read_ids
from trelliswork.data.schemes import detect_scheme
from trelliswork.data.vocabulary import END, START, UNKNOWN, Vocabulary
from trelliswork.errors import DataError, ShapeError, ValueRangeError, extras_for
from trelliswork.inference.chain import queries
from trelliswork.inference.chain.beam import Beam
from trelliswork.inference.chain.queries import Scores, dense_parts
from trelliswork.models.base import Estimator
from trelliswork.models.evidence import Labels, SentenceRules
from trelliswork.models.spans import THRESHOLD, Chains, Confident, SpanLabels
from trelliswork.rules.chains import LOST

if TYPE_CHECKING:
    from trelliswork.answers import Answer
    from trelliswork.distributions import Distribution

Ranked = list[tuple[str, float]]  # words or labels with their probabilities, best first
TagDecoding = Literal["viterbi", "mbr", "mbr-span"]


def check_decoding(decoding: str) -> None:
    """Raise an error if taggers know no such decision."""
    if decoding not in get_args(TagDecoding):
        names = ", ".join(map(repr, get_args(TagDecoding)))
        raise ValueRangeError(f"decoding must be one of {names}, got {decoding!r}.")


class Structured(Estimator):
    """An estimator whose answers have a structure: labels of all tokens, or a tree."""

    def answer(
        self, X: Any, *, k: int = 1, decoding: Any = None, known: Any = None, rules: Any = None
    ) -> "list[Answer]":
        """Return what ``predict`` returns for each sentence, with all that the model says about it.

        Parameters
        ----------
        X, known, rules : as in ``predict``
        k : int
            Number of ``alternatives``, the most probable answers; none of one.
        decoding : str, optional
            As in ``predict``; by default the same.

        Returns
        -------
        list of Answer
            ``value``, ``probabilities`` of labels or arcs, ``spans`` with their probabilities (of a grammar its
            constituents), ``log_prob`` of the whole answer (not for grammars), ``alternatives`` and ``kind``.
        """
        from trelliswork.answers import Want, ask

        want = Want(marginals=True, spans=True, log_prob=True, topk=k if k > 1 else 0)
        return ask(self, X, want, decoding=decoding, known=known, rules=rules)


class Tagger(Structured):
    """An estimator that assigns a label to each token.

    Attributes
    ----------
    labels_ : tuple of str
        Labels that the model can assign.
    """

    _labels: Vocabulary
    _fit_sets: ClassVar[str] = "_labels"
    _tokens: ClassVar[tuple[type, ...]] = (str,)  # types of tokens, if they are words or columns

    @property
    def labels_(self) -> tuple[str, ...]:
        """Labels that the model can assign."""
        self._check_fitted()
        return self._labels.names

    @property
    def classes_(self) -> tuple[str, ...]:
        """Labels that the model can assign; scikit-learn's name of ``labels_``."""
        return self.labels_

    def predict(
        self, X: Any, *, decoding: TagDecoding = "viterbi", known: Labels | None = None, rules: Any = None
    ) -> list[list[str]]:
        """Return the labels of each sentence.

        Parameters
        ----------
        X : list of sentences, or Corpus
        decoding : {"viterbi", "mbr", "mbr-span"}
            The most probable labeling; the most probable label of each token, for the best expected accuracy; or the
            spans with the best expected F1, if the labels encode spans.
        known : list of lists, optional
            Evidence: for each token a label, a collection of possible labels, or ``None`` if nothing is known. It
            overrides a lexicon that does not list the label for the word.
        rules : Rule or str, or a list with one for each sentence, optional
            What must hold in the whole sentence, see `trelliswork.rules`. The most probable labeling satisfies them;
            other decisions use the probabilities given the rules, and may break them.
        """
        check_decoding(decoding)
        self._check_fitted()
        if decoding == "mbr-span":
            return self._by_spans(X, known, rules)
        items = self._labels.items
        return [
            [items[j] for j in row[:n]]
            for labels, lengths in self._decoded(X, decoding, known, rules)
            for row, n in zip(labels.tolist(), lengths.tolist(), strict=True)
        ]

    def _predict_flat(
        self, X: Any, *, decoding: TagDecoding = "viterbi", known: Labels | None = None, rules: Any = None
    ) -> Sequence[str]:
        """Return the labels of all tokens, one sentence after another; arguments as for ``predict``."""
        if decoding not in ("viterbi", "mbr"):
            return [
                label for sentence in self.predict(X, decoding=decoding, known=known, rules=rules) for label in sentence
            ]
        self._check_fitted()
        ids = [unpad(labels, lengths) for labels, lengths in self._decoded(X, decoding, known, rules)]
        return Column(self._labels.items, np.concatenate([np.empty(0, np.int64), *ids]))

    def predict_marginals(
        self, X: Any, *, known: Labels | None = None, rules: Any = None
    ) -> list[list[dict[str, float]]]:
        """Return p(label | sentence, known labels, rules) for each token, as a dict by label, best first."""
        self._check_fitted()
        result = []
        for ask, scores in self._asked(X, known, rules, map(queries.in_double, self._scored(X, known))):
            rows = unpad(self._marginals(ask, scores), scores.lengths)
            result += by_label(self.labels_, rows, scores.lengths)
        return result

    def predict_topk(
        self, X: Any, k: int, *, known: Labels | None = None, rules: Any = None
    ) -> list[list[tuple[list[str], float]]]:
        """Return the k most probable labelings of each sentence with their probabilities, best first; always exact."""
        self._check_fitted()
        return [
            [(self._labels.strings(row), p) for row, p in zip(rows.tolist(), np.exp(log_p).tolist(), strict=True)]
            for ask, scores in self._asked(X, known, rules)
            for rows, log_p in ask.best_labelings(scores, k)
        ]

    @extras_for("posterior")
    def posterior(self, sentence: Any, *, known: Any = None, rules: Any = None) -> "Distribution":
        """Return the distribution over labelings of one sentence, in float64, for any query.

        It is a `LinearChain`, within a beam a `BeamChain`; an `NgramChain` with order 2 and above; under rules a
        `RuledChain`.
        """
        import torch

        from trelliswork.distributions import LinearChain, NgramChain

        self._check_fitted()
        if len(sentence) == 0:
            raise ShapeError("the sentence is empty: a distribution over labels needs a token.")
        (scores,) = self._scored([sentence], None if known is None else [known])
        ((potentials, label_of),) = dense_parts(scores)
        pairwise = potentials.log_pairwise[0] if potentials.shared else potentials.log_pairwise[None]
        unary, between = (torch.from_numpy(x).double() for x in (potentials.log_unary, pairwise))
        chain: Any = LinearChain(unary, between)
        beam = self._beam()
        chain = chain if beam is None else chain.within(beam)
        chain = chain if label_of is None else NgramChain(chain, label_of, len(self._labels))
        return chain if rules is None else chain.condition(rules=rules, labels=self.labels_)

    @abstractmethod
    def _scored(self, X: Any, known: Labels | None = None) -> Iterator[Scores]:
        """Yield the scores of batches of sentences, in order; -inf for labels that the evidence rules out."""

    @abstractmethod
    def _beam(self) -> Beam | None:
        """Return the beam for tagging."""

    def _agreeing(self, X: Any, y: Labels) -> Iterator[Scores]:
        """Yield the scores of batches, with -inf for labels other than those of y."""
        return self._scored(X, y)

    def _asked(
        self, X: Any, known: Labels | None = None, rules: Any = None, scored: Iterator[Scores] | None = None
    ) -> Iterator[tuple[Any, Scores]]:
        """Yield the scores of batches, in order, with what answers queries about them: ``queries``, or rules."""
        batches = self._scored(X, known) if scored is None else scored
        if rules is None:
            yield from ((queries, scores) for scores in batches)
            return
        for (ask,), numbers, part in SentenceRules([(rules, self.labels_)], len(X)).split(batches):
            yield ask if ask is queries else ask.taken(numbers), part

    def _marginals(self, ask: Any, scores: Scores) -> NDArray[np.floating]:
        """Return p(label) (B, T, S); an error if rules make a sentence impossible."""
        log_z, marginals = ask.label_marginals(scores, self._beam())
        if ask is not queries:
            ask.check(scores, log_z)
        result: NDArray[np.floating] = marginals
        return result

    def _decoded(
        self, X: Any, decoding: TagDecoding, known: Labels | None, rules: Any = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.integer]]]:
        """Yield labels (B, T) and lengths (B,) of batches of sentences, in order."""
        for ask, scores in self._asked(X, known, rules):
            if decoding == "viterbi":
                yield ask.best_labels(scores, self._beam()), scores.lengths
            else:
                yield self._marginals(ask, scores).argmax(axis=2), scores.lengths

    def _chains(self, X: Any, known: Labels | None = None, rules: Any = None) -> Chains:
        """Yield the sentences as chains, in order and in batches."""
        for ask, scores in self._asked(X, known, rules):
            yield from ask.dense_parts(scores)

    def rules_probability(self, X: Any, rules: Any, *, known: Labels | None = None) -> NDArray[np.float64]:
        """Return the probability (n_sentences,) that rules hold, given what is known; exact, or an upper bound."""
        return self._rules_hold(X, rules, known)[0]

    def _rules_hold(self, X: Any, rules: Any, known: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the probability (n_sentences,) that rules hold, and whether it is an upper bound."""
        self._check_fitted()
        parts = [ask.hold(scores, self._beam()) for ask, scores in self._asked(X, known, rules)]
        p, lost = (
            (np.concatenate([*found, np.empty(0)]) for found in zip(*parts, strict=True))
            if parts
            else (np.empty(0),) * 2
        )
        return p, lost > LOST

    def predict_spans(
        self, X: Any, *, decoding: TagDecoding = "viterbi", known: Labels | None = None, rules: Any = None
    ) -> list[Confident]:
        """Return the spans (entities, chunks) of each sentence with their probabilities.

        The probability of a span is that of all labelings in which it is a span: all its labels jointly, and that it
        ends there.

        Parameters
        ----------
        X, decoding, known, rules : as in ``predict``
        """
        self._check_fitted()
        reader = SpanLabels.of(self._labels)
        labels = self.predict(X, decoding=decoding, known=known, rules=rules)
        return reader.confidences(self._chains(X, known, rules), labels)

    def log_prob(self, X: Any, y: Labels, *, rules: Any = None) -> NDArray[np.float64]:
        """Return log p(labels | sentence) (n_sentences,) of whole labelings.

        ``y`` has for each token a label, a collection of labels or ``None``: then it is the probability of all
        labelings that agree with it. Under rules it is the probability given that they hold. A beam is not used.
        """
        self._check_fitted()
        asked, parts = self._asked(X, None, rules, self._agreeing(X, y)), [np.empty(0)]
        for (ask, every), (_, given) in zip(self._asked(X, None, rules), asked, strict=True):
            log_z = ask.log_partition(every)
            if ask is not queries:
                ask.check(every, log_z)
            parts.append(ask.log_partition(given) - log_z)
        return np.minimum(np.concatenate(parts), 0.0)

    def _by_spans(self, X: Any, known: Labels | None, rules: Any = None) -> list[list[str]]:
        """Return the labels with the best expected F1 of spans."""
        reader = SpanLabels.of(self._labels)
        thresholds = {} if self.calibration_ is None else self.calibration_.span_thresholds
        decoded = list(reader.decode(self._chains(X, known, rules), thresholds.get("", THRESHOLD)))
        names = set(self._labels)
        bad = [n for n, labels in enumerate(decoded) if labels is None or not names.issuperset(labels)]
        if bad:  # words that must be in a span, or labels that the model lacks: the most probable labeling
            others = self.predict(X, known=known, rules=rules)
            for n in bad:
                decoded[n] = others[n]
        return [labels or [] for labels in decoded]

    def _span_thresholds(self, X: Any) -> dict[str, float]:
        if detect_scheme(self._labels) is None:
            return {}
        return {"": SpanLabels.of(self._labels).threshold(self._chains(X))}

    def score(self, X: Any, y: Any) -> float:
        """Return the token accuracy; tokens whose label is ``None`` do not count."""
        return accuracy(self.predict(X), y)


class LayeredTagger(Tagger):
    """A tagger with several layers of labels per token.

    ``predict`` returns a tuple of labels per token; ``known`` and the results of the methods below are dicts by layer.
    """

    layers: Sequence[str]
    _layers: tuple[Any, ...]  # of trained labels, with a name each
    _fit_sets: ClassVar[str] = "_layers"

    @property
    def labels_(self) -> dict[str, tuple[str, ...]]:  # type: ignore[override]
        """Labels that the model can assign, by layer."""
        self._check_fitted()
        return {layer.name: layer.labels.names for layer in self._layers}


class TreeParser(Structured):
    """An estimator that assigns a tree to each sentence.

    Attributes
    ----------
    constituents : bool
        Whether trees are bracketings; otherwise they are dependency trees.
    """

    constituents: ClassVar[bool] = False
    _tokens: ClassVar[tuple[type, ...]] = (str,)

    @abstractmethod
    def predict(self, X: Any) -> list[Any]:
        """Return the tree of each sentence."""

    @abstractmethod
    def posterior(self, sentence: Any, *, known: Any = None) -> "Distribution":
        """Return the distribution over trees of one sentence, for any query."""


class LanguageModel(Estimator):
    """An estimator of the probability of sentences.

    Attributes
    ----------
    vocabulary_ : tuple of str
        Words that the model knows, ``<unk>`` among them if it has one.
    """

    _words: Vocabulary
    _fit_sets: ClassVar[str] = "_words"
    _sums_blanks: ClassVar[bool] = True  # whether the list of a blank sums over the words of the others
    _tokens: ClassVar[tuple[type, ...]] = (str,)

    @property
    def vocabulary_(self) -> tuple[str, ...]:
        """Words that the model knows."""
        self._check_fitted()
        return self._words.names

    @abstractmethod
    def log_prob(self, X: Any) -> NDArray[np.float64]:
        """Return the natural log-probability of each sentence, the end of the sentence included."""

    @abstractmethod
    def _evidence(self, X: Any) -> tuple[NDArray[np.float64], int]:
        """Return log p of each sentence, and the number of tokens scored; X, which may be an iterator, is read once."""

    def score(self, X: Any, y: None = None) -> float:
        """Return the mean log-probability per token, the ends of sentences counted if they are events."""
        if y is not None:
            raise ValueRangeError("a language model scores text without answers: leave y out.")
        log_p, n_tokens = self._evidence(X)
        if not n_tokens:
            raise DataError("X has no sentences, so there is no mean per token.")
        return float(log_p.sum()) / n_tokens

    def perplexity(self, X: Any) -> float:
        """Return exp of the negative mean log-probability per token; see ``score``."""
        return math.exp(min(700.0, -self.score(X)))

    @abstractmethod
    def sample(self, n: int = 1, *, seed: int | None = None, max_length: int = 200) -> list[list[str]]:
        """Return n random sentences, the same ones for the same seed; by default new ones."""

    @abstractmethod
    def fill(self, sentence: str | Sequence[str | None], n: int = 10, *, unknown: bool = False) -> list[Ranked]:
        """Return the n most probable words for each blank of a sentence.

        Parameters
        ----------
        sentence : list of str and None, or str
            Words with ``None`` for blanks; or a string of words between white space with ``___`` for blanks.
        n : int
            Number of words per blank.
        unknown : bool
            Whether ``<unk>``, which stands for all words outside the vocabulary, may be an answer.

        Returns
        -------
        list of lists of (word, probability)
            One list per blank, in the order of the sentence. With several blanks each list is a marginal distribution;
            models that score whole sentences estimate it, given the best words of the other blanks (``Answer.kind``).
            Probabilities are those of the model, not renormalized: those of all answers sum to 1 minus that of
            ``<unk>`` if it is left out.
        """

    def _left_out(self, unknown: bool) -> frozenset[str | None]:
        """Return the symbols of unknown words, which lists of words leave out unless ``unknown``."""
        return frozenset() if unknown else frozenset((UNKNOWN, self._words.unknown_word))

    def _ids_of(self, left_out: frozenset[str | None]) -> list[int]:
        """Return the ids of the symbols that the vocabulary lists."""
        return [self._words.id(word) for word in left_out if word is not None and word in self._words]


class Conditional(LanguageModel):
    """A language model of whole sentences that knows p(word | all other words); id 0 is the edge of sentences."""

    _sums_blanks: ClassVar[bool] = False

    @abstractmethod
    def _blank(self, ids: NDArray[np.int64], t: int) -> NDArray[np.float64]:
        """Return p(word at t | other words) of all ids (C,), zero for those that are not words."""

    def _ids(self, X: Source) -> TextIds:
        """Return sentences as ids, empty sentences included."""
        self._check_fitted()
        return read_ids(X, vocabulary=self._words, keep_empty=True)

    def fill(self, sentence: str | Sequence[str | None], n: int = 10, *, unknown: bool = False) -> list[Ranked]:
        """Return the n most probable words for each blank (``None``, or ``___`` in a string), given all other words.

        Exact for one blank. With several blanks an estimate: they are filled by coordinate ascent, and each list is
        given the best words of the others. ``<unk>`` is one of the words if ``unknown``; probabilities are those of the
        model in either case.
        """
        self._check_fitted()
        check_count("n", n)
        words = blanks(sentence)
        where = [t for t, word in enumerate(words) if word is None]
        ids = self._ids([[self._words[1] if word is None else word for word in words]]).ids  # any word for blanks
        left_out = self._left_out(unknown)
        if len(where) > 1:
            ids[where] = -1
            for t in where:
                ids[t] = self._best_word(ids[: t + 1], t, left_out)
            for _ in range(10):
                before = ids.copy()
                for t in where:
                    ids[t] = self._best_word(ids, t, left_out)
                if (ids == before).all():
                    break
        ranked = (best_words(self._words.items, self._blank(ids, t), n, left_out) for t in where)
        return [[(word, p) for word, p in row if p > 0] for row in ranked]

    def _best_word(self, ids: NDArray[np.int64], t: int, left_out: frozenset[str | None]) -> int:
        p = self._blank(ids, t)
        words = p.copy()
        words[self._ids_of(left_out)] = 0.0
        return int(np.argmax(words if words.any() else p))  # a vocabulary may have no other words


class NextWord(LanguageModel):
    """A language model that predicts from left to right."""

    @abstractmethod
    def predict_next(self, words: Sequence[str], n: int = 10, *, unknown: bool = False) -> Ranked:
        """Return the n most probable words after the start of a sentence; ``</s>`` is its end.

        ``<unk>`` is one of them if ``unknown``; probabilities are those of the model in either case (see ``fill``).
        """


class Incremental(NextWord):
    """A language model whose state is a value, so that a decoder can extend many hypotheses word by word.

    Examples
    --------
    >>> from trelliswork import KneserNey
    >>> lm = KneserNey(3).fit([["the", "dog", "runs"], ["the", "cat", "runs"]])
    >>> score, state = 0.0, lm.start()
    >>> for word in ["the", "dog", "</s>"]:
    ...     more, state = lm.extend(state, word)
    ...     score += more
    >>> bool(abs(score - lm.log_prob([["the", "dog"]])[0]) < 1e-12)
    True
    """

    @abstractmethod
    def start(self) -> Any:
        """Return the state before the first word of a sentence."""

    @abstractmethod
    def extend_many(self, states: Sequence[Any], words: Sequence[str]) -> tuple[NDArray[np.float64], list[Any]]:
        """Return log p(word | state) of one word for each of n states (n,), and the states after the words.

        ``</s>`` is the end of the sentence, after which the state is that of ``start``. Scores are natural logarithms:
        those of the words of a sentence and of its end sum to its log evidence.
        """

    def token_log_probs(self, sentence: str | Sequence[str]) -> NDArray[np.float64]:
        """Return the natural log-probability of each word of a sentence and of its end, given the words before it."""
        state, log_p = self.start(), []
        for word in [*(sentence.split() if isinstance(sentence, str) else sentence), END]:
            more, state = self.extend(state, word)
            log_p.append(more)
        return np.array(log_p)

    def extend(self, state: Any, word: str) -> tuple[float, Any]:
        """Return log p(word | state) and the state after the word; see ``extend_many``."""
        scores, states = self.extend_many([state], [word])
        return float(scores[0]), states[0]

    def _extensions(self, states: Sequence[Any], words: Sequence[str], end: int) -> list[int]:
        """Return the ids of words that extend states, ``end`` for the end; raise an error for what is no word."""
        self._check_fitted()
        if isinstance(words, str) or len(states) != len(words):
            raise ShapeError(f"words must be a list of n={len(states)} words, one for each state, got {words!r:.60}.")
        for word in words:
            if not isinstance(word, str) or word == START:
                raise DataError(f"a state is extended by a word, or by {END} at the end, got {word!r:.60}.")
        try:
            return [end if word == END else self._words.id(word) for word in words]
        except KeyError as error:
            raise DataError(f"{error.args[0]} Train with unknown='symbol' for words outside the vocabulary.") from None


def by_label(
    names: Sequence[str], marginals: NDArray[np.floating], lengths: Iterable[int]
) -> list[list[dict[str, float]]]:
    """Return p(label) (N, S) of the tokens of sentences as dicts, best first."""
    order = np.argsort(-marginals, axis=1, kind="stable")
    rows = zip(np.array(names, object)[order].tolist(), np.take_along_axis(marginals, order, 1).tolist(), strict=True)
    tokens = (dict(zip(*row, strict=True)) for row in rows)
    return [list(islice(tokens, n)) for n in lengths]


def accuracy(predicted: Sequence[Sequence[Any]], gold: Sequence[Sequence[Any]]) -> float:
    """Return the fraction of tokens whose prediction equals gold; tokens without a gold answer do not count."""
    if [len(s) for s in predicted] != [len(s) for s in gold]:
        raise ShapeError("y must have as many sentences and tokens as X.")
    pairs = [(p, g) for ps, gs in zip(predicted, gold, strict=True) for p, g in zip(ps, gs, strict=True)]
    counted = [(p, g) for p, g in pairs if g is not None]
    if not counted:
        raise ShapeError("y has no labels to compare with: an accuracy needs at least one.")
    return sum(p == g for p, g in counted) / len(counted)


def best_words(
    names: Sequence[Any], p: NDArray[np.float64], n: int, left_out: frozenset[str | None] = frozenset()
) -> list[tuple[Any, float]]:
    """Return the n most probable names with their probabilities p (V,), best first; some names may be left out."""
    best = np.argsort(-p, kind="stable")[: n + len(left_out)].tolist()
    return [(names[i], float(p[i])) for i in best if names[i] not in left_out][:n]


BLANK = "___"


def blanks(sentence: str | Sequence[str | None]) -> list[str | None]:
    """Return a sentence with blanks as a list with ``None`` for each blank; see `LanguageModel.fill`."""
    words: list[str | None] = list(sentence) if not isinstance(sentence, str) else list(sentence.split())
    words = [None if word == BLANK else word for word in words]
    if None not in words:
        raise ShapeError(f"the sentence has no blank: put {BLANK} (in a list: None) where a word is missing.")
    return words
