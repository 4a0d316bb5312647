"""Second-order dependency trees by belief propagation: errors, and cost compared with first order."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.running import best_time, timed
from experiments.tables import Curve, Say, Table
from trelliswork.compute import threads
from trelliswork.data import bundled
from trelliswork.inference.tree import eisner, second_order, tree_potentials
from trelliswork.inference.tree.potentials import is_tree
from trelliswork.models import DependencyParser
from trelliswork.models.parser.second_order import Propagation

Doubles = NDArray[np.float64]
NO_FIGURE = "the paper has no figure"
ORDERS = ("first", "second")


class Candidates(NamedTuple):
    """Sentences of one length with scores of all arcs, and the candidate arcs after pruning."""

    log_arc: Doubles  # (B, n+1, n+1): axes are head and word; node 0 is the root
    parts: second_order.Parts
    arc_scores: Doubles  # (A,)
    sibling_scores: Doubles  # (S,)
    grandparent_scores: Doubles  # (G,)


def candidates(
    n_words: int, n_sentences: int, rng: np.random.Generator, *, n_heads: int | None = None, strength: float = 0.5
) -> Candidates:
    """Draw sentences with normal arc scores minus log distance, and normal part scores times ``strength``.

    Each word keeps its ``n_heads`` best heads (default: all), including its neighbors, so that a tree exists.
    """
    node = np.arange(n_words + 1)
    distance = np.abs(node[:, None] - node)
    log_arc = rng.normal(size=(n_sentences, n_words + 1, n_words + 1)) - np.log(np.maximum(distance, 1))
    order = np.where(distance == 1, np.inf, log_arc)
    order[:, node, node] = -np.inf
    place = np.argsort(np.argsort(-order, axis=1, kind="stable"), axis=1, kind="stable")
    keep = place < min(n_heads or n_words, n_words)
    keep[:, :, 0] = False
    _, heads, modifiers = np.nonzero(keep)
    ends = np.concatenate([[0], np.cumsum(keep.sum(axis=(1, 2)))])
    parts = second_order.parts(np.full(n_sentences, n_words), ends, heads, modifiers)
    scores = (strength * rng.normal(size=size) for size in (len(parts.sibling_heads), len(parts.grandparent_upper)))
    return Candidates(log_arc, parts, log_arc[keep], *scores)


class Truth(NamedTuple):
    """log Z (B,) and the marginals of arcs (A,) by enumeration."""

    log_partition: Doubles
    arcs: Doubles


def enumerate_trees(given: Candidates, *, projective: bool = True, single_root: bool = True) -> Truth:
    """Sum over all trees of sentences of one length, with all arcs as candidates.

    Time and memory O((n+1)^n): up to about 6 words.
    """
    parts = given.parts
    n, B = int(parts.n_words[0]), parts.n_sentences
    per = [ends[1] for ends in (parts.arc_ptr, parts.sibling_ptr, parts.grandparent_ptr)]
    if len(parts.heads) != B * n * n:
        raise AssertionError("all arcs must be candidates, so that every sentence has the same parts")
    number = {(int(parts.heads[a]), int(parts.modifiers[a])): a for a in range(per[0])}
    rows = [
        _parts_of(parts, [number[h, d] for d, h in enumerate(heads, 1)], per)
        for heads in product(range(n + 1), repeat=n)
        if is_tree(np.array(heads), projective=projective, single_root=single_root)
    ]
    scores = np.zeros((len(rows), B))
    indicators = [np.array(column, np.float64) for column in zip(*rows, strict=True)]
    for on, values in zip(indicators, (given.arc_scores, given.sibling_scores, given.grandparent_scores), strict=True):
        scores += on @ values.reshape(B, -1).T
    top = scores.max(axis=0)
    weights = np.exp(scores - top)
    return Truth(top + np.log(weights.sum(axis=0)), ((weights / weights.sum(axis=0)).T @ indicators[0]).reshape(-1))


def _parts_of(parts: second_order.Parts, arcs: list[int], per: list[int]) -> list[NDArray[np.bool_]]:
    """Return masks of the arcs, siblings and grandparents of a sentence that a tree has."""
    on = np.zeros(per[0], np.bool_)
    on[arcs] = True
    siblings = np.zeros(per[1], np.bool_)
    for begin, step, size, part in parts.sides[: parts.side_ptr[1]]:
        steps = [0, *(j for j in range(1, size + 1) if on[begin + step * (j - 1)]), size + 1]
        for i, j in pairwise(steps):
            siblings[part + j * (j - 1) // 2 + i] = True
    return [on, siblings, on[parts.grandparent_upper[: per[2]]] & on[parts.grandparent_lower[: per[2]]]]


def bp_accuracy(
    *,
    lengths: Sequence[int] = (3, 4, 5),
    strengths: Sequence[float] = (0.0, 0.25, 0.5, 1.0, 2.0),
    n_models: int = 200,
    projective: bool = True,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Measure errors of belief propagation against enumeration, on random second-order models.

    There are ``n_models`` for each length in words and each strength, the standard deviation of the scores of siblings
    and grandparents; 0 is the tree factor alone, which is exact.
    """
    table = Table(
        f"Belief propagation against enumeration, {'projective' if projective else 'all'} trees",
        ["words", "strength", "iterations", "converged %", "arcs: mean", "arcs: max", "log Z: mean", "log Z: max"],
        notes=[
            f"Absolute errors of the beliefs of arcs and of log Z, {n_models} random models each: normal arc "
            "scores minus log distance, normal scores of siblings and grandparents times the strength.",
            "iterations: 5 is the default of the parser, where the tree factor takes part in every other one; 500, "
            "with damping 0.3, is the fixed point.",
        ],
        axes=("strength", "mean error of an arc's belief"),
    )
    rng = np.random.default_rng(seed)
    for n in lengths:
        curve = Curve(f"{n} words")
        for strength in strengths:
            given = candidates(n, n_models, rng, strength=strength)
            truth = enumerate_trees(given, projective=projective)
            for max_iter, tolerance, damping in ((5, 1e-4, 0.0), (500, 1e-10, 0.3)):
                options: Any = {"max_iter": max_iter, "tolerance": tolerance, "damping": damping}
                beliefs, seconds = timed(partial(second_order.infer, *given[1:], projective=projective, **options))
                arcs, log_z = np.abs(beliefs.arcs - truth.arcs), np.abs(beliefs.log_partition - truth.log_partition)
                errors = [float(value) for value in (arcs.mean(), arcs.max(), log_z.mean(), log_z.max())]
                table.rows.append([n, strength, max_iter, 100 * float(beliefs.converged.mean()), *errors])
                row = f"{n} words, strength {strength:g}, {max_iter} iterations"
                names = ("mean error of arcs", "largest error of arcs", "mean error of log Z", "largest error of log Z")
                for name, error in zip(names, errors, strict=True):
                    table.add(f"{row}: {name}", None, error, "absolute", seconds, NO_FIGURE)
            curve.add(strength, float(arcs.mean()))
            say(f"{n} words, strength {strength:g}: mean error of an arc {arcs.mean():.2g}")
        table.curves.append(curve)
    return table


