"""Training of a Markov random field language model: L-BFGS on moments, or pseudo-likelihood on the text."""

import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.ids import Callback as CountCallback
from trelliswork.data.ids import Source, stream_ids
from trelliswork.data.moments import Moments, count_moments
from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.inference.lifted import ChainCover
from trelliswork.inference.lifted.chain_cover import perron
from trelliswork.inference.lifted.exponentials import ExpTable
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import fingerprint, with_prefix
from trelliswork.learning.distributed import one_process
from trelliswork.learning.lbfgs import minimize
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Development, Saved, Watch, open_checkpoint
from trelliswork.models.base import watch_for
from trelliswork.models.mrf import pseudo_likelihood
from trelliswork.models.mrf.field import MRFField, compact
from trelliswork.models.mrf.objective import MomentObjective, NoUnaryObjective
from trelliswork.models.mrf.shapes import Frequencies, LowRankShape, PairShape, Shape
from trelliswork.models.mrf.start import first_parameters

if TYPE_CHECKING:
    from trelliswork.models.mrf import MRFLanguageModel

Array = NDArray[np.float64]
Form = Literal["UW", "URW", "full"]
Bound = Literal["chain", "star"]
Algorithm = Literal["lifted", "spectral", "pseudo-likelihood"]
NO_EFFECT = {
    "lifted": ["learning_rate", "batch_size"],
    "spectral": ["form", "unary", "bound", "l2", "max_iter", "tol", "patience", "learning_rate", "batch_size"],
    "pseudo-likelihood": ["bound", "cover_weights", "tol"],
}
WORD_LIMITS = {"min_count": 1, "max_words": None, "unknown": "symbol"}  # what chooses the words, with defaults
ITERATIONS = {"lifted": 300, "spectral": 1, "pseudo-likelihood": 5}  # defaults of max_iter: L-BFGS iterations, epochs
HISTORY_SIZE = 10  # of L-BFGS: its vectors are small beside an evaluation
PERIOD = 5  # L-BFGS iterations over which a decrease of the value is judged
ALL_PAIRS = 1_000_000  # maximum size of full-rank tables with a score for every pair; beyond, pairs of the text only


def check(model: "MRFLanguageModel", X: Any, dev: Any, start: Any, checkpoint: Any) -> None:
    """Raise an error for parameters and data that exclude each other or have no effect, before anything is counted."""
    algorithm, given = model.algorithm, given_parameters(model)
    if algorithm == "pseudo-likelihood" and model.form != "UW":
        raise ValueRangeError("algorithm='pseudo-likelihood' needs form='UW': choose that, or algorithm='lifted'.")
    for name in NO_EFFECT[algorithm]:
        if name in given:
            raise ValueRangeError(f"{name} has no effect with algorithm={algorithm!r}: leave it out.")
    if model.form == "full" and "rank" in given:
        raise ValueRangeError("form='full' has no rank: leave rank out.")
    cover(model)
    if algorithm == "spectral":
        for name, value in (("start", start), ("checkpoint", checkpoint)):
            if value is not None:
                raise ValueRangeError(f"algorithm='spectral' has no iterations: leave {name} out.")
    if algorithm == "pseudo-likelihood":
        if isinstance(X, Moments) or isinstance(dev, Moments):
            raise ValueRangeError("pseudo-likelihood needs the text, not moments: pass files or sentences.")
        if start is not None:
            raise ValueRangeError("pseudo-likelihood cannot start from another model: leave start out.")
        one_process("by pseudo-likelihood")


def given_parameters(model: "MRFLanguageModel") -> set[str]:
    """Return the names of the parameters that differ from their defaults."""
    plain = model._values("cover_weights")  # an array does not compare
    given = {name for name, value in plain.items() if value != model._declared[name].default}
    return given if model.cover_weights is None else given | {"cover_weights"}


def iterations(model: "MRFLanguageModel") -> int:
    """Return the maximum number of L-BFGS iterations or epochs."""
    return model.max_iter or ITERATIONS[model.algorithm]


def mark(model: "MRFLanguageModel") -> dict[str, Any]:
    """Return what a checkpoint must share; the schedule of pseudo-likelihood depends on the number of epochs."""
    shared = {name: str(value) for name, value in model._values("max_iter", *WORD_LIMITS).items()}
    return shared if model.algorithm == "lifted" else shared | {"max_iter": iterations(model)}


def cover(model: "MRFLanguageModel") -> Array:
    """Return rho of the distances."""
    K, given = model.window, model.cover_weights
    if given is None:
        return np.full(K, 1 / K if model.bound == "chain" else 1 / (K + 1))
    if model.bound == "star":
        raise ValueRangeError("the star cover has fixed weights: leave cover_weights out, or choose bound='chain'.")
    rho = np.asarray(given, np.float64)
    if rho.shape != (K,) or not (rho > 0).all() or rho.sum() > 1 + 1e-9:
        raise ValueRangeError(f"cover_weights must be window={K} positive numbers that sum to at most 1, got {given}.")
    return rho


