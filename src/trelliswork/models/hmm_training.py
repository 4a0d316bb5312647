"""How an HMM learns: by counting where all states are known, by EM where they are not, or not all."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.learning import trigrams
from trelliswork.learning.em import EMReport, EMStep, Priors, em, random_parameters, restarts, stepwise
from trelliswork.learning.hmm_counts import expected_counts
from trelliswork.learning.hmm_data import HMMParameters, Sequences
from trelliswork.learning.hmm_updates import maximise
from trelliswork.learning.suffix_model import Lexicon, SuffixModel
from trelliswork.models.hmm_chain import FirstOrder, SecondOrder, StateChain
from trelliswork.models.hmm_emissions import UNKNOWN, Emissions, LexiconEmissions, TableEmissions, Token

Sentences = Sequence[Sequence[Token]]
States = Sequence[Sequence[str | None] | None]
Callback = Callable[[EMStep], bool | None]
Method = Literal["em", "vb", "stepwise"]
Unknown = Literal["suffix", "symbol"]
NEARLY_EVEN = 50.0  # Dirichlet parameter of a start that known states shall shape


@dataclass(frozen=True)
class HMMSettings:
    """How to learn; the parameters of ``HMM`` of the same names."""

    n_states: int | None
    order: int
    unknown: Unknown
    interpolation: trigrams.Method
    start_prior: float
    transition_prior: float
    emission_prior: float
    end: bool
    min_count: int
    method: Method
    max_iter: int
    tol: float
    n_restarts: int
    probe: int
    batch_size: int
    seed: int
    dtype: str
    beam: float | None

    def check(self) -> None:
        """Refuse what cannot be meant."""
        for name, choices in (
            ("order", (1, 2)),
            ("unknown", ("suffix", "symbol")),
            ("method", ("em", "vb", "stepwise")),
            ("dtype", ("float32", "float64")),
        ):
            if getattr(self, name) not in choices:
                wanted = " or ".join(map(repr, choices))
                raise ValueRangeError(f"{name} must be {wanted}, got {getattr(self, name)!r}.")
        for name in ("start_prior", "transition_prior", "emission_prior"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueRangeError(f"{name} must be 0 or more and finite, got {getattr(self, name)}.")
        for name in ("min_count", "max_iter", "n_restarts", "probe", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueRangeError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.n_states is not None and self.n_states < 1:
            raise ValueRangeError(f"n_states must be at least 1, got {self.n_states}.")

    @property
    def priors(self) -> Priors:
        """As EM takes them."""
        return Priors(self.start_prior, self.transition_prior, self.transition_prior, self.emission_prior)


@dataclass
class Learned:
    """What came out."""

    states: Vocabulary
    chain: StateChain
    emissions: Emissions
    report: EMReport


def read_states(X: Sentences, y: States | None) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Names of the states that occur, and the number of each token's, -1 where it is not known."""
    if y is None:
        return Vocabulary([]), np.full(sum(map(len, X)), -1, np.int32)
    if len(y) != len(X):
        raise ShapeError(f"X and y must pair up, got {len(X)} and {len(y)} sentences.")
    for n, (x, states) in enumerate(zip(X, y, strict=True)):
        if states is not None and len(states) != len(x):
            raise ShapeError(f"sentence {n} has {len(x)} tokens and {len(states)} states: they must be as many.")
    filled = [[None] * len(x) if states is None else states for x, states in zip(X, y, strict=True)]
    names = Vocabulary.from_sequences([name for name in states if name is not None] for states in filled)
    numbers = [-1 if name is None else names.id(name) for states in filled for name in states]
    return names, np.array(numbers, np.int32)


