r"""Beams: forward-backward and Viterbi on few states a position (Pal, Sutton and McCallum, 2006).

.. math:: \log Z_I = \log \sum_{y \in I_1 \times \dots \times I_T} \exp(\mathrm{score}(y)) \le \log Z

The sets I_t are chosen from the forward masses; then inference inside them is exact, so that the marginals are the
gradient of one function, :math:`\log Z_I`. The best distribution on a set that keeps a share m of the mass has the
divergence :math:`KL(q \| p) = -\log m` (paper 2, eqs. 6-8): a bound on it is a bound on the mass.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.potentials import Floats, Integers

Rule = tuple[int, float, float]  # least size, share of the mass, ratio to the best: see ``beam_select``
FULL: Rule = (1, 1.0, 2.0)
AUTO_EPS = 0.005
PAYS_SHARED, PAYS_OWN = 100, 40  # states above which a beam is faster than the best exact kernel


@dataclass(frozen=True)
class Beam:
    """Which states of a position are kept.

    Attributes
    ----------
    kind : {"kl", "size", "threshold"}
        The smallest set with a divergence of at most ``eps`` and at least ``min_size`` states; the best ``size``
        states; those whose logarithm is within ``threshold`` of the best, and at least ``min_size``.
    eps : float or "auto"
        A share of exp(-eps) of the mass is kept: .005 keeps 99.5%; 0 keeps every state. With "auto" a trainer
        begins with 0.005 and tightens it when it must.
    min_size, size : int
    threshold : float
    refine : bool
        Choose the sets once more by a backward pass; forward alone is nearly as good and twice as fast.

    Examples
    --------
    >>> Beam.parse("kl=0.001,min=4")
    Beam(kind='kl', eps=0.001, min_size=4, size=20, threshold=6.9, refine=False)
    >>> str(Beam("size", size=30))
    'size=30'
    """

    kind: Literal["kl", "size", "threshold"] = "kl"
    eps: float | Literal["auto"] = AUTO_EPS
    min_size: int = 10
    size: int = 20
    threshold: float = 6.9
    refine: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("kl", "size", "threshold"):
            raise ValueRangeError(f"kind of a beam must be kl, size or threshold, got {self.kind!r}.")
        check_count("size of a beam", self.size)
        check_count("min_size of a beam", self.min_size)
        for name, value in (("eps", self.eps), ("threshold", self.threshold)):
            if name == "eps" and value == "auto":
                continue
            if isinstance(value, str) or not 0 <= value < math.inf:
                or_auto = ' or "auto"' if name == "eps" else ""
                raise ValueRangeError(f"{name} of a beam must be a number from 0 up{or_auto}, got {value!r}.")

    @classmethod
    def parse(cls, text: str) -> "Beam":
        """Read ``kl=0.005,min=10``, ``kl=auto,min=10``, ``size=20`` or ``threshold=6.9,min=4``, with ``,refine``."""
        wanted = "write kl=0.005,min=10 or size=20 or threshold=6.9,min=4, with ,refine if you like"
        options: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            key = {"kl": "eps", "min": "min_size"}.get(name, name)
            if key not in ("eps", "min_size", "size", "threshold", "refine") or key in options:
                raise ValueRangeError(f"beam {text!r}: {part.strip()!r} has no meaning here: {wanted}.")
            if bool(equals) == (key == "refine"):
                raise ValueRangeError(f"beam {text!r}: {part.strip()!r} cannot be read: {wanted}.")
            if name in ("kl", "size", "threshold"):
                if "kind" in options:
                    raise ValueRangeError(f"beam {text!r} has two kinds: {wanted}.")
                options["kind"] = name
            try:
                options[key] = (
                    True
                    if key == "refine"
                    else value
                    if value == "auto"
                    else int(value)
                    if key in ("min_size", "size")
                    else float(value)
                )
            except ValueError:
                raise ValueRangeError(f"beam {text!r}: {value!r} is not a number: {wanted}.") from None
        if "kind" not in options or (options["kind"] == "size" and "min_size" in options):
            raise ValueRangeError(f"beam {text!r} cannot be read: {wanted}.")
        return cls(**options)

    def __str__(self) -> str:
        text = {
            "kl": f"kl={self.eps},min={self.min_size}",
            "size": f"size={self.size}",
            "threshold": f"threshold={self.threshold},min={self.min_size}",
        }[self.kind]
        return text + (",refine" if self.refine else "")

    @property
    def rule(self) -> Rule:
        """The numbers that the kernels take."""
        if self.kind == "size":
            return self.size, 0.0, 2.0
        if self.kind == "threshold":
            # What is smaller by exp(-70) is zero in single precision: all states then.
            return (self.min_size, 0.0, math.exp(-self.threshold)) if self.threshold < 70 else FULL
        return self.min_size, math.exp(-(AUTO_EPS if self.eps == "auto" else self.eps)), 2.0

    def tighter(self, factor: float = 10.0) -> "Beam":
        """A beam that loses less: eps divided by ``factor``, size and min_size doubled, threshold and log factor."""
        eps = AUTO_EPS if self.eps == "auto" else self.eps
        if self.kind == "kl":
            return replace(self, eps=eps / factor)
        if self.kind == "size":
            return replace(self, size=2 * self.size)
        return replace(self, threshold=self.threshold + math.log(factor))


EXACT = Beam("kl", eps=0.0)


def chosen_beam(beam: "Beam | str | None", n_states: int, *, shared: bool = True) -> Beam | None:
    """The beam that a user asks for; ``None`` is exact inference.

    Parameters
    ----------
    beam : Beam, str or None
        A text is parsed; "auto" is a beam of kind "kl" where it is faster than exact inference.
    n_states : int
    shared : bool
        Whether transitions are dense and the same at all positions: exact inference is fastest then.
    """
    if beam is None or isinstance(beam, Beam):
        return beam
    if not isinstance(beam, str):
        raise ValueRangeError(f"beam must be a Beam, a text such as 'kl=0.005,min=10', 'auto' or None, got {beam!r}.")
    if beam == "auto":
        return Beam() if n_states > (PAYS_SHARED if shared else PAYS_OWN) else None
    return Beam.parse(beam)


@dataclass(frozen=True)
class BeamStatistics:
    """What the beams of a batch or of an evaluation were like.

    Attributes
    ----------
    mean_size, max_size : float, int
        States a position, and of the largest beam.
    gap_estimate : float
        Sum over all positions of minus the logarithm of the mass that was kept: an estimate of log Z - log Z_I in
        total, exact where what follows does not tell the kept states from the others. nan with fixed beams.
    n_positions : int
    n_exact : int
        Sequences whose beams lost every path and which were computed with all states.
    full : bool
        True if every possible state was kept.
    """

    mean_size: float
    max_size: int
    gap_estimate: float
    n_positions: int
    n_exact: int
    full: bool

    @property
    def kept(self) -> float:
        """Share of the mass that was kept at a position, geometric mean; minus its logarithm is the divergence."""
        return math.exp(-self.gap_estimate / max(self.n_positions, 1))

    def __str__(self) -> str:
        return f"{self.mean_size:.1f} states a token (at most {self.max_size}), {100 * self.kept:.2f}% of the mass"


def joined(parts: Sequence[BeamStatistics]) -> BeamStatistics | None:
    """Statistics of several batches together; ``None`` of none."""
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


class BeamSets(NamedTuple):
    """The beams of all positions of a batch, sequence after sequence."""

    ptr: Integers  # (n_positions + 1,)
    states: NDArray[np.int32]  # those of position i at ptr[i]:ptr[i+1], ascending


@dataclass(frozen=True)
class BeamExpectations:
    """Inference within beams.

    Attributes
    ----------
    log_z : ndarray (B,)
        float64; of the chain restricted to the beams: a lower bound.
    offsets : ndarray (B + 1,)
        First position of each sequence in what follows.
    sets : BeamSets
    marginals : ndarray
        Beside ``sets.states``.
    counts : ndarray (S, S) or (n_entries,) or None
        Expected transitions, float64, summed over all sequences.
    kept : ndarray (n_positions,)
        Share of the forward mass that the beam kept; minus its logarithm is the divergence of the compressed belief
        from the dense one. nan where the sets were given.
    exact : ndarray of bool (B,)
        Sequences whose beams lost every path and which were computed with all states instead.
    """

    log_z: NDArray[np.float64]
    offsets: Integers
    sets: BeamSets
    marginals: Floats
    counts: NDArray[np.float64] | None
    kept: NDArray[np.float64]
    exact: NDArray[np.bool_]

    @property
    def gap_estimate(self) -> NDArray[np.float64]:
        """(B,): minus the sum of log ``kept``, an estimate of log Z - log Z_I.

        It is the gap itself where what follows does not tell the states that were kept from those that were not;
        otherwise the gap may be smaller or larger, since a forward pass does not know what follows.
        """
        return -np.add.reduceat(np.log(self.kept), self.offsets[:-1])

    @property
    def sizes(self) -> Integers:
        """(n_positions,): states in each beam."""
        return np.diff(self.sets.ptr)

    @property
    def mean_size(self) -> float:
        """States a position."""
        return float(self.sizes.mean())

    @property
    def max_size(self) -> int:
        """States of the largest beam."""
        return int(self.sizes.max())

    def by_label(self, label_of: NDArray[np.int32] | None, n_labels: int) -> NDArray[np.float64]:
        """p(label) (n_positions, L): marginals of states summed by the label of each (``None``: they are labels)."""
        n, states = len(self.kept), self.sets.states
        labels = states if label_of is None else label_of[states]
        flat = np.repeat(np.arange(n), self.sizes) * n_labels + labels
        sums = np.bincount(flat, self.marginals, minlength=n * n_labels).astype(np.float64)
        return sums.reshape(n, n_labels)

    @property
    def statistics(self) -> BeamStatistics:
        """All figures together."""
        gap = float(-np.log(self.kept).sum())
        n_exact = int(self.exact.sum())
        return BeamStatistics(self.mean_size, self.max_size, gap, len(self.kept), n_exact, n_exact == len(self.exact))


class BeamPaths(NamedTuple):
    """Best labellings within beams."""

    labels: Integers  # (B, T), -1 in the padding; states, if transitions are sparse
    scores: NDArray[np.float64]  # (B,)
    mean_size: float  # states a position
    max_size: int
    exact: NDArray[np.bool_]  # (B,) every path was lost, and all states were used instead
