"""How an HMM learns: by counting where all states are known, by EM where they are not, or not all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.models.hmm import trigrams
from trelliswork.models.hmm.data import HMMParameters, Sequences
from trelliswork.models.hmm.decoding import FirstOrder, StateChain, first_order, higher_order, state_beam
from trelliswork.models.hmm.em import EMReport, EMStep, Priors, em, random_parameters, restarts, stepwise
from trelliswork.models.hmm.emissions import UNKNOWN, Emissions, LexiconEmissions, TableEmissions, Token
from trelliswork.models.hmm.objective import expected_counts
from trelliswork.models.hmm.settings import HMMSettings
from trelliswork.models.hmm.suffixes import Lexicon, SuffixModel
from trelliswork.models.hmm.updates import maximise

Sentences = Sequence[Sequence[Token]]
States = Sequence[Sequence[str | None] | None]
Callback = Callable[[EMStep], bool | None]
LARGEST_TABLE = 1 << 28  # emission probabilities, 2 GB
LABELLED_SHARE = 8.0  # what a tagger learned from the labelled words counts for, against the words without labels
NEARLY_EVEN = 50.0  # Dirichlet parameter of a start that known states shall shape


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
        if isinstance(states, str):
            raise ShapeError(f"the states of sentence {n} are a string: a list is wanted, one entry a token.")
        if states is not None and len(states) != len(x):
            raise ShapeError(f"sentence {n} has {len(x)} tokens and {len(states)} states: they must be as many.")
    filled = [[None] * len(x) if states is None else states for x, states in zip(X, y, strict=True)]
    for n, states in enumerate(filled):
        for t, name in enumerate(states):
            if name is not None and not isinstance(name, str):
                raise ValueRangeError(
                    f"sentence {n}, token {t}: a state is a string, or None if it is not known, got {name!r}."
                )
    names = Vocabulary.from_sequences([name for name in states if name is not None] for states in filled)
    numbers = [-1 if name is None else names.id(name) for states in filled for name in states]
    return names, np.array(numbers, np.int32)


def learn(X: Sentences, y: States | None, settings: HMMSettings, callback: Callback | None) -> Learned:
    """Learn an HMM from sentences whose states are known, unknown, or known here and there."""
    names, labels = read_states(X, y)
    tokens = [token for x in X for token in x]
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in X])]).astype(np.int64)
    known = bool(labels.min() >= 0)
    if settings.order > 1 and not known:
        raise ValueRangeError(
            f"order={settings.order} learns by counting: every token needs its state. Use order=1 for the others."
        )
    if settings.n_states is not None and (settings.n_states < len(names) or (known and settings.n_states > len(names))):
        raise ValueRangeError(
            f"n_states={settings.n_states}, but y names {len(names)} states"
            + (" and leaves none open: leave n_states out." if known else ": raise it, or leave it out.")
        )
    n_states = max(len(names), settings.n_states or 0)
    if n_states == 0:
        raise ValueRangeError("without known states the number of states must be given: HMM(n_states=45).")
    words = all(isinstance(token, str) for token in tokens)
    if known and words and settings.unknown == "suffix":
        emissions: Emissions = LexiconEmissions(_lexicon([str(token) for token in tokens], labels, len(names)))
        return Learned(names, _counted_chain(labels, offsets, names, settings), emissions, _counted())
    names = Vocabulary([*names, *_fresh(names, n_states)])
    listed = _symbols(tokens, settings)
    _check_size(n_states, len(listed))
    table = TableEmissions(listed, np.zeros((n_states, len(listed))), None)
    sequences = Sequences(offsets, table.ids(tokens), labels if (labels >= 0).any() else None)
    if known:
        parameters = _first_parameters(sequences, n_states, len(listed), settings)
        chain = _counted_chain(labels, offsets, names, settings) if settings.order > 1 else _chain(parameters, settings)
        return Learned(names, chain, TableEmissions(listed, parameters.log_emission, None), _counted())
    start, priors = None, settings.priors
    if sequences.labels is not None:
        start = _first_parameters(sequences, n_states, len(listed), settings)
        if words and settings.unknown == "suffix" and settings.method != "vb":
            start, priors = _informed(start, listed, tokens, sequences, settings)
    parameters, report = _by_em(sequences, n_states, len(listed), start, priors, settings, callback)
    emissions = _emissions(listed, parameters, [sequences], settings, tokens)
    return Learned(names, _chain(parameters, settings), emissions, report)


def learn_stream(
    batches: Iterable[Sentences], settings: HMMSettings, n_passes: int, callback: Callback | None
) -> Learned:
    """Stepwise EM over batches of sentences that are gone through several times: once for the words, then to learn."""
    if settings.n_states is None:
        raise ValueRangeError("without known states the number of states must be given: HMM(n_states=45).")
    if settings.order != 1:
        raise ValueRangeError("a stream has no known states, which higher orders need: use order=1.")
    counts: dict[Token, int] = {}
    n_sentences = n_tokens = 0
    for X in batches:
        check_sentences(X)
        n_sentences += len(X)
        for x in X:
            n_tokens += len(x)
            for token in x:
                counts[token] = counts.get(token, 0) + 1
    if not n_tokens:
        raise ValueRangeError("there is no sentence to learn from, or the batches can be gone through only once.")
    listed = _listed(counts, settings)
    _check_size(settings.n_states, len(listed))
    table = TableEmissions(listed, np.zeros((settings.n_states, len(listed))), None)

    class Again:
        def __iter__(self) -> Iterator[Sequences]:
            for X in batches:
                if len(X):
                    offsets = np.concatenate([[0], np.cumsum([len(x) for x in X])]).astype(np.int64)
                    yield Sequences(offsets, table.ids([token for x in X for token in x]))

    start = _random(settings, settings.n_states, len(listed), n_tokens / n_sentences)
    parameters, report = stepwise(
        start,
        Again(),
        n_sentences,
        priors=settings.priors,
        n_passes=n_passes,
        dtype=settings.dtype,
        beam=state_beam(settings.beam, settings.n_states, 1),
        callback=callback,
    )
    names = Vocabulary(_fresh([], settings.n_states))
    return Learned(names, _chain(parameters, settings), _emissions(listed, parameters, Again(), settings), report)


def check_sentences(X: Sentences) -> None:
    """Refuse strings and numbers where lists of tokens are wanted, and empty sentences."""
    for n, sentence in enumerate(X):
        if isinstance(sentence, str | int | np.integer):
            raise ShapeError(f"sentence {n} is {sentence!r}: a list of words is wanted.")
        if len(sentence) == 0:
            raise ShapeError(f"sentence {n} is empty: leave it out.")


def _fresh(names: Iterable[str], n_states: int) -> list[str]:
    """Names for states that have none, up to as many states: their numbers, as #4; a name that is taken gets a star."""
    taken = set(names)
    fresh = []
    for k in range(len(taken), n_states):
        name = f"#{k}"
        while name in taken:
            name += "*"
        fresh.append(name)
    return fresh


