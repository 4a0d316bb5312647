"""How a Markov random field language model learns: from moments by L-BFGS, or from the text by pseudo-likelihood."""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Vocabulary
from trelliswork.data.moments import Moments, count_moments
from trelliswork.data.moments.files import Source
from trelliswork.data.moments.text import Callback as CountCallback
from trelliswork.data.moments.text import number_text
from trelliswork.errors import ValueRangeError
from trelliswork.inference.lifted import ChainCover
from trelliswork.inference.lifted.chain_cover import perron
from trelliswork.inference.lifted.exponentials import ExpTable
from trelliswork.learning.checkpoint import Checkpoint, fingerprint
from trelliswork.learning.lbfgs import FitReport, Step
from trelliswork.models.mrf import pseudo_likelihood as mrf_pseudo
from trelliswork.models.mrf.field import MRFField, compact
from trelliswork.models.mrf.objective import MomentObjective, NoUnaryObjective
from trelliswork.models.mrf.search import train
from trelliswork.models.mrf.shapes import Frequencies, LowRankShape, PairShape
from trelliswork.models.mrf.start import first_parameters

Array = NDArray[np.float64]
Form = Literal["UW", "URW", "full"]
Bound = Literal["chain", "star"]
Algorithm = Literal["lifted", "pseudo-likelihood"]
Callback = Callable[[Step, Any], bool | None]
MEANINGLESS: dict[str, tuple[str, ...]] = {
    "lifted": ("epochs", "rate", "batch_size"),
    "pseudo-likelihood": ("bound", "weights", "max_iter", "tol", "memory"),
}
ALL_PAIRS = 1_000_000  # scores of a full-rank table up to which every pair has one; beyond, the pairs of the text


@dataclass(frozen=True)
class Settings:
    """How it is to be learned; the parameters of ``MRFLanguageModel`` of the same names."""

    K: int
    rank: int
    form: Form
    unary: bool
    bias: bool
    bound: Bound
    weights: Any
    algorithm: Algorithm
    l2: float
    max_iter: int
    tol: float
    memory: int
    patience: int
    epochs: int
    rate: float
    batch_size: int
    seed: int

    def check(self, given: Collection[str] = ()) -> None:
        """Refuse what does not fit together, and what was ``given`` and has no meaning, rather than ignore it."""
        for name in ("K", "rank", "max_iter", "memory", "patience", "epochs", "batch_size"):
            check_count(name, getattr(self, name))
        for name in ("l2", "tol"):
            if not getattr(self, name) >= 0:
                raise ValueRangeError(f"{name} must be 0 or more, got {getattr(self, name)}.")
        if self.form not in ("UW", "URW", "full"):
            raise ValueRangeError(f"form must be 'UW', 'URW' or 'full', got {self.form!r}.")
        if self.bound not in ("chain", "star"):
            raise ValueRangeError(f"bound must be 'chain' or 'star', got {self.bound!r}.")
        if self.algorithm not in ("lifted", "pseudo-likelihood"):
            raise ValueRangeError(f"algorithm must be 'lifted' or 'pseudo-likelihood', got {self.algorithm!r}.")
        if self.algorithm == "pseudo-likelihood" and self.form != "UW":
            raise ValueRangeError("pseudo-likelihood learns tables of form='UW': choose that, or algorithm='lifted'.")
        for name in MEANINGLESS[self.algorithm]:
            if name in given:
                raise ValueRangeError(f"{name} has no meaning for algorithm={self.algorithm!r}: leave it out.")
        if self.form == "full" and "rank" in given:
            raise ValueRangeError("form='full' has a score for each pair and no rank: leave rank out.")
        self.cover()

    @property
    def free(self) -> bool:
        """Whether words have scores of their own: a bias of right words is as good as a unary."""
        return self.unary or self.bias

    def check_sources(self, X: Any, dev: Any, start: Any) -> None:
        """Refuse what pseudo-likelihood cannot learn from, before anything is counted."""
        if self.algorithm == "lifted":
            return
        if isinstance(X, Moments) or isinstance(dev, Moments):
            raise ValueRangeError("pseudo-likelihood needs the text: moments tell pairs only. Give files.")
        if start is not None:
            raise ValueRangeError("pseudo-likelihood begins with nothing else: leave start out.")

    def cover(self) -> Array:
        """rho of the distances."""
        if self.weights is None:
            return np.full(self.K, 1 / self.K if self.bound == "chain" else 1 / (self.K + 1))
        if self.bound == "star":
            raise ValueRangeError("the star cover has its own weights: leave weights out, or choose bound='chain'.")
        found = np.asarray(self.weights, np.float64)
        if found.shape != (self.K,) or not (found > 0).all() or found.sum() > 1 + 1e-9:
            raise ValueRangeError(f"weights must be K={self.K} positive numbers, at most 1 together: {self.weights}.")
        return found


