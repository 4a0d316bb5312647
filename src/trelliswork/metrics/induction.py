r"""How well induced labels, whose names mean nothing, agree with gold ones.

All measures come from one table of counts n(g, k), gold label g and induced label k at the same token. With entropies
H in nats:

.. math:: \text{many-to-one} = \frac1n \sum_k \max_g n(g, k), \qquad
          \text{one-to-one} = \frac1n \max_{\pi} \sum_k n(\pi(k), k)
.. math:: h = 1 - \frac{H(G \mid K)}{H(G)}, \quad c = 1 - \frac{H(K \mid G)}{H(K)}, \quad V = \frac{2 h c}{h + c},
          \quad VI = H(G \mid K) + H(K \mid G)

where :math:`\pi` gives different induced labels different gold ones. Homogeneity h, completeness c and V: Rosenberg and
Hirschberg (2007); variation of information: Meila (2003).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError

Labels = Sequence[Hashable] | Sequence[Sequence[Hashable]] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class InductionReport:
    """What ``evaluate_induction`` found; rates lie between 0 and 1.

    Attributes
    ----------
    n_tokens, n_gold, n_induced : int
        Tokens, and distinct labels of both sides.
    many_to_one : float
        Accuracy when each induced label stands for the gold label it meets most often. Never falls when labels split.
    one_to_one : float
        Accuracy under the best matching in which no gold label is used twice; labels left over are wrong.
    homogeneity, completeness, v_measure : float
        1 if each induced label has tokens of one gold label only; if each gold label has one induced label only; and
        their harmonic mean.
    variation_of_information : float
        In nats; 0 if the labels are the same up to their names. A metric: smaller is better.
    mapping : dict
        The gold label that each induced label stands for in ``many_to_one``; of equally frequent ones the first seen.
    matching : dict
        The same for ``one_to_one``; induced labels left over are missing.
    """

    n_tokens: int
    n_gold: int
    n_induced: int
    many_to_one: float
    one_to_one: float
    homogeneity: float
    completeness: float
    v_measure: float
    variation_of_information: float
    mapping: dict[Hashable, Hashable]
    matching: dict[Hashable, Hashable]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; the keys are the attributes' names.

        Mappings become lists of pairs, induced label first: an object of JSON can only have strings for keys.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("mapping", "matching"):
            values[name] = [[_plain(k), _plain(g)] for k, g in values[name].items()]
        return values

    def summary(self) -> str:
        """Return a short text: a line for each measure."""
        rows = [
            ("tokens", f"{self.n_tokens:,}"),
            ("gold labels", f"{self.n_gold:,}"),
            ("induced labels", f"{self.n_induced:,}"),
            ("many-to-one", f"{self.many_to_one:.4f}"),
            ("one-to-one", f"{self.one_to_one:.4f}"),
            ("homogeneity", f"{self.homogeneity:.4f}"),
            ("completeness", f"{self.completeness:.4f}"),
            ("V-measure", f"{self.v_measure:.4f}"),
            ("variation of information", f"{self.variation_of_information:.4f}"),
        ]
        left, right = (max(len(row[i]) for row in rows) for i in (0, 1))
        return "\n".join(f"{name:<{left}}  {value:>{right}}" for name, value in rows)


def evaluate_induction(gold: Labels, induced: Labels) -> InductionReport:
    """Compare induced labels with gold ones.

    Parameters
    ----------
    gold, induced : sequences of labels, or of sentences
        Labels of any hashable kind but tuples, as many on both sides. A sentence is a list, a tuple or an array of
        labels, and must have the same length on both sides.

    Returns
    -------
    InductionReport

    Raises
    ------
    ShapeError
        If the two sides differ in length.
    ValueRangeError
        If there is no token to judge.

    Notes
    -----
    Time O(n_tokens + a^2 b), with a and b the smaller and the larger number of labels.

    Examples
    --------
    >>> report = evaluate_induction(["N", "V", "N", "D", "N"], [0, 1, 0, 2, 2])
    >>> report.many_to_one, report.mapping
    (0.8, {0: 'N', 1: 'V', 2: 'N'})
    >>> print(report.summary())
    tokens                         5
    gold labels                    3
    induced labels                 3
    many-to-one               0.8000
    one-to-one                0.8000
    homogeneity               0.7082
    completeness              0.6380
    V-measure                 0.6713
    variation of information  0.6592
    """
    gold_labels, induced_labels = _flatten(gold, induced)
    n = len(gold_labels)
    gold_ids = {label: i for i, label in enumerate(dict.fromkeys(gold_labels))}
    induced_ids = {label: i for i, label in enumerate(dict.fromkeys(induced_labels))}
    table = np.zeros((len(gold_ids), len(induced_ids)))
    for (g, k), count in Counter(zip(gold_labels, induced_labels, strict=True)).items():
        table[gold_ids[g], induced_ids[k]] = count

    best = table.argmax(axis=0)
    matched = _assign(table)
    gold_names, induced_names = list(gold_ids), list(induced_ids)
    gold_entropy, induced_entropy = _entropy(table.sum(axis=1)), _entropy(table.sum(axis=0))
    joint = _entropy(table.ravel())
    given_induced, given_gold = max(joint - induced_entropy, 0.0), max(joint - gold_entropy, 0.0)
    homogeneity = 1 - given_induced / gold_entropy if gold_entropy > 0 else 1.0
    completeness = 1 - given_gold / induced_entropy if induced_entropy > 0 else 1.0
    both = homogeneity + completeness
    return InductionReport(
        n_tokens=n,
        n_gold=len(gold_ids),
        n_induced=len(induced_ids),
        many_to_one=float(table.max(axis=0).sum()) / n,
        one_to_one=float(sum(table[g, k] for g, k in matched)) / n,
        homogeneity=homogeneity,
        completeness=completeness,
        v_measure=2 * homogeneity * completeness / both if both > 0 else 0.0,
        variation_of_information=given_induced + given_gold,
        mapping={name: gold_names[g] for name, g in zip(induced_names, best.tolist(), strict=True)},
        matching={induced_names[k]: gold_names[g] for g, k in sorted(matched, key=lambda pair: pair[1])},
    )


def _flatten(gold: Labels, induced: Labels) -> tuple[list[Hashable], list[Hashable]]:
    """Both sides as flat lists of equal length."""
    if len(gold) != len(induced):
        raise ShapeError(f"gold and induced must be equally long, got {len(gold)} and {len(induced)}.")
    nested = [any(isinstance(x, list | tuple | np.ndarray) for x in side) for side in (gold, induced)]
    if nested[0] != nested[1]:
        raise ShapeError("gold and induced must both be labels or both be sentences, got one of each.")
    if nested[0]:
        for i, (g, k) in enumerate(zip(gold, induced, strict=True)):
            if len(g) != len(k):
                raise ShapeError(f"gold[{i}] and induced[{i}] must be equally long, got {len(g)} and {len(k)}.")
        gold, induced = list(_join(gold)), list(_join(induced))
    if not len(gold):
        raise ValueRangeError("gold must hold at least one label, got none: there is nothing to judge.")
    return list(gold), list(induced)


def _join(sentences: Labels) -> Iterable[Hashable]:
    return chain.from_iterable(sentences)  # type: ignore[arg-type]


def _entropy(counts: NDArray[np.float64]) -> float:
    """Entropy in nats of relative frequencies."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


