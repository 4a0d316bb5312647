"""Low-rank grammars (a generalization of paper 4): cost and perplexity by rank, and trees induced from tags."""

import os
import time
from functools import partial
from typing import Any

import numpy as np

from experiments.running import best_time, fit
from experiments.tables import Curve, Say, Table
from trelliswork import evaluate
from trelliswork.data import Tree
from trelliswork.data.trees import read_trees
from trelliswork.inference.span import grammar, lowrank
from trelliswork.inference.span.lowrank import LowRankGrammar
from trelliswork.metrics.brackets import evaluate_brackets
from trelliswork.models.pcfg import PCFG
from trelliswork.models.pcfg.decoding import gold_spans

INDUCTION: list[tuple[str, dict[str, Any]]] = [
    ("EM, dense", {"n_nonterminals": 10, "max_iter": 40}),
    ("EM, dense, right bias", {"n_nonterminals": 10, "max_iter": 40, "right_bias": 4.0}),
    ("EM, rank 12", {"n_nonterminals": 15, "rank": 12, "max_iter": 40}),
    ("EM, rank 12, right bias", {"n_nonterminals": 15, "rank": 12, "max_iter": 40, "right_bias": 4.0}),
    (
        "Adam, neural, rank 12",
        {
            "n_nonterminals": 15,
            "rank": 12,
            "max_iter": 20,
            "neural": True,
        },
    ),
]


