"""Queries of a Markov random field: words for blanks, samples, likelihood estimates, embeddings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import atomic_write, shorten
from trelliswork.errors import DataError
from trelliswork.inference.lifted.ais import annealed_log_z
from trelliswork.inference.lifted.sentences import ChainSampler, blanket, gibbs_sweep, without_pad
from trelliswork.models.mrf.field import MRFField

Ids = NDArray[np.int64]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """Estimate of the log-likelihood of a text.

    Attributes
    ----------
    total : float
        In nats.
    per_token : float
        Per token, with one end per sentence.
    standard_error : float
        Standard error of ``per_token`` from the spread of the samples' weights, without the interpolation error.
    effective : float
        Smallest effective sample size of all lengths.
    kind : "estimate"
    """

    total: float
    per_token: float
    standard_error: float
    effective: float
    kind: str = "estimate"


def estimate(
    field: MRFField, sentences: list[Ids], n_lengths: int, n_samples: int, n_steps: int, seed: int
) -> Estimate:
    """Estimate log Z at a few lengths, interpolate its distance from the bound, and score the sentences."""
    lengths = np.array([len(s) for s in sentences])
    counts = np.bincount(lengths)
    longest = len(counts) - 1
    # Quantiles of the lengths at even steps: from the shortest to the longest if there are two or more.
    places = np.quantile(lengths[lengths > 0], np.linspace(0, 1, n_lengths)) if longest else np.zeros(0)
    chosen = np.unique(np.round(places).astype(int))
    bound = field.log_z(longest)
    scale = 1 / float(field.weights[0])
    estimates = [
        annealed_log_z(
            field.log_unary,
            field.tables,
            int(length),
            base_unary=field.unaries[1],
            base_scale=scale,
            n_samples=n_samples,
            n_steps=n_steps,
            seed=seed + k,
        )
        for k, length in enumerate(chosen)
    ]
    lower = np.array([bound[length] - one.value for length, one in zip(chosen, estimates, strict=True)])
    shares = np.array([np.interp(np.arange(longest + 1), chosen, unit) for unit in np.eye(len(chosen))])
    log_z = bound.copy()
    log_z[1:] -= (lower @ shares)[1:] if len(chosen) else 0.0
    total = float(field.log_likelihoods(sentences, log_z).sum())
    # Each estimate is used for sentences near its length; estimates are independent.
    errors = (shares[:, 1:] @ counts[1:]) * np.array([one.standard_error for one in estimates])
    n_events = int(lengths.sum()) + len(sentences)
    return Estimate(
        total,
        total / n_events,
        float(np.sqrt((errors**2).sum())) / n_events,
        min((one.effective for one in estimates), default=float(n_samples)),
    )


def blank_words(field: MRFField, before: Ids, behind: Ids) -> Array:
    """Return p(word | the words before and after it) for all words (C,); the pad's is 0."""
    K = field.K
    row = np.zeros((1, 2 * K + 1), np.int64)
    near = before[-K:]
    row[0, K - len(near) : K] = near
    near = behind[:K]
    row[0, K + 1 : K + 1 + len(near)] = near
    scores = blanket(field.tables, row, K)[0].double().numpy() + without_pad(field.log_unary)
    p = np.exp(scores - scores.max())
    return p / p.sum()


def random_sentences(field: MRFField, n: int, seed: int | None, max_length: int, sweeps: int) -> list[list[int]]:
    """Draw lengths from tau, then words: exactly if K = 1, else by Gibbs sampling from the chain of distance 1."""
    rng = np.random.default_rng(seed)
    log_tau = field.log_tau(max_length)
    tau = np.exp(log_tau)
    tau[-1] += max(0.0, 1 - tau.sum())  # longer sentences are cut
    lengths = rng.choice(len(tau), n, p=tau / tau.sum())
    sentences: list[list[int]] = [[] for _ in range(n)]
    longest = int(lengths.max())
    if longest == 0:
        return sentences
    one_chain = field.K == 1
    unary = field.log_unary if one_chain else field.unaries[1]
    table = field.tables[0] if one_chain else field.tables[0].scaled(1 / float(field.weights[0]))
    sampler = ChainSampler(unary, table, longest)
    for length in np.unique(lengths[lengths > 0]).tolist():
        where = np.flatnonzero(lengths == length)
        words = sampler.draw(rng.random((len(where), length)))
        if not one_chain:
            for _ in range(sweeps):
                gibbs_sweep(field.log_unary, field.tables, words, rng.random(words.shape))
        for i, row in zip(where.tolist(), words.tolist(), strict=True):
            sentences[i] = row
    return sentences


def canonical_vectors(field: MRFField, scaling: float) -> NDArray[Any]:
    """Return the left singular vectors (C, D) of all tables side by side, times singular values to a power.

    The columns have the mean square of the singular values to that power. Time O(C D^2 K), no table is computed.
    """
    left, right = field.factors["left"].astype(np.float64), field.factors["right"].astype(np.float64)
    if field.form == "URW":
        inner = right.T @ right
        context = sum(r.astype(np.float64) @ inner @ r.T for r in field.factors["middle"])
    else:
        context = sum(w.T @ w for w in right)
    base, triangle = np.linalg.qr(left)
    values, vectors = np.linalg.eigh(context)
    turn, sizes, _ = np.linalg.svd(triangle @ (vectors * np.sqrt(np.maximum(values, 0.0))))
    powers, some = np.zeros_like(sizes), sizes > 1e-12 * sizes.max()  # dimensions without scores are zero
    powers[some] = sizes[some] ** scaling
    return np.asarray(base @ turn * powers * np.sqrt(len(left)), field.factors["left"].dtype)


def nearest(embeddings: NDArray[Any], word: int, n: int) -> list[tuple[int, float]]:
    """Return the n other words with the largest cosines, without the pad (0)."""
    vectors = embeddings.astype(np.float64)
    sizes = np.maximum(np.linalg.norm(vectors, axis=1), 1e-30)
    cosines = vectors @ vectors[word] / (sizes * sizes[word])
    cosines[[0, word]] = -np.inf
    best = np.argsort(-cosines, kind="stable")[: min(n, len(cosines) - 2)]
    return [(int(i), float(cosines[i])) for i in best]


def write_word2vec(path: str | Path, embeddings: NDArray[Any], words: list[str]) -> None:
    """Write word2vec's text format; words with white space are an error."""
    wrong = next((word for word in words if not word or not set(word).isdisjoint(" \t\n\r\v\f")), None)
    if wrong is not None:
        raise DataError(
            f"word2vec's text format needs words without white space, got {shorten(wrong)}: "
            "replace it, for example by '_', in the training text."
        )
    with atomic_write(path) as file:
        file.write(f"{len(words)} {embeddings.shape[1]}\n")
        for word, vector in zip(words, embeddings.tolist(), strict=True):
            file.write(word + " " + " ".join(f"{v:.6g}" for v in vector) + "\n")
