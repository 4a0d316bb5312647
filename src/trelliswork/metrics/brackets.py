"""Trees against gold trees by their spans, and the trees that everyone must beat: left- and right-branching ones."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from trelliswork.errors import DataError, ShapeError

Spans = Collection[tuple[int, int]]  # (first, last), both included


@dataclass(frozen=True)
class BracketReport:
    """Unlabelled brackets found and wanted; all shares from 0 to 1.

    Attributes
    ----------
    n_sentences : int
        Of two words or more, within the length that was asked for.
    sentence_f1 : float
        Mean of the F1 of each sentence, as most papers on grammar induction tell it.
    precision, recall, f1 : float
        Of all brackets of the corpus together.
    left_f1, right_f1 : float
        ``sentence_f1`` of left- and right-branching trees of the same sentences.
    left_corpus_f1, right_corpus_f1 : float
        ``f1`` of these.
    best_f1 : float
        ``sentence_f1`` that binary trees can reach, since gold trees are not binary.
    """

    n_sentences: int
    sentence_f1: float
    precision: float
    recall: float
    f1: float
    left_f1: float
    right_f1: float
    left_corpus_f1: float
    right_corpus_f1: float
    best_f1: float

    def to_dict(self) -> dict[str, float]:
        """Plain data for JSON."""
        return asdict(self)

    def summary(self) -> str:
        """Some lines for people."""
        return (
            f"{self.n_sentences:,} sentences of two words or more\n"
            f"F1 {100 * self.sentence_f1:.2f} a sentence; left-branching {100 * self.left_f1:.2f}, right-branching "
            f"{100 * self.right_f1:.2f}, the best binary trees {100 * self.best_f1:.2f}\n"
            f"F1 {100 * self.f1:.2f} of all brackets (precision {100 * self.precision:.2f}, recall "
            f"{100 * self.recall:.2f}); left-branching {100 * self.left_corpus_f1:.2f}, right-branching "
            f"{100 * self.right_corpus_f1:.2f}"
        )


def left_branching(n: int) -> set[tuple[int, int]]:
    """Spans of the tree (((a b) c) d) over n words, longer than one."""
    return {(0, j) for j in range(1, n)}


def right_branching(n: int) -> set[tuple[int, int]]:
    """Spans of the tree (a (b (c d))) over n words, longer than one."""
    return {(i, n - 1) for i in range(n - 1)}


def evaluate_brackets(
    lengths: Sequence[int], gold: Sequence[Spans], predicted: Sequence[Spans], *, max_length: int | None = None
) -> BracketReport:
    """Compare trees by their spans.

    Trivial spans are dropped: single words and the whole sentence. A span that stands in a tree several times (unary
    chains) counts once. In the mean over sentences, one without any span left in gold counts as 1 if none is predicted
    and as 0 else (Kim, Dyer and Rush, 2019); sentences of one word are left out.

    Parameters
    ----------
    lengths : sequence of int
        Words of each sentence.
    gold, predicted : sequence of collections of (first, last)
        Both ends included.
    max_length : int, optional
        Only sentences up to so many words.

    Examples
    --------
    >>> report = evaluate_brackets([4], [{(0, 1), (2, 3)}], [{(0, 3), (1, 3), (2, 3)}])
    >>> report.precision, report.recall, report.left_f1, report.right_f1
    (0.5, 0.5, 0.5, 0.5)
    """
    if not len(lengths) == len(gold) == len(predicted):
        raise ShapeError(
            f"lengths, gold and predicted must be of the same sentences, got {len(lengths)}, {len(gold)} and "
            f"{len(predicted)}."
        )
    sums = {name: _Sum() for name in ("predicted", "left", "right", "best")}
    for n, wanted, found in zip(lengths, gold, predicted, strict=True):
        if n < 2 or (max_length is not None and n > max_length):
            continue
        want, have = _proper(wanted, n), _proper(found, n)
        sums["predicted"].add(want, have)
        sums["left"].add(want, _proper(left_branching(n), n))
        sums["right"].add(want, _proper(right_branching(n), n))
        sums["best"].add_best(want, n)
    total = sums["predicted"]
    if not total.n:
        raise DataError("there is no sentence of two words or more (within the length asked for) to evaluate.")
    return BracketReport(
        total.n,
        total.mean,
        total.precision,
        total.recall,
        total.f1,
        sums["left"].mean,
        sums["right"].mean,
        sums["left"].f1,
        sums["right"].f1,
        sums["best"].mean,
    )


@dataclass
class _Sum:
    """Running sums over sentences."""

    n: int = 0
    hits: int = 0
    wanted: int = 0
    found: int = 0
    total: float = 0.0

    def add(self, want: set[tuple[int, int]], have: set[tuple[int, int]]) -> None:
        self._add(len(want & have), len(want), len(have))

    def add_best(self, want: set[tuple[int, int]], n: int) -> None:
        """A binary tree with all wanted spans: it has n - 2 proper ones."""
        self._add(len(want), len(want), n - 2)

    def _add(self, hits: int, wanted: int, found: int) -> None:
        self.n += 1
        self.hits += hits
        self.wanted += wanted
        self.found += found
        self.total += 2 * hits / (wanted + found) if wanted + found else 1.0

    @property
    def mean(self) -> float:
        return self.total / self.n

    @property
    def precision(self) -> float:
        return self.hits / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        return self.hits / self.wanted if self.wanted else 1.0

    @property
    def f1(self) -> float:
        return 2 * self.hits / (self.found + self.wanted) if self.found + self.wanted else 1.0


def _proper(spans: Spans, n: int) -> set[tuple[int, int]]:
    """Spans that are neither single words nor the whole sentence."""
    for i, j in spans:
        if not 0 <= i <= j < n:
            raise DataError(f"a span must lie within the {n} words of its sentence, got ({i}, {j}).")
    return {(i, j) for i, j in spans if i < j and (i, j) != (0, n - 1)}