def moments_of(
    model: "MRFLanguageModel", X: Source | Moments, vocabulary: Vocabulary | None, counting: CountCallback | None
) -> Moments:
    """Return the moments of a text, with a given or its own vocabulary; given moments must match K and vocabulary."""
    K, limits = model.window, {name: getattr(model, name) for name in WORD_LIMITS}
    if not isinstance(X, Moments):
        if vocabulary is not None:
            return count_moments(X, K, vocabulary=vocabulary, callback=counting)
        return count_moments(X, K, callback=counting, **limits)
    if X.K != K:
        raise ValueRangeError(f"expected moments with K={K}, got K={X.K}: count again, or set window={X.K}.")
    if vocabulary is None and limits != WORD_LIMITS:
        raise ValueRangeError("the moments fix the vocabulary: leave min_count, max_words and unknown out.")
    if vocabulary is not None and X.vocabulary.items != vocabulary.items:
        raise ValueRangeError("the moments have another vocabulary: count them with the vocabulary of training.")
    return X


def learn_lifted(
    model: "MRFLanguageModel",
    moments: Moments,
    dev: Moments | None,
    *,
    start: MRFField | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
    max_minutes: float | None = None,
) -> tuple[MRFField, FitReport]:
    """Train on moments."""
    frequencies, C = Frequencies.of(moments), len(moments.vocabulary)
    shape: Shape
    if model.form == "full":
        shape = PairShape(patterns(moments))
    else:
        shape = LowRankShape(C, model.window, model.rank, model.form)
    weights = cover(model)
    kind = MomentObjective if model.unary else NoUnaryObjective
    objective = kind(shape, frequencies, weights, l2=model.l2)
    first: Any = {"seed": model.seed, "unary": model.unary, "rest": objective.rest}
    parameters = whole.of_first(lambda: {"all": first_parameters(shape, frequencies, **first)})["all"]
    if start is not None:
        if start.has_unary and not model.unary:
            raise ValueRangeError("start has a unary, this model has none: set unary=True, or drop start.")
        take_over(shape, parameters, start)
    file = open_checkpoint(
        checkpoint,
        lambda: fingerprint(
            mark(model) | {"start": start is not None},
            *(m.data for m in moments.pairs),
            parameters,
            None if dev is None else dev.unary,
        ),
    )
    development = None
    options: dict[str, Any] = {"tol": model.tol, "history_size": HISTORY_SIZE, "period": PERIOD}
    if dev is not None:
        other = Frequencies.of(dev)
        development = Development("bound", lambda p: objective.bound(p["parameters"], p["unaries"], other))
        options["snapshot"] = partial(snapshot, objective)
    limits = {"patience": model.patience, "max_minutes": max_minutes}
    watch = BoundWatch(objective, development, checkpoint=file, callback=callback, **limits)
    with warnings.catch_warnings():
        if dev is not None:
            warnings.simplefilter("ignore", ConvergenceWarning)  # the development data decide
        learned, report = minimize(
            objective, parameters * objective.scale, watch, max_iter=iterations(model), **options
        )
    if dev is None:
        learned = snapshot(objective, learned["weights"])
    elif watch.best_iteration:
        early = report.history[-1].iteration - watch.best_iteration >= model.patience
        report.converged = report.converged or (early and not watch.interrupted)
        report.value = next(step.value for step in report.history if step.iteration == watch.best_iteration)
    factors = factors_of(shape, learned["parameters"], weights)
    unaries, log_z = learned["unaries"], 0.0
    log_unary = objective.rho @ unaries
    if not model.unary:  # the weighted sum is minus the bound, for every word
        log_z = float(-log_unary.mean())
        log_unary, unaries = np.zeros(C), unaries - log_unary
    field = MRFField(model.form, log_unary, factors, weights, unaries, log_z, moments.lengths)
    return field, report


def snapshot(objective: MomentObjective, weights: Array) -> dict[str, NDArray[Any]]:
    """Return the parameters at L-BFGS's weights, and the unaries that belong to them."""
    if objective.unaries_at is not weights:  # the line search went further and came back
        objective(weights)
    assert objective.unaries is not None
    return {"parameters": weights / objective.scale, "unaries": objective.unaries}


class BoundWatch(Watch):
    """A watch whose checkpoints also have the state of the objective."""

    def __init__(self, objective: MomentObjective, development: Development | None, **options: Any) -> None:
        super().__init__(development, **options)
        self._objective = objective

    def save(self, state: Callable[[], Saved]) -> None:
        """Write the checkpoint now."""
        plain, arrays = state()
        extra = {f"objective.{name}": array for name, array in self._objective.state().items()}
        if self._objective.unaries_at is arrays["weights"]:
            assert self._objective.unaries is not None
            extra["unaries"] = self._objective.unaries
        super().save(lambda: (plain, arrays | extra))

    def resume(self) -> Saved | None:
        """Return the optimizer's state in the checkpoint, if there is one, and restore the objective."""
        saved = super().resume()
        if saved is not None:
            self._objective.restore(with_prefix(saved[1], "objective."))
            if "unaries" in saved[1]:  # for a run that was killed after its last iteration
                self._objective.unaries, self._objective.unaries_at = saved[1]["unaries"], saved[1]["weights"]
        return saved


