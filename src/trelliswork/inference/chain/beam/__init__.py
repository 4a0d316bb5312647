r"""Beams: forward-backward and Viterbi on few states per position (Pal, Sutton and McCallum, 2006).

.. math:: \log Z_I = \log \sum_{y \in I_1 \times \dots \times I_T} \exp(\mathrm{score}(y)) \le \log Z

The sets I_t are chosen from the forward masses. Inference inside them is exact, so the marginals are the gradient of
one function, :math:`\log Z_I`. The best distribution on a set that keeps a share m of the mass has the divergence
:math:`KL(q \| p) = -\log m` (paper 2, eqs. 6-8): a bound on it is a bound on the mass.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.beam.kernels.records import BeamSets
from trelliswork.inference.chain.beam.kernels.select import Rule
from trelliswork.inference.chain.potentials import Floats, Integers

FULL = Rule(1, 1.0, 2.0)  # all states
AUTO_EPS = 0.005
# Number of states above which a beam is faster than the best exact kernel: shared transitions, transitions by position.
PAYS_SHARED, PAYS_OWN = 100, 40


@dataclass(frozen=True)
class Beam:
    """Rule for the states that are kept at each position.

    Attributes
    ----------
    by : {"kl", "size", "threshold"}
        The smallest set with a divergence of at most ``eps`` and at least ``min_size`` states; the best ``size``
        states; the states whose logarithm is within ``threshold`` of the best, and at least ``min_size``.
    eps : float or "auto"
        A share of exp(-eps) of the mass is kept: 0.005 keeps 99.5%, 0 keeps every state. With "auto" training starts
        with 0.005 and lowers it when necessary.
    min_size, size : int
    threshold : float
    refine : bool
        Choose the sets a second time by a backward pass: about half as many states for the same accuracy, at the cost
        of two more passes. It applies to inference; CRF training chooses states by their posterior probabilities.

    Examples
    --------
    >>> Beam.parse("kl=0.001,min=4")
    Beam(by='kl', eps=0.001, min_size=4, size=20, threshold=6.9, refine=False)
    >>> str(Beam("size", size=30))
    'size=30'
    """

    by: Literal["kl", "size", "threshold"] = "kl"
    eps: float | Literal["auto"] = AUTO_EPS
    min_size: int = 10
    size: int = 20
    threshold: float = 6.9
    refine: bool = False

    def __post_init__(self) -> None:
        if self.by not in ("kl", "size", "threshold"):
            raise ValueRangeError(f"by of a beam must be 'kl', 'size' or 'threshold', got {self.by!r}.")
        check_count("size of a beam", self.size)
        check_count("min_size of a beam", self.min_size)
        for name, value in (("eps", self.eps), ("threshold", self.threshold)):
            if name == "eps" and value == "auto":
                continue
            if isinstance(value, str) or not 0 <= value < math.inf:
                or_auto = ' or "auto"' if name == "eps" else ""
                raise ValueRangeError(f"{name} of a beam must be a number of at least 0{or_auto}, got {value!r}.")

    @classmethod
    def parse(cls, text: str) -> "Beam":
        """Parse ``kl=0.005,min=10``, ``kl=auto,min=10``, ``size=20`` or ``threshold=6.9,min=4``, with ``,refine``."""
        expected = "write kl=0.005,min=10 or size=20 or threshold=6.9,min=4, optionally with ,refine"
        options: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            key = {"kl": "eps", "min": "min_size"}.get(name, name)
            if key not in ("eps", "min_size", "size", "threshold", "refine") or key in options:
                raise ValueRangeError(f"beam {text!r}: {part.strip()!r} is not valid here: {expected}.")
            if bool(equals) == (key == "refine"):
                raise ValueRangeError(f"beam {text!r}: {part.strip()!r} cannot be read: {expected}.")
            if name in ("kl", "size", "threshold"):
                if "by" in options:
                    raise ValueRangeError(f"beam {text!r} has two of them: {expected}.")
                options["by"] = name
            try:
                if key == "refine":
                    options[key] = True
                elif key in ("min_size", "size"):
                    options[key] = int(value)
                else:
                    options[key] = value if value == "auto" else float(value)
            except ValueError:
                raise ValueRangeError(f"beam {text!r}: {value!r} is not a number: {expected}.") from None
        if "by" not in options or (options["by"] == "size" and "min_size" in options):
            raise ValueRangeError(f"beam {text!r} cannot be read: {expected}.")
        return cls(**options)

    def __str__(self) -> str:
        text = {
            "kl": f"kl={self.eps},min={self.min_size}",
            "size": f"size={self.size}",
            "threshold": f"threshold={self.threshold},min={self.min_size}",
        }[self.by]
        return text + (",refine" if self.refine else "")

    @property
    def rule(self) -> Rule:
        """The rule as the kernels take it."""
        if self.by == "size":
            return Rule(self.size, 0.0, 2.0)
        if self.by == "threshold":
            # A ratio of exp(-70) is zero in single precision: keep all states.
            return Rule(self.min_size, 0.0, math.exp(-self.threshold)) if self.threshold < 70 else FULL
        return Rule(self.min_size, math.exp(-(AUTO_EPS if self.eps == "auto" else self.eps)), 2.0)

    def tighter(self, factor: float = 10.0) -> "Beam":
        """Return a beam that loses less: eps / factor, twice the size, or threshold + log(factor)."""
        eps = AUTO_EPS if self.eps == "auto" else self.eps
        if self.by == "kl":
            return replace(self, eps=eps / factor)
        if self.by == "size":
            return replace(self, size=2 * self.size)
        return replace(self, threshold=self.threshold + math.log(factor))


EXACT = Beam("kl", eps=0.0)


def chosen_beam(beam: "Beam | str | None", n_states: int, *, shared: bool = True) -> Beam | None:
    """Return the beam that a user's argument describes; ``None`` is exact inference.

    A string is parsed; "auto" is a beam by "kl" where it is faster than exact inference, which is fastest if
    transitions are ``shared``: dense and the same at all positions.
    """
    if beam is None or isinstance(beam, Beam):
        return beam
    if not isinstance(beam, str):
        raise ValueRangeError(f"beam must be a Beam, a string such as 'kl=0.005,min=10', 'auto' or None, got {beam!r}.")
    if beam == "auto":
        return Beam() if n_states > (PAYS_SHARED if shared else PAYS_OWN) else None
    return Beam.parse(beam)


@dataclass(frozen=True)
class BeamStatistics:
    """Statistics of the beams of a batch or of an evaluation.

    ``gap_estimate`` is the sum over all positions of minus the logarithm of the mass that was kept: an estimate of the
    total log Z - log Z_I, exact where later positions do not distinguish kept states from others.
    """

    mean_size: float  # states per position
    max_size: int  # states of the largest beam
    gap_estimate: float
    n_positions: int
    n_exact: int  # sequences whose beams lost every path and which were computed with all states
    full: bool  # True if every possible state was kept

    @classmethod
    def of(cls, sizes: Integers, kept: NDArray[np.float64], n_exact: int, *, full: bool) -> "BeamStatistics":
        """Return the statistics of beams by their sizes and the shares that they kept, (n_positions,) each."""
        if not len(sizes):
            return cls(0.0, 0, 0.0, 0, n_exact, full)
        gap = float(-np.log(kept).sum())
        return cls(float(sizes.mean()), int(sizes.max()), gap, len(sizes), n_exact, full)

    @property
    def kept(self) -> float:
        """Geometric mean over positions of the share of the mass that was kept; -log of it is the divergence."""
        return math.exp(-self.gap_estimate / max(self.n_positions, 1))

    def __str__(self) -> str:
        return f"{self.mean_size:.1f} states per token (at most {self.max_size}), {100 * self.kept:.2f}% of the mass"


def joined(parts: Sequence[BeamStatistics]) -> BeamStatistics | None:
    """Return the statistics of several batches together; ``None`` if there is no position."""
    n = sum(part.n_positions for part in parts)
    if not n:
        return None
    return BeamStatistics(
        sum(part.mean_size * part.n_positions for part in parts) / n,
        max(part.max_size for part in parts),
        sum(part.gap_estimate for part in parts),
        n,
        sum(part.n_exact for part in parts),
        all(part.full for part in parts),
    )


@dataclass(frozen=True)
class BeamExpectations:
    """Results of inference within beams.

    ``kept`` is the share of the forward mass that the beam kept; minus its logarithm is the divergence of the
    compressed belief from the dense one.
    """

    log_z: NDArray[np.float64]  # (B,) of the chain restricted to the beams, a lower bound
    offsets: Integers  # (B + 1,) number of the first position of each sequence
    sets: BeamSets
    marginals: Floats  # of sets.states, in the same order
    counts: NDArray[np.float64] | None  # (S, S) or (n_entries,) expected transitions of all sequences
    kept: NDArray[np.float64]  # (n_positions,)
    exact: NDArray[np.bool_]  # (B,) sequences whose beams lost every path: computed with all states instead

    @property
    def sizes(self) -> Integers:
        """(n_positions,): number of states in each beam."""
        return np.diff(self.sets.ptr)

    def by_label(self, label_of: NDArray[np.int32] | None, n_labels: int) -> NDArray[np.float64]:
        """Return p(label) (n_positions, L): marginals summed by the label of each state (``None``: they are labels)."""
        n, states = len(self.kept), self.sets.states
        labels = states if label_of is None else label_of[states]
        flat = np.repeat(np.arange(n), self.sizes) * n_labels + labels
        sums = np.bincount(flat, self.marginals, minlength=n * n_labels).astype(np.float64)
        return sums.reshape(n, n_labels)

    @property
    def statistics(self) -> BeamStatistics:
        """Sizes, gap estimate and number of exact sequences."""
        return BeamStatistics.of(self.sizes, self.kept, int(self.exact.sum()), full=bool(self.exact.all()))


class BeamPaths(NamedTuple):
    """Best labelings within beams."""

    labels: Integers  # (B, T), -1 in the padding; states if transitions are sparse
    scores: NDArray[np.float64]  # (B,)
    mean_size: float  # states per position
    max_size: int
    exact: NDArray[np.bool_]  # (B,) True if every path was lost and all states were used instead
