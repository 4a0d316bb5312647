"""HMMs against the Markov random field tagger, on all words and on unseen words (paper 0, table 2)."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.chain_tagging import NAMES, Split, read_tagged
from experiments.running import fit
from experiments.tables import Curve, Say, Table
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import HMM
from trelliswork.models.mrf_tagger import MRFTagger

PAPER = {"hmm": (95.8, 65.4), "mrf": (96.0, 76.0)}
DATASETS = ("conll2000", "ud-en-ewt")
OTHER = "another corpus and other tags than the paper's (WSJ 2-21 and 23, 36 tags)"
WHY = {
    "hmm": f"{OTHER}; its HMM has simple rare word smoothing, ours one symbol for unseen words",
    "mrf": f"{OTHER}; ours is tied to the word itself only",
}


def mrf_tagging(
    folder: str | os.PathLike[str],
    *,
    datasets: Sequence[str] = DATASETS,
    n_words: Sequence[int] = (1,),
    l2: float = 0.5,
    min_count: int = 6,
    max_iter: int = 60,
    n_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Compare HMMs without and with a suffix model and MRF taggers without and with a dictionary.

    Accuracies are for all words and for unseen words. The iteration of the MRF tagger is chosen on held-out sentences
    (the development part of EWT; for CoNLL-2000, which has none, the last tenth of the training part, which is then
    not used for training). The test part is used for measurement only. The curves are accuracies on held-out sentences
    by iteration.

    The folder has ``conll2000`` and ``ud-en-ewt``. There is one MRF tagger for each of ``n_words``, the number of words
    that a tag depends on. ``n_sentences`` includes the held-out sentences of CoNLL-2000.
    """
    table = Table(
        "Tagging accuracy in percent, all words and words not seen in training (paper: WSJ 2-21/23, T=36)",
        ["data", "model", "total", "unseen", "train s", "tag s"],
        notes=[
            "The paper's corpus is licensed; ours are public. Its HMM has 'simple rare word smoothing': ours without "
            "suffix model has one symbol for unseen words, ours with suffix model is TnT's.",
            f"MRF tagger: order 1, L2 {l2:g}, words seen at most {min_count - 1} times by affixes and shape, at most "
            f"{max_iter} iterations; with L=1 its likelihood is exact, with L>1 a lower bound is maximized.",
            "The iteration is chosen on held-out sentences: EWT's development part, and the last tenth of "
            "CoNLL-2000's training part, which is not used for training. Training time includes tagging the held-out "
            "sentences after each iteration.",
        ],
        axes=("iterations", "accuracy on held-out sentences, %"),
    )
    for data in datasets:
        train, held_out, test = _read(Path(folder) / data, n_sentences)
        models: list[tuple[str, str, Any]] = [
            ("hmm", "HMM, one unknown symbol", HMM(unknown="symbol")),
            ("", "HMM, suffix model", HMM(unknown="suffix")),
        ]
        for L in n_words:
            tagger = MRFTagger(1, n_words=L, l2=l2, min_count=min_count, max_iter=max_iter)
            models.append(("mrf" if n_words[0] == L else "", f"MRF, L={L}", tagger))
        for key, name, model in models:
            say(f"{NAMES[data]}: {name}")
            seconds = fit(model, *train, **({"dev": held_out} if isinstance(model, MRFTagger) else {}))
            table.curves.append(_curve(f"{NAMES[data]}, {name}", model, held_out, max_iter))
            _add(table, data, name, key, model, test, seconds)
            if isinstance(model, MRFTagger):
                _add(table, data, f"{name}, dictionary", "", model.set_params(closed=True), test, seconds)
    return table


def _curve(name: str, model: Any, held_out: Split, max_iter: int) -> Curve:
    """Return the accuracy by iteration; a level line for an HMM, which has no iterations."""
    if isinstance(model, MRFTagger):
        steps = [step for step in model.report_.history if step.dev is not None]
        return Curve(name, [float(step.iteration) for step in steps], [100 * float(step.dev or 0.0) for step in steps])
    level = 100 * evaluate_tagging(held_out[1], model.predict(held_out[0])).accuracy
    return Curve(name, [1.0, float(max_iter)], [level, level])


def _add(table: Table, data: str, name: str, key: str, model: Any, test: Split, seconds: float) -> None:
    """Add a row and its two figures."""
    began = time.perf_counter()
    report = evaluate_tagging(test[1], model.predict(test[0]), words=test[0], known_words=model.known_words())
    total, unseen = 100 * report.accuracy, 100 * (report.unknown_accuracy or 0.0)
    table.rows.append([NAMES[data], name, total, unseen, seconds, time.perf_counter() - began])
    paper = PAPER.get(key, (None, None))
    note = WHY.get(key, OTHER)
    for what, theirs, ours in (("total", paper[0], total), ("unseen words", paper[1], unseen)):
        table.add(f"{NAMES[data]}, {name}: {what}", theirs, ours, "%", seconds, note)


def _read(folder: Path, n_sentences: int | None) -> tuple[Split, Split, Split]:
    """Return words and tags of the training part, of held-out sentences and of the test part."""
    train, test = (read_tagged(folder, part) for part in ("train", "test"))
    train = train[0][:n_sentences], train[1][:n_sentences]
    if folder.name != "conll2000":
        return train, read_tagged(folder, "dev"), test
    cut = len(train[0]) - max(1, len(train[0]) // 10)
    return (train[0][:cut], train[1][:cut]), (train[0][cut:], train[1][cut:]), test
