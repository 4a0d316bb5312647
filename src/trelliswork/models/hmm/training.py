"""HMM training: by counting if all states are known, by EM if none or only some are."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from trelliswork.compute.limits import check_cost
from trelliswork.data import Vocabulary
from trelliswork.data.corpus import chosen_tokens
from trelliswork.data.vocabulary import UNKNOWN
from trelliswork.errors import ValueRangeError
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Development, Watch
from trelliswork.models.base import watch_for
from trelliswork.models.hmm.counting import count_ngrams
from trelliswork.models.hmm.data import (
    HMMParameters,
    Sentences,
    Sequences,
    States,
    Token,
    flatten,
    list_symbols,
    read_states,
    symbol_ids,
    unnamed_states,
)
from trelliswork.models.hmm.decoding import StateChain, state_beam, state_chain
from trelliswork.models.hmm.em import Stepwise, em, parameters_of
from trelliswork.models.hmm.emissions import Emissions, TableEmissions
from trelliswork.models.hmm.objective import shared_counts
from trelliswork.models.hmm.suffixes import Lexicon, SuffixModel
from trelliswork.models.hmm.updates import Priors, maximize, random_parameters

if TYPE_CHECKING:
    from trelliswork.models.hmm import HMM

Unknown = Literal["suffix", "symbol"]
LARGEST_TABLE = 1 << 28  # maximum number of emission probabilities: 2 GB
LABELED_SHARE = 8.0  # weight of the tagger learned from the labeled words, relative to the unlabeled words
NEARLY_EVEN = 50.0  # Dirichlet parameter of a start that known states determine
NO_STATES = "without known states, the number of states must be given: HMM(n_states=45)."


@dataclass
class Learned:
    """A trained HMM: names of the states, their chain, the words, whether no state was known, and the report."""

    labels: Vocabulary
    chain: StateChain
    emissions: Emissions
    induced: bool
    report: FitReport = field(default_factory=lambda: FitReport(True, "counted", np.nan))


def learn(
    X: Sentences,
    y: States | None,
    model: "HMM",
    development: Development | None,
    held: Any,
    *,
    checkpoint: str | os.PathLike[str] | None,
    callback: Callback | None,
    max_minutes: float | None,
) -> Learned:
    """Train an HMM with the parameters of ``model`` on sentences whose states are known, unknown, or partly known.

    ``development`` measures what is learned on the data ``held``. In a group of processes the sentences are those of
    this rank; names, words, counts and means are those of all.
    """
    names, labels = read_states(X, y)
    tokens, offsets = flatten(X)
    known, induced = not whole.anywhere(bool((labels < 0).any())), not len(names)
    if model.order > 1 and not known:
        raise ValueRangeError(
            f"order={model.order} is estimated by counting: every token needs a known state. Use order=1 otherwise."
        )
    if model.n_states is not None and (model.n_states < len(names) or (known and model.n_states > len(names))):
        raise ValueRangeError(
            f"n_states={model.n_states}, but y has {len(names)} states"
            + (" and none is unknown: leave n_states out." if known else ": raise it, or leave it out.")
        )
    n_states = max(len(names), model.n_states or 0)
    if n_states == 0:
        raise ValueRangeError(NO_STATES)
    others = any(not isinstance(token, str) for token in tokens)
    by_suffix = model.unknown == "suffix" and not whole.anywhere(others)
    if known and by_suffix:
        lexicon = _lexicon([str(token) for token in tokens], labels, len(names))
        return Learned(names, _counted_chain(labels, offsets, names, model), lexicon, induced)
    listed = _listed(Counter(tokens), n_states, model)
    n_known, names = len(names), Vocabulary([*names, *unnamed_states(names, n_states)])
    sequences = Sequences(offsets, symbol_ids(listed)(tokens), None if induced else labels)
    words, apart = None, sequences
    if by_suffix and UNKNOWN in listed:  # one symbol per word, for suffixes
        words = whole.distinct(map(str, tokens))
        apart = replace(sequences, symbols=symbol_ids(words)(tokens))

    def build(parameters: HMMParameters) -> Learned:
        return Learned(names, _chain(parameters, model), _emissions(listed, parameters, apart, model, words), induced)

    start, priors = None, _priors(model)
    if not induced:
        start = _first_parameters(sequences, n_states, len(listed), model)
    if known:
        assert start is not None
        states = _chain(start, model) if model.order == 1 else _counted_chain(labels, offsets, names, model)
        return Learned(names, states, TableEmissions(listed, start.log_emission, None), induced)
    if start is not None and by_suffix and model.algorithm != "vb":
        start, priors = _informed(start, listed, tokens, sequences, n_known, model)
    measured = None
    if development is not None:
        metric, measure = development
        measured = Development(metric, lambda arrays: measure(build(parameters_of(arrays))))

    def mark() -> str:
        plain = model._values("max_iter") | {"beam": str(model.beam)}  # a longer run may resume from a shorter one
        plain["symbols"] = [str(word) for word in listed]
        if held is not None:
            plain["dev"] = [[list(map(str, sentence)) for sentence in held[0]], held[1]]
        return fingerprint(plain, sequences.offsets, sequences.symbols, sequences.labels)

    watch = watch_for(model, measured, checkpoint, mark, callback, max_minutes)
    parameters, report = _by_em(sequences, n_states, len(listed), start, priors, model, watch)
    return replace(build(parameters), report=report)


@dataclass(frozen=True)
class Stream:
    """State of ``partial_fit``: the symbols by id, and stepwise EM."""

    listed: list[Token]
    stepwise: Stepwise

    @classmethod
    def begin(cls, sentences: Sentences, words: Mapping[Token, int], model: "HMM") -> "Stream":
        """List the words and draw the first parameters; lengths are those of the first batch."""
        if model.n_states is None:
            raise ValueRangeError(NO_STATES)
        if model.order != 1:
            raise ValueRangeError("partial_fit takes no known states, which higher orders need: use order=1.")
        listed = _listed(Counter(words), model.n_states, model)
        if model.unknown == "suffix" and isinstance(listed[0], str):
            raise ValueRangeError("partial_fit does not learn suffixes: use unknown='symbol'.")
        length = _mean_length(sum(map(len, sentences)), len(sentences), model)
        start = random_parameters(model.n_states, len(listed), seed=model.seed, mean_length=length)
        return cls(listed, Stepwise(start, whole.total(sum(words.values()))))

    def after(self, sentences: Sentences, model: "HMM") -> tuple["Stream", Learned]:
        """Return the state after one more batch, and the model."""
        tokens, offsets = flatten(sentences)
        beam = state_beam(model.beam, self.stepwise.parameters.n_states, 1)
        batch = Sequences(offsets, symbol_ids(self.listed)(tokens))
        stepwise, step = self.stepwise.after(batch, _priors(model), dtype=model.dtype, beam=beam)
        parameters, n = stepwise.parameters, step.iteration
        report = FitReport(False, f"{n} batches", step.value, [step], n_iter=n)
        names = Vocabulary(unnamed_states([], parameters.n_states))
        emissions = TableEmissions(self.listed, parameters.log_emission, None)
        return Stream(self.listed, stepwise), Learned(names, _chain(parameters, model), emissions, True, report)


def _listed(counts: Counter[Token], n_states: int, model: "HMM") -> list[Token]:
    """Return the symbols by id; a table of emissions that is too large is an error."""
    listed = list_symbols(counts, model.min_count, unknown=model.unknown == "symbol")
    check_cost(f"an HMM with {n_states:,} states", n_bytes=24.0 * n_states**2)
    if n_states * len(listed) > LARGEST_TABLE:
        raise ValueRangeError(
            f"{n_states} states and {len(listed):,} symbols make a table of {n_states * len(listed):,} numbers, more "
            f"than {LARGEST_TABLE:,}: number the symbols 0, 1, 2, ... without gaps, or raise min_count."
        )
    return listed


def _lexicon(words: list[str], labels: NDArray[np.int32], n_states: int) -> Lexicon:
    """Return the lexicon of the words whose state is known, of all ranks."""
    distinct = {word: i for i, word in enumerate(whole.distinct(words))}
    ids = np.array([distinct[word] for word in words], np.int64)
    at = labels >= 0
    (counts,) = whole.summed(np.bincount(ids[at] * n_states + labels[at], minlength=len(distinct) * n_states))
    return Lexicon(list(distinct), csr_array(counts.reshape(-1, n_states)))


def _counted_chain(
    labels: NDArray[np.int32], offsets: NDArray[np.int64], names: Vocabulary, model: "HMM"
) -> StateChain:
    """Return the chain of label n-grams."""
    S, order = len(names), model.order
    return state_chain(count_ngrams(labels, offsets, S, order), state_beam(model.beam, S, order), end=model.end)


def _priors(model: "HMM") -> Priors:
    """Return the priors of EM."""
    return Priors(model.transition_prior, model.transition_prior, model.transition_prior, model.emission_prior)


def _mean_length(n_tokens: int, n_sentences: int, model: "HMM") -> float | None:
    """Return the mean length of the sentences of all ranks as ``random_parameters`` needs it."""
    mean = whole.total(n_tokens) / whole.total(n_sentences)
    return max(mean, 1.001) if model.end else None


def _first_parameters(sequences: Sequences, n_states: int, n_symbols: int, model: "HMM") -> HMMParameters:
    """Return the parameters that known states determine: one M-step from nearly even ones."""
    length = _mean_length(len(sequences.symbols), sequences.n_sequences, model)
    even = random_parameters(n_states, n_symbols, seed=model.seed, concentration=NEARLY_EVEN, mean_length=length)
    return maximize(shared_counts(even, sequences, dtype=model.dtype), _priors(model), even)


def _informed(
    start: HMMParameters,
    listed: list[Token],
    tokens: Sequence[Token],
    sequences: Sequences,
    n_known: int,
    model: "HMM",
) -> tuple[HMMParameters, Priors]:
    """Return a better start, and priors, for words some of which have known states, the first ``n_known`` ones.

    Words get the probabilities of the lexicon of the labeled ones, by counts and suffixes; transitions those of the
    sentences whose tokens are all labeled. The priors are many tokens with the same distributions: EM that starts from
    a good tagger soon makes it worse otherwise (Merialdo, 1994).
    """
    labels, S = sequences.labels, start.n_states
    assert labels is not None
    rows = _lexicon([str(token) for token in tokens], labels, n_known).log_emission([str(word) for word in listed])
    table = np.exp(rows - rows.max())
    emission = np.exp(start.log_emission)
    emission[:n_known] = table.T + 1e-6 * table.max()
    emission /= emission.sum(axis=1, keepdims=True)
    table = _chain(start, model).log_table
    labeled = np.flatnonzero(sequences.labeled)
    if whole.anywhere(len(labeled) > 0) and n_known == S:
        at, offsets = chosen_tokens(sequences.offsets, labeled)
        table = state_chain(count_ngrams(labels[at], offsets, S, 1), None, end=model.end).log_table
    log_start, log_transition, log_end = table[S, :S], table[:S, :S], table[:S, S] if model.end else None
    informed = HMMParameters(log_start, log_transition, log_end, np.log(emission))
    weight = LABELED_SHARE * whole.total(int(np.count_nonzero(labels < 0))) / S
    end = 0.0 if log_end is None else weight * np.exp(log_end)
    return informed, Priors(model.transition_prior, weight * np.exp(log_transition), end, weight * emission)


def _by_em(
    sequences: Sequences,
    n_states: int,
    n_symbols: int,
    start: HMMParameters | None,
    priors: Priors,
    model: "HMM",
    watch: Watch,
) -> tuple[HMMParameters, FitReport]:
    if model.algorithm == "vb" and not min(model.transition_prior, model.emission_prior) > 0:
        raise ValueRangeError("transition_prior and emission_prior must be positive for variational Bayes.")
    beam = state_beam(model.beam, n_states, 1)
    options: dict[str, Any] = {"priors": priors, "dtype": model.dtype, "beam": beam, "watch": watch}
    options |= {"algorithm": model.algorithm, "max_iter": model.max_iter, "tol": model.tol}
    if start is not None:
        return em(start, sequences, **options)
    if watch.development is not None and model.n_restarts > 1 and model.max_iter <= model.probe:
        raise ValueRangeError(
            "dev measures the iterations after the choice among n_restarts starts: raise max_iter above "
            f"probe={model.probe}, got {model.max_iter}."
        )
    seeds = np.random.SeedSequence(model.seed).spawn(model.n_restarts)
    length = _mean_length(len(sequences.symbols), sequences.n_sequences, model)

    def first(k: int) -> HMMParameters:
        return random_parameters(n_states, n_symbols, seed=seeds[k], mean_length=length)

    return em(first, sequences, n_starts=model.n_restarts, probe=model.probe, **options)


def _chain(parameters: HMMParameters, model: "HMM") -> StateChain:
    p, S = parameters, parameters.n_states
    table = np.zeros((S + 1, S + 1))
    table[:S, :S], table[S, :S], table[S, S] = p.log_transition, p.log_start, -np.inf
    if p.log_end is not None:
        table[:S, S] = p.log_end
    return StateChain(table, state_beam(model.beam, S, 1), p.log_end is not None)


def _emissions(
    listed: list[Token],
    parameters: HMMParameters,
    sequences: Sequences,
    model: "HMM",
    words: list[str] | None = None,
) -> TableEmissions:
    """Return the table, and for other words a suffix model from expected counts of the words in ``sequences``.

    Their symbols are ``words``, or those listed: then words that share one symbol are left out.
    """
    suffixes = None
    if model.unknown == "suffix" and isinstance(listed[0], str):
        spread = parameters
        if words is None:
            words = [str(word) for word in listed if word != UNKNOWN]
        else:  # the same model with one symbol per word: words that shared one have its probability
            spread = replace(parameters, log_emission=parameters.log_emission[:, symbol_ids(listed)(words)])
        counts = shared_counts(spread, sequences, dtype=model.dtype).by_symbol
        suffixes = SuffixModel(words, csr_array(counts[: len(words)]))
    return TableEmissions(listed, parameters.log_emission, suffixes)