def patterns(moments: Moments) -> tuple[Any, ...]:
    """Return the pairs of a full-rank model: all pairs of a small vocabulary, else those of the text."""
    from scipy.sparse import csr_matrix

    C = len(moments.vocabulary)
    if moments.K * C * C > ALL_PAIRS:
        return moments.pairs
    everything = csr_matrix(np.ones((C, C)))
    return tuple(everything for _ in range(moments.K))


def factors_of(shape: Shape, parameters: Array, weights: Array) -> dict[str, NDArray[Any]]:
    """Return the tables theta^l = rho_l vartheta^l as factors of the field."""
    if isinstance(shape, PairShape):
        values, _ = shape.parts(parameters)
        factors: dict[str, NDArray[Any]] = {}
        for k, pattern in enumerate(shape.patterns, start=1):
            factors |= {f"{k}.values": weights[k - 1] * values[k - 1], f"{k}.columns": pattern.indices}
            factors |= {f"{k}.rows": pattern.indptr}
        return factors
    u, w, r, _ = shape.parts(parameters)
    C = shape.n_words
    if r is None:
        return {"left": compact(u, C), "right": compact(weights[:, None, None] * w, C)}
    return {"left": compact(u, C), "right": compact(w, C), "middle": compact(weights[:, None, None] * r, C)}


def take_over(shape: Shape, parameters: Array, start: MRFField) -> None:
    """Start from the tables of another model; further distances start from zero tables and the first margin."""
    if not isinstance(shape, LowRankShape) or shape.form != "UW" or start.form != "UW":
        raise ValueRangeError("start needs form='UW' in both models.")
    u, w, _, b = shape.parts(parameters)
    if start.factors["left"].shape != u.shape or start.K > shape.K:
        raise ValueRangeError(
            f"start has {start.n_words} words, rank {start.factors['left'].shape[1]} and window {start.K}: expected "
            f"the same words and rank as here ({shape.n_words}, {shape.rank}) and a window of at most {shape.K}."
        )
    u[:] = start.factors["left"]
    w[:] = 0.0
    for k in range(start.K):
        w[k] = start.factors["right"][k] / start.weights[k]
        # The unary of a chain is b - log Z, and Z its right vector.
        rho = float(start.weights[k])
        root = perron(ExpTable(start.tables[k], 1 / rho), start.unaries[k + 1])
        b[k] = start.unaries[k + 1] + root.log_right
        if k == 0:
            b[start.K :] = root.log_margin


def learn_pseudo(
    model: "MRFLanguageModel",
    source: Source,
    moments: Moments,
    dev: Source | None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
    max_minutes: float | None = None,
) -> tuple[MRFField, FitReport]:
    """Train on the text; then bound log Z by a chain cover."""
    K, C = model.window, len(moments.vocabulary)
    text, other = stream(source, moments, K), None if dev is None else stream(dev, moments, K)
    frequencies = Frequencies.of(moments)
    shape = LowRankShape(C, K, model.rank)
    start = first_parameters(shape, frequencies, seed=model.seed, unary=model.unary)
    u, w, _, b = shape.parts(start)
    half = np.sqrt(0.5)  # both sides score a word: each starts with half of the table
    field = pseudo_likelihood.Field(*(torch.from_numpy(np.array(a, np.float32)) for a in (b[0], half * u, half * w)))
    development = None
    if other is not None:
        development = Development("log-probability per word", lambda _: pseudo_likelihood.mean_log_p(field, other))
    watch = watch_for(
        model, development, checkpoint, lambda: fingerprint(mark(model), text, other), callback, max_minutes
    )
    options = {name: getattr(model, name) for name in ("learning_rate", "batch_size", "l2", "seed")}
    report = pseudo_likelihood.train(field, text, watch, max_iter=iterations(model), unary=model.unary, **options)
    unary = field.unary.double().numpy()
    factors = {"left": compact(field.left.numpy(), C), "right": compact(field.right.numpy(), C)}
    bare = MRFField("UW", unary, factors, np.full(K, 1 / K), np.tile(unary, (K + 1, 1)), 0.0, moments.lengths)
    found = ChainCover(unary, bare.tables).tighten(max_iter=15, optimize_weights=K > 1)
    return MRFField("UW", unary, factors, found.weights, found.unaries, found.value, moments.lengths), report


def stream(source: Source, moments: Moments, K: int) -> NDArray[np.int64]:
    """Return a text as padded ids."""
    blocks = list(stream_ids(source, vocabulary=moments.vocabulary).blocks)
    ids = np.concatenate(blocks).astype(np.int64) if blocks else np.zeros(0, np.int64)
    return pseudo_likelihood.padded_stream(ids, K)