def _check_size(n_states: int, n_symbols: int) -> None:
    if n_states * n_symbols > LARGEST_TABLE:
        raise ValueRangeError(
            f"{n_states} states and {n_symbols:,} symbols make a table of {n_states * n_symbols:,} numbers, more than "
            f"{LARGEST_TABLE:,}: number the symbols 0, 1, 2, ... without gaps, or raise min_count."
        )


def _counted() -> EMReport:
    return EMReport(True, "counted", np.nan)


def _lexicon(words: list[str], labels: NDArray[np.int32], n_states: int) -> Lexicon:
    """From the words whose state is known."""
    distinct = {word: i for i, word in enumerate(dict.fromkeys(words))}
    ids = np.array([distinct[word] for word in words], np.int64)
    at = labels >= 0
    counts = np.bincount(ids[at] * n_states + labels[at], minlength=len(distinct) * n_states)
    return Lexicon.fit(list(distinct), counts.reshape(-1, n_states))


def _counted_chain(
    labels: NDArray[np.int32], offsets: NDArray[np.int64], names: Vocabulary, settings: HMMSettings
) -> StateChain:
    """Label n-grams."""
    method, S = settings.interpolation, len(names)
    beam = state_beam(settings.beam, S, settings.order)
    if settings.order > 1:
        table, _ = trigrams.fit_ngrams(labels, offsets, S, settings.order, method=method)
        return higher_order(table, beam, end=settings.end)
    log_bigram = trigrams.fit_bigrams(labels, offsets, S, method=method).log_bigram
    return replace(first_order(log_bigram, end=settings.end), beam=beam)


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


def _first_parameters(sequences: Sequences, n_states: int, n_symbols: int, settings: HMMSettings) -> HMMParameters:
    """What known states tell: one M-step from nearly even parameters."""
    length = max(float(np.diff(sequences.offsets).mean()), 1.001) if settings.end else None
    even = random_parameters(n_states, n_symbols, seed=settings.seed, concentration=NEARLY_EVEN, mean_length=length)
    return maximise(expected_counts(even, sequences, dtype=settings.dtype), settings.priors, even)