def low_rank_pcfg(
    folder: str | os.PathLike[str],
    *,
    parts: tuple[str, ...] = ("cost", "perplexity", "induction"),
    ranks: tuple[int, ...] = (4, 8, 16, 32, 64),
    n_seeds: int = 5,
    max_iter: int = 40,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Measure cost, perplexity and induced trees, on Penn Treebank files ``*.mrg``.

    Parts are ``cost`` (inside-outside of 8 sentences of 30 words, 100 nonterminals, 200 preterminals), ``perplexity``
    (tags of sentences up to 15 words, every tenth sentence held out; ``max_iter`` EM iterations) and ``induction``
    (tags of sentences up to 10 words; ``n_seeds`` random starts of each kind of grammar).
    """
    table = Table(
        "Low-rank grammars",
        ["what", "rank", "figure", "unit", "seconds"],
        notes=[
            "Perplexity: tags without punctuation, sentences up to 15, every tenth held out; starts have a right bias.",
            "F1: unlabeled, mean over sentences, without trivial spans and punctuation; trees of tags by minimum Bayes "
            "risk. Training and evaluation use the same sentences. Training uses no gold trees, but the sizes and the "
            "bias of the starts were chosen among about ten settings by this F1.",
        ],
        axes=("rank", "seconds or perplexity"),
    )
    trees = read_trees(folder, punctuation=False, functions=False, unary=False)
    if "cost" in parts:
        _cost(table, ranks, seed, say)
    if "perplexity" in parts:
        _perplexity(table, trees, ranks, max_iter, seed, say)
    if "induction" in parts:
        _induction(table, trees, n_seeds, seed, say)
    return table


def _add(
    table: Table, row: str, ours: float, unit: str, rank: str = "", seconds: float | None = None, note: str = "",
    paper: float | None = None,
) -> None:  # fmt: skip
    """Add a row and its figure."""
    table.rows.append([row, rank, ours, unit, seconds])
    table.add(row, paper, ours, unit, seconds, note)


def _cost(table: Table, ranks: tuple[int, ...], seed: int, say: Say) -> None:
    """Measure the time of log Z and all expectations, dense and of each rank."""
    rng = np.random.default_rng(seed)
    N, P, n, B = 100, 200, 30, 8
    seconds = []
    for R in ranks:
        shapes = (N,), (N, R), (R, N + P), (R, N + P), (B, n, P)
        root, up, left, right, terminals = (rng.normal(size=shape) for shape in shapes)
        given = LowRankGrammar(root, up, left, right, terminals, np.full(B, n))
        seconds.append(best_time(partial(lowrank.expectations, given), 5))
        say(f"cost: rank {R}, {1000 * seconds[-1]:.1f} ms")
        _add(table, f"inside-outside, rank {R}", 1000 * seconds[-1], "ms", str(R))
    table.curves.append(Curve("inside-outside (s)", [float(R) for R in ranks], seconds))
    dense = given.dense()
    time_dense = best_time(partial(grammar.expectations, dense), 1)
    error = float(np.abs(grammar.expectations(dense).log_z - lowrank.expectations(given).log_z).max())
    say(f"cost: dense, {1000 * time_dense:.0f} ms")
    _add(table, "inside-outside, dense", 1000 * time_dense, "ms", "dense", note="the same grammar")
    if 32 in ranks:
        ratio = time_dense / seconds[ranks.index(32)]
        _add(table, "dense against rank 32", ratio, "times", "32", note="target: 5 or more")
    _add(table, "largest difference of log Z", error, "nats", str(R), note="target: at most 1e-8")


def _perplexity(table: Table, trees: list[Tree], ranks: tuple[int, ...], max_iter: int, seed: int, say: Say) -> None:
    """Measure the perplexity of held-out tags after EM with 20 nonterminals."""
    tags = [[node.label for node in tree.preterminals()] for tree in trees]
    tags = [s for s in tags if 2 <= len(s) <= 15]
    train, held_out = [s for k, s in enumerate(tags) if k % 10], tags[::10]
    perplexities = []
    for R in (*ranks, None):
        model = PCFG(20, n_preterminals=None, rank=R, max_iter=max_iter, tol=0, right_bias=4.0, seed=seed)
        seconds = fit(model, train)
        name = "dense" if R is None else f"rank {R}"
        perplexity, own = model.perplexity(held_out), model.perplexity(train)
        say(f"perplexity: {name}, {perplexity:.2f} held out, {own:.2f} in training, {seconds:.0f} s")
        note = f"{own:.2f} on the {len(train):,} training sentences; {len(held_out)} held out, {max_iter} iterations"
        _add(table, f"perplexity, {name}", perplexity, "per tag", name, seconds, note)
        perplexities.append(perplexity)
    table.curves.append(Curve("perplexity", [float(R) for R in ranks], perplexities[:-1]))


def _induction(table: Table, trees: list[Tree], n_seeds: int, seed: int, say: Say) -> None:
    """Measure the F1 of trees induced from the tags of sentences up to 10 words."""
    tags = [[node.label for node in tree.preterminals()] for tree in trees]
    short = [k for k, s in enumerate(tags) if 2 <= len(s) <= 10]
    trees_short, text = [trees[k] for k in short], [tags[k] for k in short]
    gold = [gold_spans(tree) for tree in trees]
    everything = evaluate_brackets([len(s) for s in tags], gold, gold)
    note = f"theirs: all of the WSJ test, from the literature; ours: these {len(trees):,} trees"
    _add(table, "right-branching, all lengths", 100 * everything.right_f1, "F1", note=note, paper=39.5)
    some = evaluate_brackets([len(s) for s in text], [gold[k] for k in short], [gold[k] for k in short])
    simple = {"left-branching": some.left_f1, "right-branching": some.right_f1, "best possible, binary": some.best_f1}
    for name, value in simple.items():
        _add(table, f"up to 10 words, {name}", 100 * value, "F1")
    for name, options in INDUCTION:
        began = time.perf_counter()
        runs: list[tuple[float, float]] = []
        best = PCFG()
        for k in range(n_seeds):
            model = PCFG(n_preterminals=None, tol=0, seed=seed + k, **options)
            fit(model, text)
            judged = evaluate(model, text, trees_short)
            runs.append((float(model.log_prob(text).sum()), 100 * judged.sentence_f1))
            best = model if runs[-1] == max(runs) else best
            say(f"induction: {name}, seed {seed + k}: F1 {runs[-1][1]:.1f}, log evidence {runs[-1][0]:.0f}")
        scores = [f1 for _, f1 in runs]
        seconds = time.perf_counter() - began
        note = f"{n_seeds} starts from {min(scores):.1f} to {max(scores):.1f}; the most probable {max(runs)[1]:.1f}"
        rank = str(options.get("rank", "dense"))
        _add(table, f"up to 10 words, {name}: mean", float(np.mean(scores)), "F1", rank, seconds, note)
        _add(table, f"up to 10 words, {name}: most probable", max(runs)[1], "F1", rank, note=note)
        if options.get("rank") and options.get("right_bias"):
            long = evaluate(best, tags, trees, max_length=40)
            note = f"trained on sentences up to 10 words; right-branching {100 * long.right_f1:.1f}"
            _add(table, f"up to 40 words, {name}: most probable", 100 * long.sentence_f1, "F1", rank, note=note)