def moments_of(
    X: Source | Moments,
    K: int,
    vocabulary: Vocabulary | None,
    min_count: int,
    max_words: int | None,
    counting: CountCallback | None,
) -> Moments:
    """Moments of a text, with a vocabulary or with its own; moments at hand must fit K and the vocabulary."""
    if not isinstance(X, Moments):
        if vocabulary is not None:
            return count_moments(X, K, vocabulary=vocabulary, callback=counting)
        return count_moments(X, K, min_count=min_count, max_words=max_words, callback=counting)
    if X.K != K:
        raise ValueRangeError(f"moments of K={K} are wanted, got K={X.K}: count again, or set K={X.K}.")
    if vocabulary is None and (min_count > 1 or max_words is not None):
        raise ValueRangeError("the moments say which words there are: leave min_count and max_words out.")
    if vocabulary is not None and X.vocabulary.items != vocabulary.items:
        raise ValueRangeError("the moments have another vocabulary: count them with that of training.")
    return X


def learn_lifted(
    settings: Settings,
    moments: Moments,
    dev: Moments | None,
    *,
    start: MRFField | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
) -> tuple[MRFField, FitReport]:
    """Learn from moments."""
    frequencies, C = Frequencies.of(moments), len(moments.vocabulary)
    shape: LowRankShape | PairShape
    if settings.form == "full":
        shape = PairShape(patterns(moments))
    else:
        shape = LowRankShape(C, settings.K, settings.rank, settings.form)
    weights = settings.cover()
    kind = MomentObjective if settings.free else NoUnaryObjective
    objective = kind(shape, frequencies, weights, l2=settings.l2)
    parameters = first_parameters(shape, frequencies, seed=settings.seed, unary=settings.free, rest=objective.rest)
    if start is not None:
        if start.has_unary and not settings.free:
            raise ValueRangeError("start has a unary or a bias, this model has none: set unary=True, or start anew.")
        take_over(shape, parameters, start)
    held = None
    if checkpoint is not None:
        mark = fingerprint(
            # A run may go on to more iterations than it was begun with.
            {"settings": str(replace(settings, max_iter=1)), "start": start is not None},
            *(m.data for m in moments.pairs),
            parameters,
            None if dev is None else dev.unary,
        )
        held = Checkpoint(checkpoint, mark)
    learned = train(
        objective,
        parameters,
        dev=None if dev is None else Frequencies.of(dev),
        patience=settings.patience,
        max_iter=settings.max_iter,
        tol=settings.tol,
        memory=settings.memory,
        checkpoint=held,
        callback=callback,
    )
    factors = factors_of(shape, learned.parameters, weights)
    log_unary, unaries, log_z = objective.rho @ learned.unaries, learned.unaries, 0.0
    if not settings.free:  # the weighted sum is minus the bound, for every word
        log_z = float(-log_unary.mean())
        log_unary, unaries = np.zeros(C), unaries - log_unary
    field = MRFField(settings.form, log_unary, factors, weights, unaries, log_z, moments.lengths)
    return field.biased(settings.unary) if settings.bias else field, learned.report


def patterns(moments: Moments) -> tuple[Any, ...]:
    """The pairs of a full-rank model: all of a small vocabulary, those of the text of a large one."""
    from scipy.sparse import csr_matrix

    C = len(moments.vocabulary)
    if moments.K * C * C > ALL_PAIRS:
        return moments.pairs
    everything = csr_matrix(np.ones((C, C)))
    return tuple(everything for _ in range(moments.K))