def _assign(gains: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs (row, column) of largest total gain, no row or column twice: the Hungarian method.

    Rows come one by one; each takes the cheapest augmenting path under potentials that keep reduced costs from falling
    below 0 (shortest paths as in Dijkstra's method). Time O(a^2 b) for a rows and b >= a columns.
    """
    if gains.shape[0] > gains.shape[1]:
        return [(row, column) for column, row in _assign(gains.T)]
    costs = gains.max() - gains
    n_rows, n_columns = costs.shape
    row_potential, column_potential = np.zeros(n_rows), np.zeros(n_columns)
    row_of = np.full(n_columns, -1)
    for new in range(n_rows):
        distance, before = np.full(n_columns, np.inf), np.full(n_columns, -1)
        done = np.zeros(n_columns, bool)
        row, column, reached = new, -1, 0.0
        while row >= 0:  # until a free column is reached
            through = reached + costs[row] - row_potential[row] - column_potential
            shorter = ~done & (through < distance)
            distance[shorter], before[shorter] = through[shorter], column
            column = int(np.where(done, np.inf, distance).argmin())
            reached, row = float(distance[column]), int(row_of[column])
            done[column] = True
        inner = np.flatnonzero(done & (row_of >= 0))
        row_potential[new] += reached
        row_potential[row_of[inner]] += reached - distance[inner]
        column_potential[done] -= reached - distance[done]
        while column >= 0:  # shift the assignments along the path
            previous = int(before[column])
            row_of[column] = row_of[previous] if previous >= 0 else new
            column = previous
    return [(int(row_of[column]), int(column)) for column in np.flatnonzero(row_of >= 0)]


def _plain(label: Hashable) -> Any:
    """A label that JSON knows: NumPy's numbers as Python's, what is unknown as its text."""
    label = label.item() if isinstance(label, np.generic) else label
    return label if label is None or isinstance(label, str | int | float) else str(label)
