"""Few labeled sentences and much raw text: a tagger with clusters and vectors of words."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from trelliswork.data import read_text
from trelliswork.data.moments import count_moments
from trelliswork.data.raw_text import raw_sentences
from trelliswork.experiments.chain_tagging import read_tagged
from trelliswork.experiments.running import fit, timed
from trelliswork.experiments.tables import Curve, Say, Table
from trelliswork.features.brown import BrownClusters
from trelliswork.features.vectors import WordVectors
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import CRF

KINDS = ("words alone", "clusters", "vectors", "clusters and vectors")


def representations(
    folder: str | os.PathLike[str],
    *,
    sizes: Sequence[int] = (100, 300, 1000, 3000),
    n_clusters: int = 1000,
    n_words: int = 50_000,
    n_dims: int = 100,
    l2: float = 1.0,
    max_iter: int = 100,
    max_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Measure a CRF trained on the first sentences of UD English EWT, without and with knowledge of raw text.

    The folder has ``ud-en-ewt`` and the raw text: ``wikitext-2``, ``ptb-lm`` and ``raw-text``.
    """
    folder = Path(folder)
    say("counting the raw text")
    counts, seconds = timed(lambda: count_moments(raw_text(folder, max_sentences), 1, max_words=n_words))
    table = Table(
        "UD EWT XPOS from few labeled sentences: accuracy in percent on the test part, all words and unseen words",
        ["sentences", "features", "all", "unseen", "train s"],
        notes=[
            f"Raw text: {counts.n_tokens:,} tokens; {n_clusters} clusters and {n_dims}-dimensional vectors of "
            f"{len(counts.vocabulary) - 2:,} words. Unseen words are those that the labeled sentences lack."
        ],
        axes=("labeled sentences", "accuracy on unseen words, %"),
    )
    say(f"{counts.n_tokens:,} tokens counted in {seconds:.0f} s; clusters")
    clusters, seconds = timed(lambda: BrownClusters(n_clusters).fit(counts))
    table.add("clusters: log-likelihood per token", None, clusters.objective_, "nats", seconds)
    say(f"clusters in {seconds:.0f} s; vectors")
    vectors, seconds = timed(lambda: WordVectors.from_counts(counts, n_dims))
    say(f"vectors in {seconds:.0f} s")
    X, y = read_tagged(folder / "ud-en-ewt", "train")
    X_test, y_test = read_tagged(folder / "ud-en-ewt", "test")
    curves = {kind: Curve(kind) for kind in KINDS}
    for size in sizes:
        known = {word for sentence in X[:size] for word in sentence}
        for kind in KINDS:
            given: dict[str, Any] = {"clusters": clusters} if "clusters" in kind else {}
            given |= {"vectors": vectors} if "vectors" in kind else {}
            say(f"{size} sentences: {kind}")
            model = CRF("pos", l2=l2, max_iter=max_iter, **given)
            seconds = fit(model, X[:size], y[:size])
            report = evaluate_tagging(y_test, model.predict(X_test), words=X_test, known_words=known)
            rates = 100 * report.accuracy, 100 * (report.unknown_accuracy or 0.0)
            table.rows.append([size, kind, *rates, seconds])
            curves[kind].add(size, rates[1])
            for what, rate in zip(("all words", "unseen words"), rates, strict=True):
                table.add(f"{size} sentences, {kind}: {what}", None, rate, "%", seconds)
    table.curves = list(curves.values())
    return table


def raw_text(folder: Path, max_sentences: int | None = None) -> Iterator[Sequence[str]]:
    """Yield the sentences of the raw text: two tokenized corpora, and running text that is tokenized here."""
    tokenized = [folder / "wikitext-2" / "wiki.train.tokens", folder / "ptb-lm" / "ptb.train.txt"]
    ready = (sentence for path in tokenized for sentence in read_text(path).sentences())
    raw = raw_sentences(sorted((folder / "raw-text").glob("*.txt.gz")))
    if max_sentences is None:
        return chain(ready, raw)
    return chain(islice(ready, max_sentences // 2), islice(raw, max_sentences - max_sentences // 2))