def bp_cost(
    *,
    lengths: Sequence[int] = (10, 20, 40, 80),
    n_heads: int = 8,
    n_sentences: int = 32,
    n_repeats: int = 15,
    max_iter: int = Propagation.max_iter,
    tree_every: int = Propagation.tree_every,
    n_train: int = 400,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Measure the time of second-order belief propagation and of whole parses relative to first order.

    Both compute log Z and marginals of a batch from scores: first order of all n^2 arcs (`eisner`), second order of
    ``n_heads`` candidate heads per word, by exactly ``max_iter`` iterations, with all siblings and grandparents. A
    whole parse goes from words to heads, by small parsers of both orders trained on the first ``n_train`` sentences of
    the bundled corpus: scoring, pruning and, with order 2, belief propagation on the remaining arcs.
    """
    table = Table(
        f"Second order by belief propagation against first order, {n_heads} candidate heads per word",
        ["words", *(f"{order} order ms" for order in ORDERS), "ratio", *(f"growth of {order}" for order in ORDERS),
         "whole parse: ratio"],
        notes=[
            f"Processor time per sentence in ms, one thread, {n_sentences} at once, best of {n_repeats} runs; "
            "without scoring. First order: Eisner's inside-outside on all arcs. Second order: "
            f"{max_iter} iterations, the tree factor in every {tree_every} and at the end.",
            "growth: the exponent k of n^k from the row above to this one.",
            "whole parse: ratio of the times from words to heads of order 2 and order 1, with scoring and pruning, "
            f"by parsers trained on {n_train} sentences of the bundled corpus, on its words cut into these lengths.",
        ],
        axes=("words", "ms per sentence"),
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    parsers, stream = _parsers(n_train, seed)
    curves = [Curve(f"{order} order") for order in ORDERS]
    for n in lengths:
        given = candidates(n, n_sentences, rng, n_heads=n_heads)
        first = partial(eisner.expectations, tree_potentials(given.log_arc))
        second = partial(second_order.infer, *given[1:], max_iter=max_iter, tree_every=tree_every, tolerance=0.0)
        sentences = [[stream[(b * n + i) % len(stream)] for i in range(n)] for b in range(n_sentences)]
        with threads.num_threads(1):
            times = [_milliseconds(work, n_repeats) / n_sentences for work in (first, second)]
            whole = [_milliseconds(partial(p.predict, sentences), max(n_repeats // 3, 1)) for p in parsers]
        growth = [
            float(np.log(ms / curve.y[-1]) / np.log(n / curve.x[-1])) if curve.x else None
            for curve, ms in zip(curves, times, strict=True)
        ]
        for curve, ms in zip(curves, times, strict=True):
            curve.add(n, ms)
            table.add(f"n={n}: {curve.name}", None, ms, "ms per sentence", None, NO_FIGURE)
        ratio, whole_ratio = times[1] / times[0], whole[1] / whole[0]
        table.rows.append([n, *times, ratio, *growth, whole_ratio])
        note = f"{NO_FIGURE}; target: at most 4" if n == 40 else NO_FIGURE
        table.add(f"n={n}: second order / first order", None, ratio, "times", None, note)
        kept = np.mean([len(heads) for row in parsers[1].predict_marginals(sentences) for heads in row])
        note = f"{kept:.1f} heads per word after pruning"
        table.add(f"n={n}: whole parse, order 2 / order 1", None, whole_ratio, "times", None, note)
        say(f"n={n}: first order {times[0]:.3f} ms, second order {times[1]:.3f} ms, {ratio:.1f} times")
    table.curves.extend(curves)
    return table


def _parsers(n_train: int, seed: int) -> tuple[list[DependencyParser], list[tuple[str, str]]]:
    """Return small parsers of both orders, and the tagged words of other sentences in one list."""
    train = bundled.load("train")[:n_train]
    X, heads = [list(zip(s.words, s.tags, strict=True)) for s in train], [s.heads for s in train]
    settings: Any = {"hash_bits": 18, "batch_size": 8, "seed": seed, "calibrated": False}
    parsers = [DependencyParser(order, **settings).fit(X, heads) for order in (1, 2)]
    return parsers, [pair for s in bundled.load("test") for pair in zip(s.words, s.tags, strict=True)]


def _milliseconds(work: Callable[[], object], n_repeats: int) -> float:
    """Return the processor time of the fastest run."""
    return 1000 * best_time(work, n_repeats, time.thread_time)