def factors_of(shape: LowRankShape | PairShape, parameters: Array, weights: Array) -> dict[str, NDArray[Any]]:
    """The field's tables theta^l = rho_l vartheta^l as its factors."""
    if isinstance(shape, PairShape):
        values, _ = shape.parts(parameters)
        found: dict[str, NDArray[Any]] = {}
        for k, pattern in enumerate(shape.patterns, start=1):
            found |= {f"{k}.values": weights[k - 1] * values[k - 1], f"{k}.columns": pattern.indices}
            found |= {f"{k}.rows": pattern.indptr}
        return found
    u, w, r, _ = shape.parts(parameters)
    C = shape.n_words
    if r is None:
        return {"left": compact(u, C), "right": compact(weights[:, None, None] * w, C)}
    return {"left": compact(u, C), "right": compact(w, C), "middle": compact(weights[:, None, None] * r, C)}


def take_over(shape: LowRankShape | PairShape, parameters: Array, start: MRFField) -> None:
    """Begin with the tables of another model at its distances; further ones with none, and the first one's margin."""
    if not isinstance(shape, LowRankShape) or shape.form != "UW" or start.form != "UW":
        raise ValueRangeError("start: only models of form='UW' begin with another's tables.")
    u, w, _, b = shape.parts(parameters)
    if start.factors["left"].shape != u.shape or start.K > shape.K:
        raise ValueRangeError(
            f"start has {start.n_words} words, rank {start.factors['left'].shape[1]} and K={start.K}: the same words "
            f"and rank as here ({shape.n_words}, {shape.rank}) and at most K={shape.K} are wanted."
        )
    u[:] = start.factors["left"]
    w[:] = 0.0
    for k in range(start.K):
        w[k] = start.factors["right"][k] / start.weights[k]
        # The unary of a chain is b - log Z, and Z its right vector.
        rho = float(start.weights[k])
        root = perron(ExpTable(start.tables[k], 1 / rho), start.unaries[k + 1])
        b[k] = start.unaries[k + 1] + root.log_right
        if start.bias is not None:
            b[k] += start.bias / rho
        if k == 0:
            b[start.K :] = root.log_margin


def learn_pseudo(
    settings: Settings,
    source: Source,
    moments: Moments,
    dev: Source | None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
) -> tuple[MRFField, FitReport]:
    """Learn from the text; then bound log Z by a chain cover."""
    K, C = settings.K, len(moments.vocabulary)
    text, other = stream(source, moments, K), None if dev is None else stream(dev, moments, K)
    frequencies = Frequencies.of(moments)
    shape = LowRankShape(C, K, settings.rank)
    start = first_parameters(shape, frequencies, seed=settings.seed, unary=settings.free)
    u, w, _, b = shape.parts(start)
    half = np.sqrt(0.5)  # both sides speak of a word: each begins with half of the table
    field = mrf_pseudo.Field(*(torch.from_numpy(np.array(a, np.float32)) for a in (b[0], half * u, half * w)))
    found, report = mrf_pseudo.train(
        field,
        text,
        dev=other,
        rate=settings.rate,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        patience=settings.patience,
        l2=settings.l2,
        unary=settings.free,
        seed=settings.seed,
        checkpoint=None
        if checkpoint is None
        else Checkpoint(checkpoint, fingerprint({"settings": str(settings)}, text, other)),
        callback=None if callback is None else (lambda step: callback(step, None)),
    )
    unary = found.unary.double().numpy()
    factors = {"left": compact(found.left.numpy(), C), "right": compact(found.right.numpy(), C)}
    bare = MRFField("UW", unary, factors, np.full(K, 1 / K), np.tile(unary, (K + 1, 1)), 0.0, moments.lengths)
    cover = ChainCover(unary, bare.tables).tighten(max_iter=15, optimise_weights=K > 1)
    learned = MRFField("UW", unary, factors, cover.weights, cover.unaries, cover.value, moments.lengths)
    return learned.biased(settings.unary) if settings.bias else learned, report


def stream(source: Source, moments: Moments, K: int) -> NDArray[np.int64]:
    """A text as padded ids."""
    blocks = list(number_text(source, vocabulary=moments.vocabulary).blocks)
    ids = np.concatenate(blocks).astype(np.int64) if blocks else np.zeros(0, np.int64)
    return mrf_pseudo.padded_stream(ids, K)