def learn(X: Sentences, y: States | None, settings: HMMSettings, callback: Callback | None) -> Learned:
    """Learn an HMM from sentences whose states are known, unknown, or known here and there."""
    names, labels = read_states(X, y)
    tokens = [token for x in X for token in x]
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in X])]).astype(np.int64)
    known = len(labels) > 0 and labels.min() >= 0
    if settings.order == 2 and not known:
        raise ValueRangeError("order=2 learns by counting: every token needs its state. Use order=1 for the others.")
    n_states = max(len(names), settings.n_states or 0)
    if known and settings.n_states is not None and settings.n_states != len(names):
        raise ValueRangeError(
            f"all states are known, and there are {len(names)}: leave n_states={settings.n_states} out."
        )
    if n_states == 0:
        raise ValueRangeError("without known states the number of states must be given: HMM(n_states=45).")
    if known and settings.unknown == "suffix" and all(isinstance(token, str) for token in tokens):
        return _tagger([str(token) for token in tokens], labels, offsets, names, settings)
    if settings.order == 2:
        raise ValueRangeError("order=2 wants words (strings) and unknown='suffix'.")
    names = Vocabulary([*names, *(f"#{k}" for k in range(len(names), n_states))])
    words = _symbols(tokens, settings)
    table = TableEmissions(words, np.zeros((n_states, len(words))), None)
    sequences = Sequences(offsets, table.ids(tokens), labels if (labels >= 0).any() else None)
    parameters, report = _fit(sequences, n_states, len(words), known, settings, callback)
    return Learned(names, _chain(parameters), _emissions(words, parameters, sequences, settings), report)


def learn_stream(
    batches: Iterable[Sentences], settings: HMMSettings, n_passes: int, callback: Callback | None
) -> Learned:
    """Stepwise EM over batches of sentences that are gone through several times: once for the words, then to learn."""
    if settings.n_states is None:
        raise ValueRangeError("without known states the number of states must be given: HMM(n_states=45).")
    counts: dict[Token, int] = {}
    n_sentences = n_tokens = 0
    for X in batches:
        n_sentences += len(X)
        for x in X:
            n_tokens += len(x)
            for token in x:
                counts[token] = counts.get(token, 0) + 1
    if not n_tokens:
        raise ValueRangeError("there is no sentence to learn from, or the batches can be gone through only once.")
    words = _listed(counts, settings)
    table = TableEmissions(words, np.zeros((settings.n_states, len(words))), None)

    class Again:
        def __iter__(self) -> Any:
            for X in batches:
                offsets = np.concatenate([[0], np.cumsum([len(x) for x in X])]).astype(np.int64)
                yield Sequences(offsets, table.ids([token for x in X for token in x]))

    start = _random(settings, settings.n_states, len(words), n_tokens / n_sentences)
    parameters, report = stepwise(
        start, Again(), n_sentences, priors=settings.priors, n_passes=n_passes, dtype=settings.dtype, callback=callback
    )
    names = Vocabulary(f"#{k}" for k in range(settings.n_states))
    return Learned(names, _chain(parameters), TableEmissions(words, parameters.log_emission, None), report)


def _tagger(
    words: list[str], labels: NDArray[np.int32], offsets: NDArray[np.int64], names: Vocabulary, settings: HMMSettings
) -> Learned:
    """Labelled words: a lexicon with endings, and label n-grams."""
    distinct = {word: i for i, word in enumerate(dict.fromkeys(words))}
    S = len(names)
    ids = np.array([distinct[word] for word in words], np.int64)
    counts = np.bincount(ids * S + labels, minlength=len(distinct) * S).reshape(-1, S)
    lexicon = LexiconEmissions(Lexicon.fit(list(distinct), counts))
    states: StateChain
    if settings.order == 2:
        states = SecondOrder(trigrams.fit(labels, offsets, S, method=settings.interpolation).log_trigram, settings.beam)
    else:
        model = trigrams.fit_bigrams(labels, offsets, S, method=settings.interpolation)
        states = FirstOrder(model.log_start, model.log_transition, model.log_end)
    return Learned(names, states, lexicon, EMReport(True, "counted", np.nan))


def _symbols(tokens: Sequence[Token], settings: HMMSettings) -> list[Token]:
    counts: dict[Token, int] = {}
    for token in tokens:
        counts[token] = counts.get(token, 0) + 1
    return _listed(counts, settings)


