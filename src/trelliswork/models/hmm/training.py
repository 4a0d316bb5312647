"""HMM training: by counting if all states are known, by EM if none or only some are."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.vocabulary import UNKNOWN
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.beam import Beam, chosen_beam
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Watch, open_checkpoint
from trelliswork.models.hmm.counting import Interpolation, count_ngrams
from trelliswork.models.hmm.data import (
    HMMParameters,
    Sentences,
    Sequences,
    States,
    Token,
    count_tokens,
    flatten,
    list_symbols,
    read_sentences,
    read_states,
    symbol_ids,
    unnamed_states,
)
from trelliswork.models.hmm.decoding import FirstOrder, StateChain, first_order, higher_order, state_beam
from trelliswork.models.hmm.em import em, parameters_of, restarts, stepwise
from trelliswork.models.hmm.emissions import Emissions, LexiconEmissions, TableEmissions
from trelliswork.models.hmm.objective import expected_counts
from trelliswork.models.hmm.suffixes import Lexicon, SuffixModel
from trelliswork.models.hmm.updates import Priors, maximize, random_parameters

Algorithm = Literal["em", "vb", "stepwise"]
Unknown = Literal["suffix", "symbol"]
LARGEST_TABLE = 1 << 28  # maximum number of emission probabilities: 2 GB
LABELED_SHARE = 8.0  # weight of the tagger learned from the labeled words, relative to the unlabeled words
NEARLY_EVEN = 50.0  # Dirichlet parameter of a start that known states determine
NO_STATES = "without known states, the number of states must be given: HMM(n_states=45)."


@dataclass(frozen=True)
class Settings:
    """Training settings; the parameters of `HMM` of the same names."""

    n_states: int | None
    order: int
    unknown: Unknown
    interpolation: Interpolation
    start_prior: float
    transition_prior: float
    emission_prior: float
    end: bool
    min_count: int
    algorithm: Algorithm
    max_iter: int
    tol: float
    n_restarts: int
    probe: int
    batch_size: int
    seed: int
    dtype: str
    beam: Beam | str | None

    def check(self) -> None:
        """Raise an error for settings that exclude each other, rather than ignore one."""
        chosen_beam(self.beam, 1)  # raises an error for text that is not a beam
        if self.algorithm == "stepwise" and self.n_restarts > 1:
            raise ValueRangeError("algorithm='stepwise' has one start: leave n_restarts out.")

    @property
    def priors(self) -> Priors:
        """The priors of EM."""
        return Priors(self.start_prior, self.transition_prior, self.transition_prior, self.emission_prior)


@dataclass
class Learned:
    """A trained HMM: names of the states, their chain, the words, the report, and whether no state was known."""

    labels: Vocabulary
    chain: StateChain
    emissions: Emissions
    report: FitReport
    induced: bool


Build = Callable[[HMMParameters], Learned]


@dataclass(frozen=True)
class Supervision:
    """Arguments of ``fit`` that supervise training; they become a watch when the data are known.

    Attributes
    ----------
    score : callable, optional
        Returns the metric of a model on the development data.
    metric : str
    identity : dict
        Plain data that identifies the run for a checkpoint: parameters and development data.
    checkpoint, callback
        Of ``fit``.
    options : dict
        Of `Watch`.
    """

    score: Callable[[Learned], float] | None
    metric: str
    identity: dict[str, Any]
    checkpoint: str | os.PathLike[str] | None
    callback: Callback | None
    options: dict[str, Any]

    def watch(self, build: Build, listed: Sequence[Token], *data: NDArray[Any] | None) -> Watch:
        """Return the watch of EM on some data; ``build`` makes the model of given parameters."""
        development = None if self.score is None else _Development(self.metric, self.score, build)
        symbols = {"symbols": [str(word) for word in listed]}
        file = open_checkpoint(self.checkpoint, lambda: fingerprint(self.identity | symbols, *data))
        return Watch(development, checkpoint=file, callback=self.callback, **self.options)

    def counted(self, learned: Learned) -> Learned:
        """Return a model that was estimated by counting, measured on the development data."""
        if self.score is not None:
            learned.report.metric, learned.report.dev = self.metric, self.score(learned)
        return learned


@dataclass(frozen=True)
class _Development:
    """Metric of the model that parameters define."""

    metric: str
    score: Callable[[Learned], float]
    build: Build

    def measure(self, parameters: Mapping[str, Any]) -> float:
        """Return the metric of named parameter arrays."""
        return self.score(self.build(parameters_of(parameters)))


def learn(X: Sentences, y: States | None, settings: Settings, supervision: Supervision) -> Learned:
    """Train an HMM on sentences whose states are known, unknown, or partly known."""
    names, labels = read_states(X, y)
    tokens, offsets = flatten(X)
    known, induced = bool(labels.min() >= 0), bool(labels.max() < 0)
    if settings.order > 1 and not known:
        raise ValueRangeError(
            f"order={settings.order} is estimated by counting: every token needs a known state. Use order=1 otherwise."
        )
    if settings.n_states is not None and (settings.n_states < len(names) or (known and settings.n_states > len(names))):
        raise ValueRangeError(
            f"n_states={settings.n_states}, but y has {len(names)} states"
            + (" and none is unknown: leave n_states out." if known else ": raise it, or leave it out.")
        )
    n_states = max(len(names), settings.n_states or 0)
    if n_states == 0:
        raise ValueRangeError(NO_STATES)
    words = all(isinstance(token, str) for token in tokens)
    if known and words and settings.unknown == "suffix":
        emissions: Emissions = LexiconEmissions(_lexicon([str(token) for token in tokens], labels, len(names)))
        states = _counted_chain(labels, offsets, names, settings)
        return supervision.counted(Learned(names, states, emissions, _counted(), induced))
    names = Vocabulary([*names, *unnamed_states(names, n_states)])
    counts: dict[Token, int] = {}
    count_tokens(tokens, counts)
    listed = _listed(counts, n_states, settings)
    sequences = Sequences(offsets, symbol_ids(listed)(tokens), None if induced else labels)

    def build(parameters: HMMParameters) -> Learned:
        emissions = _emissions(listed, parameters, [sequences], settings, tokens)
        return Learned(names, _chain(parameters, settings), emissions, _counted(), induced)

    if known:
        parameters = _first_parameters(sequences, n_states, len(listed), settings)
        emissions = TableEmissions(listed, parameters.log_emission, None)
        states = _chain(parameters, settings)
        if settings.order > 1:
            states = _counted_chain(labels, offsets, names, settings)
        return supervision.counted(Learned(names, states, emissions, _counted(), induced))
    start, priors = None, settings.priors
    if not induced:
        start = _first_parameters(sequences, n_states, len(listed), settings)
        if words and settings.unknown == "suffix" and settings.algorithm != "vb":
            start, priors = _informed(start, listed, tokens, sequences, settings)
    watch = supervision.watch(build, listed, sequences.offsets, sequences.symbols, sequences.labels)
    parameters, report = _by_em(sequences, n_states, len(listed), start, priors, settings, watch)
    return replace(build(parameters), report=report)


def learn_stream(batches: Iterable[Sentences], settings: Settings, n_passes: int, supervision: Supervision) -> Learned:
    """Run stepwise EM over batches of sentences, which are iterated once for the words, and then for training."""
    if settings.n_states is None:
        raise ValueRangeError(NO_STATES)
    if settings.order != 1:
        raise ValueRangeError("a stream has no known states, which higher orders need: use order=1.")
    counts: dict[Token, int] = {}
    n_sentences = n_tokens = 0
    for X in batches:
        n_sentences += len(X)
        for x in read_sentences(X):
            n_tokens += len(x)
            count_tokens(x, counts)
    if not n_tokens:
        raise ValueRangeError("the batches have no sentences, or can be iterated only once.")
    listed = _listed(counts, settings.n_states, settings)
    ids = symbol_ids(listed)

    class Again:
        def __iter__(self) -> Iterator[Sequences]:
            for X in batches:
                if len(X):
                    tokens, offsets = flatten(X)
                    yield Sequences(offsets, ids(tokens))

    names = Vocabulary(unnamed_states([], settings.n_states))

    def build(parameters: HMMParameters) -> Learned:
        emissions = _emissions(listed, parameters, Again(), settings)
        return Learned(names, _chain(parameters, settings), emissions, _counted(), True)

    parameters, report = stepwise(
        _random(settings, settings.n_states, len(listed), n_tokens / n_sentences),
        Again(),
        n_sentences,
        priors=settings.priors,
        n_passes=n_passes,
        dtype=settings.dtype,
        beam=state_beam(settings.beam, settings.n_states, 1),
        watch=supervision.watch(build, listed, np.array(list(counts.values())), np.array([n_sentences])),
    )
    return replace(build(parameters), report=report)


def _listed(counts: dict[Token, int], n_states: int, settings: Settings) -> list[Token]:
    """Return the symbols by id; a table of emissions that is too large is an error."""
    listed = list_symbols(counts, settings.min_count, unknown=settings.unknown == "symbol")
    if n_states * len(listed) > LARGEST_TABLE:
        raise ValueRangeError(
            f"{n_states} states and {len(listed):,} symbols make a table of {n_states * len(listed):,} numbers, more "
            f"than {LARGEST_TABLE:,}: number the symbols 0, 1, 2, ... without gaps, or raise min_count."
        )
    return listed


def _counted() -> FitReport:
    return FitReport(True, "counted", np.nan)


def _lexicon(words: list[str], labels: NDArray[np.int32], n_states: int) -> Lexicon:
    """Return the lexicon of the words whose state is known."""
    distinct = {word: i for i, word in enumerate(dict.fromkeys(words))}
    ids = np.array([distinct[word] for word in words], np.int64)
    at = labels >= 0
    counts = np.bincount(ids[at] * n_states + labels[at], minlength=len(distinct) * n_states)
    return Lexicon.fit(list(distinct), counts.reshape(-1, n_states))


def _counted_chain(
    labels: NDArray[np.int32], offsets: NDArray[np.int64], names: Vocabulary, settings: Settings
) -> StateChain:
    """Return the chain of label n-grams."""
    S, order = len(names), settings.order
    beam = state_beam(settings.beam, S, order)
    table, _ = count_ngrams(labels, offsets, S, order, interpolation=settings.interpolation)
    if order > 1:
        return higher_order(table, beam, end=settings.end)
    return replace(first_order(table, end=settings.end), beam=beam)


def _random(settings: Settings, n_states: int, n_symbols: int, mean_length: float) -> HMMParameters:
    return random_parameters(
        n_states, n_symbols, seed=settings.seed, mean_length=max(mean_length, 1.001) if settings.end else None
    )


def _first_parameters(sequences: Sequences, n_states: int, n_symbols: int, settings: Settings) -> HMMParameters:
    """Return the parameters that known states determine: one M-step from nearly even ones."""
    length = max(float(np.diff(sequences.offsets).mean()), 1.001) if settings.end else None
    even = random_parameters(n_states, n_symbols, seed=settings.seed, concentration=NEARLY_EVEN, mean_length=length)
    return maximize(expected_counts(even, sequences, dtype=settings.dtype), settings.priors, even)


def _informed(
    start: HMMParameters, listed: list[Token], tokens: Sequence[Token], sequences: Sequences, settings: Settings
) -> tuple[HMMParameters, Priors]:
    """Return a better start, and priors, for words some of which have known states.

    Words get the probabilities of the lexicon of the labeled ones, by counts and suffixes; transitions those of the
    sentences whose tokens are all labeled. The priors are many tokens with the same distributions: EM that starts from
    a good tagger soon makes it worse otherwise (Merialdo, 1994).
    """
    labels, S = sequences.labels, start.n_states
    assert labels is not None
    n_known = int(labels.max()) + 1
    rows = _lexicon([str(token) for token in tokens], labels, n_known).log_emission([str(word) for word in listed])
    table = np.exp(rows - rows.max())
    emission = np.exp(start.log_emission)
    emission[:n_known] = table.T + 1e-6 * table.max()
    emission /= emission.sum(axis=1, keepdims=True)
    states = _chain(start, settings)
    whole = np.flatnonzero(sequences.labeled)
    if len(whole) and n_known == S:
        lengths = np.diff(sequences.offsets)
        which = np.repeat(sequences.labeled, lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths[whole])])
        log_bigram, _ = count_ngrams(labels[which], offsets, S, 1, interpolation=settings.interpolation)
        states = first_order(log_bigram, end=settings.end)
    informed = HMMParameters(states.log_start, states.log_transition, states.log_end, np.log(emission))
    weight = LABELED_SHARE * np.count_nonzero(labels < 0) / S
    end = 0.0 if states.log_end is None else weight * np.exp(states.log_end)
    return informed, Priors(settings.start_prior, weight * np.exp(states.log_transition), end, weight * emission)


def _by_em(
    sequences: Sequences,
    n_states: int,
    n_symbols: int,
    start: HMMParameters | None,
    priors: Priors,
    settings: Settings,
    watch: Watch,
) -> tuple[HMMParameters, FitReport]:
    length = max(float(np.diff(sequences.offsets).mean()), 1.001) if settings.end else None
    options: dict[str, Any] = {
        "priors": priors,
        "dtype": settings.dtype,
        "beam": state_beam(settings.beam, n_states, 1),
        "watch": watch,
    }
    if settings.algorithm == "stepwise":
        if start is None:
            start = _random(settings, n_states, n_symbols, length or 2.0)
        batches = _cut(sequences, settings)
        return stepwise(start, batches, sequences.n_sequences, n_passes=settings.max_iter, **options)
    options |= {"algorithm": settings.algorithm, "max_iter": settings.max_iter, "tol": settings.tol}
    if start is not None:
        return em(start, sequences, **options)
    if watch.development is not None and settings.n_restarts > 1 and settings.max_iter <= settings.probe:
        raise ValueRangeError(
            "dev measures the iterations after the choice among n_restarts starts: raise max_iter above "
            f"probe={settings.probe}, got {settings.max_iter}."
        )
    return restarts(
        settings.n_restarts, n_states, n_symbols, sequences, seed=settings.seed, probe=settings.probe,
        mean_length=length, **options,
    )  # fmt: skip


def _cut(sequences: Sequences, settings: Settings) -> list[Sequences]:
    """Return batches of sequences in random order."""
    order = np.random.default_rng(settings.seed).permutation(sequences.n_sequences)
    batches = []
    for first in range(0, len(order), settings.batch_size):
        which = order[first : first + settings.batch_size]
        token = np.concatenate([np.arange(sequences.offsets[n], sequences.offsets[n + 1]) for n in which])
        offsets = np.concatenate([[0], np.cumsum(np.diff(sequences.offsets)[which])])
        labels = None if sequences.labels is None else sequences.labels[token]
        batches.append(Sequences(offsets, sequences.symbols[token], labels))
    return batches


def _chain(parameters: HMMParameters, settings: Settings) -> FirstOrder:
    beam = state_beam(settings.beam, parameters.n_states, 1)
    return FirstOrder(parameters.log_start, parameters.log_transition, parameters.log_end, beam)


def _emissions(
    listed: list[Token],
    parameters: HMMParameters,
    batches: Iterable[Sequences],
    settings: Settings,
    tokens: Sequence[Token] | None = None,
) -> TableEmissions:
    """Return the table, and for other words a suffix model from expected counts of all words, or of those listed.

    Without ``tokens`` (a stream) words that share one symbol are left out.
    """
    suffixes = None
    if settings.unknown == "suffix" and isinstance(listed[0], str):
        words = [str(word) for word in listed if word != UNKNOWN]
        spread = parameters
        if UNKNOWN in listed and tokens is not None:
            words = [str(token) for token in dict.fromkeys(tokens)]
            spread, batches = _each_word(words, tokens, listed, parameters, batches)
        counts = sum(expected_counts(spread, part, dtype=settings.dtype).by_symbol for part in batches)
        suffixes = SuffixModel.fit(words, np.asarray(counts)[: len(words)])
    return TableEmissions(listed, parameters.log_emission, suffixes)


def _each_word(
    words: list[str],
    tokens: Sequence[Token],
    listed: list[Token],
    parameters: HMMParameters,
    batches: Iterable[Sequences],
) -> tuple[HMMParameters, list[Sequences]]:
    """Return the same model and sequences with one symbol per word: words that shared one have its probability."""
    number = {word: i for i, word in enumerate(words)}
    symbols = np.array([number[str(token)] for token in tokens], np.int32)
    emission = parameters.log_emission[:, symbol_ids(listed)(words)]
    each = HMMParameters(parameters.log_start, parameters.log_transition, parameters.log_end, emission)
    return each, [Sequences(part.offsets, symbols, part.labels) for part in batches]