def _informed(
    start: HMMParameters, listed: list[Token], tokens: Sequence[Token], sequences: Sequences, settings: HMMSettings
) -> tuple[HMMParameters, Priors]:
    """A better start, and priors, for words some of which have known states.

    Words get the probabilities that the lexicon of the labelled ones gives them, by counts and endings, transitions
    those of the sentences that are labelled throughout. The priors are many tokens spread like these: EM that starts
    from a good tagger and is left alone soon makes it worse (Merialdo, 1994).
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
    whole = np.flatnonzero(sequences.labelled)
    if len(whole) and n_known == S:
        lengths = np.diff(sequences.offsets)
        which = np.repeat(sequences.labelled, lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths[whole])])
        log_bigram = trigrams.fit_bigrams(labels[which], offsets, S, method=settings.interpolation).log_bigram
        states = first_order(log_bigram, end=settings.end)
    informed = HMMParameters(states.log_start, states.log_transition, states.log_end, np.log(emission))
    weight = LABELLED_SHARE * np.count_nonzero(labels < 0) / S
    end = 0.0 if states.log_end is None else weight * np.exp(states.log_end)
    return informed, Priors(settings.start_prior, weight * np.exp(states.log_transition), end, weight * emission)


def _by_em(
    sequences: Sequences,
    n_states: int,
    n_symbols: int,
    start: HMMParameters | None,
    priors: Priors,
    settings: HMMSettings,
    callback: Callback | None,
) -> tuple[HMMParameters, EMReport]:
    length = max(float(np.diff(sequences.offsets).mean()), 1.001) if settings.end else None
    options: dict[str, Any] = {
        "priors": priors,
        "dtype": settings.dtype,
        "beam": state_beam(settings.beam, n_states, 1),
        "callback": callback,
    }
    if settings.method == "stepwise":
        if start is None:
            start = _random(settings, n_states, n_symbols, length or 2.0)
        batches = _cut(sequences, settings)
        return stepwise(start, batches, sequences.n_sequences, n_passes=settings.max_iter, **options)
    options |= {"method": settings.method, "max_iter": settings.max_iter, "tol": settings.tol}
    if start is not None:
        return em(start, sequences, **options)
    return restarts(
        settings.n_restarts, n_states, n_symbols, sequences, seed=settings.seed, probe=settings.probe,
        mean_length=length, **options,
    )  # fmt: skip


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


def _chain(parameters: HMMParameters, settings: HMMSettings) -> FirstOrder:
    beam = state_beam(settings.beam, parameters.n_states, 1)
    return FirstOrder(parameters.log_start, parameters.log_transition, parameters.log_end, beam)


def _emissions(
    listed: list[Token],
    parameters: HMMParameters,
    batches: Iterable[Sequences],
    settings: HMMSettings,
    tokens: Sequence[Token] | None = None,
) -> TableEmissions:
    """The table, and for other words an account of endings from expected counts: of all words, or of those listed.

    Without ``tokens`` (a stream) words that share one symbol teach nothing.
    """
    suffixes = None
    if settings.unknown == "suffix" and isinstance(listed[0], str):
        words = [str(word) for word in listed if word != UNKNOWN]
        spread = parameters
        if UNKNOWN in listed and tokens is not None:
            words = [str(token) for token in dict.fromkeys(tokens)]
            table = TableEmissions(listed, parameters.log_emission, None)
            spread, batches = _each_word(words, tokens, table, parameters, batches)
        counts = sum(expected_counts(spread, part, dtype=settings.dtype).by_symbol for part in batches)
        suffixes = SuffixModel.fit(words, np.asarray(counts)[: len(words)])
    return TableEmissions(listed, parameters.log_emission, suffixes)


def _each_word(
    words: list[str],
    tokens: Sequence[Token],
    table: TableEmissions,
    parameters: HMMParameters,
    batches: Iterable[Sequences],
) -> tuple[HMMParameters, list[Sequences]]:
    """The same model and sequences with a symbol for each word: those that shared one have its probability."""
    number = {word: i for i, word in enumerate(words)}
    symbols = np.array([number[str(token)] for token in tokens], np.int32)
    emission = parameters.log_emission[:, table.ids(words)]
    each = HMMParameters(parameters.log_start, parameters.log_transition, parameters.log_end, emission)
    return each, [Sequences(part.offsets, symbols, part.labels) for part in batches]