def _listed(counts: dict[Token, int], settings: HMMSettings) -> list[Token]:
    """The symbols by number: 0, 1, ... for integers; words seen often enough, and one for the others, for strings."""
    numbers = [int(token) for token in counts if isinstance(token, int | np.integer)]
    if len(numbers) == len(counts):
        if min(numbers) < 0:
            raise ValueRangeError(f"symbols must be strings, or integers from 0, got {min(numbers)}.")
        return list(range(max(numbers) + 1))
    if not all(isinstance(token, str) for token in counts):
        odd = next(token for token in counts if not isinstance(token, str))
        raise ValueRangeError(f"symbols must be strings or integers throughout, got {odd!r} among others.")
    words: list[Token] = [word for word, n in counts.items() if n >= settings.min_count]
    if settings.unknown == "symbol" or len(words) < len(counts):
        words.append(UNKNOWN)
    return words


def _random(settings: HMMSettings, n_states: int, n_symbols: int, mean_length: float) -> HMMParameters:
    return random_parameters(
        n_states, n_symbols, seed=settings.seed, mean_length=max(mean_length, 1.001) if settings.end else None
    )


def _fit(
    sequences: Sequences, n_states: int, n_symbols: int, known: bool, settings: HMMSettings, callback: Callback | None
) -> tuple[HMMParameters, EMReport]:
    length = max(float(np.diff(sequences.offsets).mean()), 1.001) if settings.end else None
    options: dict[str, Any] = {"priors": settings.priors, "dtype": settings.dtype, "callback": callback}
    if settings.method == "stepwise":
        start = _random(settings, n_states, n_symbols, length or 2.0)
        batches = _cut(sequences, settings)
        return stepwise(start, batches, sequences.n_sequences, n_passes=settings.max_iter, **options)
    options |= {"method": settings.method, "max_iter": settings.max_iter, "tol": settings.tol}
    if sequences.labels is None:
        return restarts(
            settings.n_restarts, n_states, n_symbols, sequences, seed=settings.seed, probe=settings.probe,
            mean_length=length, **options,
        )  # fmt: skip
    # Known states shape the start: one M-step from nearly even parameters.
    even = random_parameters(n_states, n_symbols, seed=settings.seed, concentration=NEARLY_EVEN, mean_length=length)
    counts = expected_counts(even, sequences, dtype=settings.dtype)
    start = maximise(counts, settings.priors, even)
    if known:
        return start, EMReport(True, "counted", counts.total)
    return em(start, sequences, **options)


def _cut(sequences: Sequences, settings: HMMSettings) -> list[Sequences]:
    """Batches of sequences in random order."""
    order = np.random.default_rng(settings.seed).permutation(sequences.n_sequences)
    batches = []
    for first in range(0, len(order), settings.batch_size):
        which = order[first : first + settings.batch_size]
        token = np.concatenate([np.arange(sequences.offsets[n], sequences.offsets[n + 1]) for n in which])
        offsets = np.concatenate([[0], np.cumsum(np.diff(sequences.offsets)[which])])
        labels = None if sequences.labels is None else sequences.labels[token]
        batches.append(Sequences(offsets, sequences.symbols[token], labels))
    return batches


def _chain(parameters: HMMParameters) -> FirstOrder:
    return FirstOrder(parameters.log_start, parameters.log_transition, parameters.log_end)


def _emissions(
    words: list[Token], parameters: HMMParameters, sequences: Sequences, settings: HMMSettings
) -> TableEmissions:
    """The table, and for other words an account of endings from the expected counts of those that are listed."""
    suffixes = None
    if settings.unknown == "suffix" and isinstance(words[0], str):
        counts = expected_counts(parameters, sequences, dtype=settings.dtype).by_symbol
        listed = [str(word) for word in words if word != UNKNOWN]
        suffixes = SuffixModel.fit(listed, counts[: len(listed)])
        if UNKNOWN in words:  # its mass goes to endings: words seen too rarely taught them
            words, parameters = words[:-1], _without_last(parameters)
    return TableEmissions(words, parameters.log_emission, suffixes)


def _without_last(parameters: HMMParameters) -> HMMParameters:
    log_emission = parameters.log_emission[:, :-1]
    return HMMParameters(parameters.log_start, parameters.log_transition, parameters.log_end, log_emission)
