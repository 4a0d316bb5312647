r"""Agreement of induced labels, whose names are arbitrary, with gold labels.

All measures are computed from the table of counts n(g, k) of tokens with gold label g and induced label k. With
entropies H in nats:

.. math:: \text{many-to-one} = \frac1n \sum_k \max_g n(g, k), \qquad
          \text{one-to-one} = \frac1n \max_{\pi} \sum_k n(\pi(k), k)
.. math:: h = 1 - \frac{H(G \mid K)}{H(G)}, \quad c = 1 - \frac{H(K \mid G)}{H(K)}, \quad V = \frac{2 h c}{h + c},
          \quad VI = H(G \mid K) + H(K \mid G)

where :math:`\pi` maps different induced labels to different gold labels. Homogeneity h, completeness c and V: Rosenberg
and Hirschberg (2007); variation of information: Meila (2003).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.metrics.calibration import align

Labels = Sequence[Hashable] | Sequence[Sequence[Hashable]] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class InductionReport:
    """Result of ``evaluate_induction``; rates are between 0 and 1.

    Attributes
    ----------
    n_tokens, n_gold, n_induced : int
        Number of tokens, and of distinct labels.
    many_to_one : float
        Accuracy when each induced label is mapped to its most frequent gold label. Splitting labels never lowers it.
    one_to_one : float
        Accuracy under the best matching that uses no gold label twice; unmatched labels are wrong.
    homogeneity, completeness, v_measure : float
        1 if each induced label has tokens of one gold label only; 1 if each gold label has tokens of one induced label
        only; and their harmonic mean.
    variation_of_information : float
        In nats; 0 if the labels are the same up to their names. A metric: smaller is better.
    mapping : dict
        The gold label of each induced label in ``many_to_one``; among equally frequent ones the first seen.
    matching : dict
        The gold label of each induced label in ``one_to_one``, without unmatched induced labels.
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
        """Return plain data for JSON; the keys are the names of the attributes.

        Mappings become lists of pairs, induced label first, because the keys of JSON objects are strings.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("mapping", "matching"):
            values[name] = [[_plain(k), _plain(g)] for k, g in values[name].items()]
        return values

    def rows(self) -> list[tuple[str, int | float]]:
        """Return the names and values of the measures."""
        return [
            ("tokens", self.n_tokens),
            ("gold labels", self.n_gold),
            ("induced labels", self.n_induced),
            ("many-to-one", self.many_to_one),
            ("one-to-one", self.one_to_one),
            ("homogeneity", self.homogeneity),
            ("completeness", self.completeness),
            ("V-measure", self.v_measure),
            ("variation of information", self.variation_of_information),
        ]

    def summary(self) -> str:
        """Return the measures as text, one per line."""
        return align(self.rows())


def evaluate_induction(gold: Labels, induced: Labels) -> InductionReport:
    """Compare induced labels with gold labels.

    Parameters
    ----------
    gold, induced : sequences of labels, or of sentences
        Labels of any hashable type but tuples. A sentence is a list, a tuple or an array of labels. Both sides must
        have the same lengths.

    Returns
    -------
    InductionReport

    Raises
    ------
    ShapeError
        If the two sides differ in length.
    ValueRangeError
        If there is no token.

    Notes
    -----
    Time O(n_tokens + a^2 b), with a <= b the numbers of labels of the two sides.

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
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import coo_matrix

    (gold_names, gold_ids), (induced_names, induced_ids) = map(_numbered, _flatten(gold, induced))
    n, shape = len(gold_ids), (len(gold_names), len(induced_names))
    table = coo_matrix((np.ones(n), (gold_ids, induced_ids)), shape).toarray()
    best = table.argmax(axis=0)
    matched = linear_sum_assignment(table, maximize=True)
    gold_entropy, induced_entropy = _entropy(table.sum(axis=1)), _entropy(table.sum(axis=0))
    joint = _entropy(table.ravel())
    given_induced, given_gold = max(joint - induced_entropy, 0.0), max(joint - gold_entropy, 0.0)
    homogeneity = 1 - given_induced / gold_entropy if gold_entropy > 0 else 1.0
    completeness = 1 - given_gold / induced_entropy if induced_entropy > 0 else 1.0
    both = homogeneity + completeness
    return InductionReport(
        n_tokens=n,
        n_gold=len(gold_names),
        n_induced=len(induced_names),
        many_to_one=float(table.max(axis=0).sum()) / n,
        one_to_one=float(table[matched].sum()) / n,
        homogeneity=homogeneity,
        completeness=completeness,
        v_measure=2 * homogeneity * completeness / both if both > 0 else 0.0,
        variation_of_information=given_induced + given_gold,
        mapping={name: gold_names[g] for name, g in zip(induced_names, best.tolist(), strict=True)},
        matching={induced_names[k]: gold_names[g] for k, g in sorted(zip(*matched[::-1], strict=True))},
    )


def _flatten(gold: Labels, induced: Labels) -> tuple[list[Hashable], list[Hashable]]:
    """Return both sides as flat lists of equal length."""
    if len(gold) != len(induced):
        raise ShapeError(f"gold and induced must have the same length, got {len(gold)} and {len(induced)}.")
    nested = [any(isinstance(x, list | tuple | np.ndarray) for x in side) for side in (gold, induced)]
    if nested[0] != nested[1]:
        raise ShapeError("gold and induced must both be labels or both be sentences, got one of each.")
    if nested[0]:
        for i, (g, k) in enumerate(zip(gold, induced, strict=True)):
            if len(g) != len(k):
                raise ShapeError(f"gold[{i}] and induced[{i}] must have the same length, got {len(g)} and {len(k)}.")
        gold, induced = list(chain.from_iterable(gold)), list(chain.from_iterable(induced))  # type: ignore[arg-type]
    if not len(gold):
        raise ValueRangeError("gold must have at least one label, got none.")
    return list(gold), list(induced)


def _numbered(labels: list[Hashable]) -> tuple[list[Hashable], NDArray[np.int64]]:
    """Return the distinct labels in order of appearance, and the number of each label."""
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return list(numbers), np.array([numbers[label] for label in labels])


def _entropy(counts: NDArray[np.float64]) -> float:
    """Return the entropy in nats of relative frequencies."""
    from scipy.special import entr

    return float(entr(counts / counts.sum()).sum())


def _plain(label: Hashable) -> Any:
    """Return a label for JSON: NumPy numbers as Python numbers, labels of other types as text."""
    label = label.item() if isinstance(label, np.generic) else label
    return label if label is None or isinstance(label, str | int | float) else str(label)
