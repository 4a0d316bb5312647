r"""Spans of taggers: their probabilities, and the labeling with the best expected F1.

The probability of a span is that of all labelings in which it is a span: all labels of its words jointly, and that it
ends there (`trelliswork.inference.chain.segments`).

The expected F1 of a set of predicted spans, over all sentences together, is about

.. math:: F = \frac{2 \sum_{s \in predicted} p(s)}{|predicted| + E|gold|}

the quotient of the expectations. It is largest for the spans with the largest sum of p(s) - F/2 that do not overlap
(Dinkelbach, 1967), so that one threshold F/2 decides, the same in all sentences.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.schemes import Scheme, Span, detect_scheme, joined_labels, labels_from_spans, spans
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain import Potentials
from trelliswork.inference.chain.passes import score
from trelliswork.inference.chain.segments import SegmentKinds, Segments, of_labelings

# Batches of chains; the label of each of their states, or None if states are labels.
Chains = Iterable[tuple[Potentials, NDArray[np.integer] | None]]
Confident = list[tuple[Span, float]]  # spans with their probabilities
THRESHOLD = 0.5  # of spans in a decision, if the model is not calibrated
LEAST = 1e-3  # less probable spans are no candidates


class Found(NamedTuple):
    """The spans of the best labelings of sentences, all in one table."""

    rows: NDArray[np.int64]  # (n, 4) sentence, kind, first word, one past the last word
    p: NDArray[np.float64]  # (n,) of the spans
    log_prob: NDArray[np.float64]  # (n_sentences,) of the labelings
    rules: NDArray[np.float64]  # (n_sentences,) probability that the rules hold


def found_spans(tagger: Any, X: Any, kinds: SegmentKinds, rules: Any = None, *, hold: bool = False) -> Found:
    """Return the spans of the best labelings under rules, and their probabilities without regard to rules.

    With ``hold``, ``rules`` of the result is the probability that the rules hold; otherwise 1.
    """
    parts, n = [], 0
    for ask, scores in tagger._asked(X, None, rules):
        labels = ask.best_labels(scores)
        found = of_labelings(scores, labels, kinds)
        log_p = np.minimum(score(scores, labels) - found.log_z, 0.0)
        found.rows[:, 0] += n
        parts.append(Found(found.rows, found.p, log_p, ask.hold(scores)[0] if hold else np.ones(len(log_p))))
        n += len(log_p)
    empty = Found(np.empty((0, 4), np.int64), *(np.empty(0),) * 3)
    return Found(*map(np.concatenate, zip(empty, *parts, strict=True)))


@dataclass(frozen=True)
class SpanLabels:
    """Labels of a tagger that encode spans."""

    labels: tuple[str, ...]
    scheme: Scheme

    @classmethod
    def of(cls, labels: Iterable[str]) -> "SpanLabels":
        """Return the labels with their scheme; plain tags are an error."""
        names = tuple(labels)
        scheme = detect_scheme(names)
        if scheme is None:
            raise ValueRangeError(
                "the labels of this model encode no spans: expected BIO or BIOES labels such as B-NP, got "
                f"{', '.join(names[:5])}."
            )
        return cls(names, scheme)

    @cached_property
    def _joined(self) -> tuple[list[str], SegmentKinds]:
        types, type_of, joins = joined_labels(self.labels, self.scheme)
        return types, SegmentKinds(type_of, joins)

    @property
    def types(self) -> list[str]:
        """Types of the spans; their numbers are the kinds of segments."""
        return self._joined[0]

    def segments(self, potentials: Potentials, label_of: NDArray[np.integer] | None) -> Segments:
        """Return the segments of chains."""
        kinds = self._joined[1]
        return Segments(potentials, kinds if label_of is None else kinds.of_states(label_of))

    def confidences(self, chains: Chains, labelings: Sequence[Sequence[str]]) -> list[Confident]:
        """Return the spans of labelings with their probabilities."""
        numbers, result = {name: k for k, name in enumerate(self.types)}, []
        rest = iter(labelings)
        for potentials, label_of in chains:
            batch = [spans(next(rest), self.scheme) for _ in potentials.lengths]
            rows = [(b, numbers[s.type], s.start, s.stop) for b, some in enumerate(batch) for s in some]
            log_p = self.segments(potentials, label_of).log_probabilities(np.array(rows, np.int64).reshape(-1, 4))
            p = iter(np.minimum(np.exp(log_p), 1.0).tolist())
            result += [[(span, next(p)) for span in some] for some in batch]
        return result

    def likely(self, chains: Chains, least: float = LEAST) -> Iterator["Candidates"]:
        """Yield the candidates of each sentence."""
        for potentials, label_of in chains:
            segments = self.segments(potentials, label_of)
            rows, log_p = segments.likely(least)
            p, outside = np.minimum(np.exp(log_p), 1.0), segments.log_outside() > -np.inf
            ends = np.searchsorted(rows[:, 0], np.arange(len(potentials.lengths) + 1))
            for b, n in enumerate(potentials.lengths.tolist()):
                own = slice(ends[b], ends[b + 1])
                yield Candidates(rows[own, 1:], p[own], outside[b, :n])

    def decode(self, chains: Chains, threshold: float, least: float = LEAST) -> Iterator[list[str] | None]:
        """Yield the labels of each sentence with the best expected F1 at a threshold.

        ``None`` where no choice of candidates covers all words that must be in a span.
        """
        for candidates in self.likely(chains, min(least, threshold)):
            chosen = candidates.best(threshold)
            if chosen is None:
                yield None
                continue
            some = [(self.types[kind], int(first), int(end)) for kind, first, end in candidates.rows[chosen]]
            yield labels_from_spans(some, len(candidates.outside), self.scheme)

    def threshold(self, chains: Chains, least: float = LEAST) -> float:
        """Return the threshold with the best expected F1 of all sentences together."""
        every = list(self.likely(chains, least))
        expected = sum(float(c.p.sum()) for c in every)
        if not expected:
            return THRESHOLD
        threshold = 0.0
        for _ in range(50):
            chosen = [(c, c.best(threshold)) for c in every]
            kept = [c.p[which] for c, which in chosen if which is not None]
            f1 = 2 * sum(float(p.sum()) for p in kept) / (sum(map(len, kept)) + expected)
            if f1 / 2 <= threshold + 1e-9:
                break
            threshold = f1 / 2
        return threshold


@dataclass(frozen=True)
class Candidates:
    """Likely spans of a sentence."""

    rows: NDArray[np.int64]  # (n, 3) type, first word, one past the last word
    p: NDArray[np.float64]  # (n,)
    outside: NDArray[np.bool_]  # (T,) whether a word may be outside of all spans

    def best(self, threshold: float) -> list[int] | None:
        """Return the spans without overlaps with the largest sum of p - threshold; ``None`` if none is possible."""
        T = len(self.outside)
        ending: list[list[int]] = [[] for _ in range(T + 1)]
        for n, end in enumerate(self.rows[:, 2].tolist()):
            ending[end].append(n)
        starts, gains = self.rows[:, 1].tolist(), (self.p - threshold).tolist()
        value, choice = [0.0] + [-np.inf] * T, [-1] * (T + 1)
        for t in range(1, T + 1):
            if self.outside[t - 1]:
                value[t] = value[t - 1]
            for n in ending[t]:
                total = value[starts[n]] + gains[n]
                if total > value[t]:
                    value[t], choice[t] = total, n
        if value[T] == -np.inf:
            return None
        chosen, t = [], T
        while t > 0:
            n = choice[t]
            if n >= 0:
                chosen.append(n)
            t = starts[n] if n >= 0 else t - 1
        return chosen[::-1]
