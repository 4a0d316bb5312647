"""Hidden Markov models of words: taggers, induced tags and everything between (papers 1 to 4 begin with them)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Corpus, Vocabulary
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam, BeamStatistics
from trelliswork.models.base import Arrays, Estimator
from trelliswork.models.evidence import Labels, ruled_out
from trelliswork.models.hmm.decoding import StateChain, chain_from_arrays, state_beam
from trelliswork.models.hmm.em import EMReport
from trelliswork.models.hmm.emissions import Emissions, Token, emissions_from_state
from trelliswork.models.hmm.settings import HMMSettings, Method, Unknown
from trelliswork.models.hmm.training import Callback, Learned, Sentences, States, check_sentences, learn, learn_stream

if TYPE_CHECKING:
    from trelliswork.distributions import LinearChain

CHUNK_SCORES = 1 << 24  # scores of states that are made at once: 128 MB


class HMM(Estimator):
    """A hidden Markov model: each state follows from the one before (or the two before), each word from its state.

    One ``fit`` takes sentences whose states are all known (then it is a tagger, learned by counting), all unknown
    (induced by EM), or known here and there.

    Parameters
    ----------
    n_states : int, optional
        Number of states; wanted if none is known. With some known, as many more are added up to this number.
    order : {1, 2, 3}
        2 or 3: a state depends on the two or three before it; wants known states.
    unknown : {"suffix", "symbol"}
        Words that training has not seen: by their endings and shapes as in TnT, or all by one symbol.
    interpolation : {"kneser-ney", "deleted"}
        How n-grams of known states are smoothed; "deleted" is TnT's way.
    start_prior, transition_prior, emission_prior : float
        Pseudo-counts (EM) or Dirichlet parameters (variational Bayes, above 0). Not used by a tagger learned from known
        states and endings, which ``interpolation`` smooths; half-labelled words have priors of their own, from the
        labelled ones.
    end : bool
        Whether the end of a sentence is an event; without, lengths are given.
    min_count : int
        Words seen less often are taken for unknown ones while learning by EM.
    method : {"em", "vb", "stepwise"}
        EM (maximum likelihood, MAP with priors), variational Bayes, or EM with an update after each ``batch_size``
        sentences.
    max_iter, tol : int, float
        Iterations at most (passes, if stepwise), and the relative gain at which EM stops.
    n_restarts, probe : int
        Random starts, if no state is known, of which the best after ``probe`` iterations goes on.
    batch_size, seed, dtype
        Of stepwise EM; of random numbers; precision of EM ("float32" is twice as fast).
    beam : Beam, str or None
        Keep few states (above order 1 few sequences of states) at each token, in EM and afterwards:
        ``"kl=0.005,min=10"``, ``"size=20"``, ``"threshold=6.9,min=1"`` (which is TnT's); ``"auto"`` is a beam where it
        is faster. Evidence is a lower bound then.

    Attributes
    ----------
    states_ : Vocabulary
        Names of the states: known ones, and ``#0``, ``#1``, ... for others.
    induced_ : bool
        True if no state was known.
    report_ : EMReport
        How learning ended: history of the objective.

    Examples
    --------
    >>> hmm = HMM().fit([["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]])
    >>> hmm.predict([["the", "dog", "runs"]])
    [['D', 'N', 'V']]
    """

    kind: ClassVar[str] = "hmm"
    learned: ClassVar[str] = "states_"
    input_: dict[str, Any]
    _any_chain: Any  # with the beam that was set when it was last used
    _emissions: Emissions

    def __init__(
        self,
        n_states: int | None = None,
        *,
        order: int = 1,
        unknown: Unknown = "suffix",
        interpolation: Literal["kneser-ney", "deleted"] = "kneser-ney",
        start_prior: float = 0.1,
        transition_prior: float = 0.1,
        emission_prior: float = 0.01,
        end: bool = True,
        min_count: int = 1,
        method: Method = "em",
        max_iter: int = 100,
        tol: float = 1e-5,
        n_restarts: int = 1,
        probe: int = 5,
        batch_size: int = 256,
        seed: int = 0,
        dtype: Literal["float32", "float64"] = "float64",
        beam: Beam | str | None = None,
    ) -> None:
        self.n_states = n_states
        self.order = order
        self.unknown = unknown
        self.interpolation = interpolation
        self.start_prior = start_prior
        self.transition_prior = transition_prior
        self.emission_prior = emission_prior
        self.end = end
        self.min_count = min_count
        self.method = method
        self.max_iter = max_iter
        self.tol = tol
        self.n_restarts = n_restarts
        self.probe = probe
        self.batch_size = batch_size
        self.seed = seed
        self.dtype = dtype
        self.beam = beam

    def fit(self, X: Sentences | Corpus, y: States | None = None, *, callback: Callback | None = None) -> Self:
        """Learn from sentences.

        Parameters
        ----------
        X : list of lists of str or int, or Corpus
            Words, or ids from 0; of a corpus the first column.
        y : list of lists, optional
            The state of each token, ``None`` where it is not known; ``None`` for a whole sentence too.
        callback : callable, optional
            Called with the ``EMStep`` of each iteration; a true answer stops.
        """
        return self._set(learn(_sentences(X, learn=True), y, self._settings(), callback), y is None or not _any(y))

    def fit_stream(self, batches: Iterable[Sentences], *, n_passes: int = 1, callback: Callback | None = None) -> Self:
        """Stepwise EM over text that is too large to be held.

        Parameters
        ----------
        batches : iterable of lists of sentences
            Gone through once to list the words, then ``n_passes`` times, and with ``unknown="suffix"`` once more for
            the endings: a list, or an object that reads a file anew each time. Words that are not listed
            (``min_count``) share one symbol. ``method`` is not looked at.
        n_passes : int
        callback : callable, optional
            Called with an ``EMStep`` after each batch.
        """
        return self._set(learn_stream(batches, self._settings(), n_passes, callback), True)

    def predict(
        self,
        X: Sentences | Corpus,
        *,
        decoding: Literal["viterbi", "posterior"] = "viterbi",
        known: Labels | None = None,
    ) -> list[list[str]]:
        """States of each sentence: the most probable sequence, or at each token the most probable state.

        Parameters
        ----------
        X : as in ``fit``
        decoding : {"viterbi", "posterior"}
        known : list of lists, optional
            Evidence: for each token a state, a collection of states, or ``None`` if nothing is known. It is believed
            also where the word was never seen with such a state.
        """
        if decoding not in ("viterbi", "posterior"):
            raise ValueRangeError(f"decoding must be 'viterbi' or 'posterior', got {decoding!r}.")
        names = self._names()
        found: list[list[str]] = []
        for rows, offsets in self._rows(X, known):
            if decoding == "viterbi":
                states = self._chain.viterbi(rows, offsets)
            else:
                states = self._chain.marginals(rows, offsets)[1].argmax(axis=1)
            found += [[names[s] for s in states[a:b].tolist()] for a, b in pairwise(offsets.tolist())]
        return found

    def predict_marginals(self, X: Sentences | Corpus, *, known: Labels | None = None) -> list[list[dict[str, float]]]:
        """p(state | sentence, known states) for each token, as a dict by state."""
        names = self._names()
        found = []
        for rows, offsets in self._rows(X, known):
            _, marginals = self._chain.marginals(rows, offsets)
            for a, b in pairwise(offsets.tolist()):
                found.append([dict(zip(names, row, strict=True)) for row in marginals[a:b].tolist()])
        return found

    def predict_topk(
        self, X: Sentences | Corpus, k: int, *, known: Labels | None = None
    ) -> list[list[tuple[list[str], float]]]:
        """The k most probable state sequences of each sentence with their probabilities, best first."""
        names = self._names()
        found = []
        for rows, offsets in self._rows(X, known):
            for a, b in pairwise(offsets.tolist()):
                log_unary, log_pairwise = self._chain.potentials(rows[a:b])
                p = chain.chain_potentials(log_unary[None], log_pairwise)
                states, scores = chain.topk(p, k)
                possible = np.isfinite(scores[0])
                odds = np.exp(scores[0][possible] - chain.log_partition(p)[0])
                paths = states[0][possible] % len(names)  # of a pair the second state
                found.append([([names[s] for s in path], float(q)) for path, q in zip(paths, odds, strict=True)])
        return found

    def log_evidence(self, X: Sentences | Corpus) -> NDArray[np.float64]:
        """log p(words) of each sentence (n_sentences,), natural logarithm."""
        self._check_fitted()
        found = [self._chain.log_evidence(rows, offsets) for rows, offsets in self._rows(X)]
        return np.concatenate([*found, np.empty(0)])

    def score(self, X: Sentences | Corpus, y: object = None) -> float:
        """Log evidence of all sentences together; ``y`` is not looked at."""
        return float(self.log_evidence(X).sum())

    def posterior(self, sentence: Sequence[Token]) -> "LinearChain":
        """The distribution over state sequences of one sentence; ask it anything.

        With a beam it is a ``BeamChain``. With order 2 its states are first the S states, as the begin of a sentence,
        then pairs: S + a S + b is state b after state a; with order 3 triples follow.
        """
        import torch

        from trelliswork.distributions import LinearChain

        self._check_fitted()
        check_sentences([sentence])
        rows = self._emissions.rows(sentence, np.array([0, len(sentence)]))
        log_unary, log_pairwise = self._chain.potentials(rows)
        found = LinearChain(torch.from_numpy(log_unary[None]), torch.from_numpy(log_pairwise))
        return found if self._chain.beam is None else found.within(self._chain.beam)

    def predict_next(self, words: Sequence[Token], n: int = 10) -> tuple[list[tuple[Token, float]], float]:
        """The n most probable next words after some, with p(word | words); and the probability that it is the end."""
        self._check_fitted()
        check_count("n", n)
        check_sentences([words] if len(words) else [])
        offsets = np.array([0, len(words)] if len(words) else [0])
        states, end = self._chain.following(
            self._emissions.rows(words, offsets) if len(words) else np.empty((0, len(self.states_)))
        )
        listed, log_emission = self._emissions.table()
        p = states @ np.exp(log_emission)
        best = np.argsort(-p, kind="stable")[:n]
        return [(listed[i], float(p[i])) for i in best], end

    def sample(self, n: int = 1, *, seed: int = 0, max_length: int = 200) -> list[tuple[list[Token], list[str]]]:
        """Random sentences from the model: words and states."""
        names = self._names()
        check_count("n", n)
        check_count("max_length", max_length)
        rng = np.random.default_rng(seed)
        listed, log_emission = self._emissions.table()
        cumulated = np.cumsum(np.exp(log_emission), axis=1)
        found = []
        for _ in range(n):
            states = self._chain.draw(rng, max_length)
            at = [
                min(int(np.searchsorted(cumulated[s], rng.random() * cumulated[s, -1], side="right")), len(listed) - 1)
                for s in states
            ]
            found.append(([listed[i] for i in at], [names[s] for s in states]))
        return found

    def top_words(self, state: str, n: int = 10) -> list[tuple[Token, float]]:
        """The n most probable words of a state, with p(word | state)."""
        self._check_fitted()
        check_count("n", n)
        listed, log_emission = self._emissions.table()
        row = log_emission[self.states_.id(state)]
        return [(listed[i], float(np.exp(row[i]))) for i in np.argsort(-row, kind="stable")[:n]]

    def transitions(self) -> NDArray[np.float64]:
        """p(next state | state) (S, S), the rest of a row being the end; with order 2 the mean over sentences."""
        self._check_fitted()
        return self._chain.transitions()

    def known_words(self) -> set[str]:
        """The words of training."""
        self._check_fitted()
        return self._emissions.known_words()

    def _settings(self) -> HMMSettings:
        settings = HMMSettings(**self.get_params())
        settings.check()
        return settings

    def _set(self, found: Learned, induced: bool) -> Self:
        self.states_, self._any_chain, self._emissions = found.states, found.chain, found.emissions
        self.report_, self.induced_ = found.report, induced
        return self

    @property
    def _chain(self) -> StateChain:
        """The states with the beam that is set now."""
        beam = state_beam(self.beam, len(self.states_), self._any_chain.order)
        if beam != self._any_chain.beam:
            self._any_chain = replace(self._any_chain, beam=beam)
        return self._any_chain

    def _names(self) -> list[str]:
        self._check_fitted()
        return self.states_.items

    def _rows(
        self, X: Sentences | Corpus, known: Labels | None = None
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Scores of states at the tokens of as many sentences as can be scored at once, and their offsets."""
        self._check_fitted()
        sentences = _sentences(X, learn=False)
        if known is not None and len(known) != len(sentences):
            raise ShapeError(f"known must have as many sentences as X, {len(sentences)}, got {len(known)}.")
        most = max(1, CHUNK_SCORES // len(self.states_))
        first = 0
        while first < len(sentences):
            last, n = first + 1, len(sentences[first])
            while last < len(sentences) and n + len(sentences[last]) <= most:
                n += len(sentences[last])
                last += 1
            lengths = np.array([len(sentence) for sentence in sentences[first:last]])
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            rows = self._emissions.rows([token for s in sentences[first:last] for token in s], offsets)
            if known is not None:
                out = ruled_out(known[first:last], lengths, self.states_)
                rows[out] = -np.inf
                # Evidence overrules the lexicon: a word may have a state in which it was never seen.
                rows[~out & ~(rows > -np.inf).any(axis=1, keepdims=True)] = 0
            yield rows, offsets
            first = last

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        emissions, arrays = self._emissions.state()
        plain: dict[str, Any] = {
            "parameters": self.get_params() | {"beam": None if self.beam is None else str(self.beam)},
            "states": list(self.states_),
            "induced": self.induced_,
            "order": self._chain.order,
            "end": self._chain.has_end,
            "emissions": emissions,
            "input": getattr(self, "input_", {}),
            "report": {
                "converged": self.report_.converged,
                "reason": self.report_.reason,
                "value": None if np.isnan(self.report_.value) else self.report_.value,
                "n_iter": self.report_.n_iter,
                "beam": None if self.report_.beam is None else vars(self.report_.beam),
            },
        }
        return plain, arrays | {f"chain.{name}": array for name, array in self._chain.arrays().items()}

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(**plain["parameters"])
        self.states_, self.induced_ = Vocabulary(plain["states"]), plain["induced"]
        self._emissions = emissions_from_state(plain["emissions"], arrays)
        own = {name.removeprefix("chain."): a for name, a in arrays.items() if name.startswith("chain.")}
        self._any_chain = chain_from_arrays(own, plain["order"], self.beam, end=plain["end"])
        if not self._chain.n_states == self._emissions.n_states == len(self.states_):
            raise DataError("weights.safetensors does not fit model.json: they belong to different models.")
        self.input_ = plain["input"]
        report = plain["report"]
        value = np.nan if report["value"] is None else report["value"]
        beam = None if report["beam"] is None else BeamStatistics(**report["beam"])
        self.report_ = EMReport(report["converged"], report["reason"], value, beam=beam)
        return self


def _any(y: States) -> bool:
    return any(state is not None for states in y if states is not None for state in states)


def _sentences(X: Sentences | Corpus, *, learn: bool) -> Sentences:
    """Lists of tokens; none may be empty."""
    found: Sentences = X.sentences(0) if isinstance(X, Corpus) else X
    if learn and len(found) == 0:
        raise DataError("no sentence to learn from: X is empty.")
    check_sentences(found)
    return found
