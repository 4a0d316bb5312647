"""HMM language models at the size of paper 4: states in blocks, one for each cluster of words."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.kernel_hmm import PUBLISHED, Size, Words, trained
from experiments.tables import Curve, Say, Table
from trelliswork.compute.threads import get_num_threads
from trelliswork.data import read_text
from trelliswork.models import HMMLanguageModel, KneserNey

COLUMNS = ["model", "valid", "test", "paper test", "CPU minutes", "epochs", "MB"]
GIVEN = {32768: 116.0, 16384: 119.5}  # test perplexity of VL-HMMs with blocked emissions, trained on a GPU
STEPS = 50  # of the search for the weight of an interpolation


def large_hmm(
    folder: str | os.PathLike[str],
    *,
    sizes: Sequence[int] = (32768,),
    max_iter: int = 11,
    n_sentences: int = 0,
    kneser_ney: bool = True,
    seed: int = 0,
    keep: str | os.PathLike[str] | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Train models with the defaults for their number of states and measure their perplexity.

    The folder has ptb.train.txt, ptb.valid.txt and ptb.test.txt; ``n_sentences`` are used for training, 0 for all. The
    folder ``keep`` is for trained models and checkpoints, from which the same call resumes. With ``kneser_ney`` the
    probabilities are also averaged with those of 5-grams; the weight is chosen on the validation text.
    """
    train, dev, test = (read_text(Path(folder) / f"ptb.{part}.txt").sentences(0) for part in ("train", "valid", "test"))
    train = train[: n_sentences or None]
    table = Table(
        "Penn Treebank text, perplexity per token (sentence ends are tokens), validation and test",
        COLUMNS,
        axes=("CPU minutes", "validation perplexity"),
        notes=["CPU minutes: processor time of the whole training, clusters of words and validation included."],
    )
    ngrams = KneserNey(5).fit(train) if kneser_ney else None
    for n in sizes:
        lm = HMMLanguageModel(n, max_iter=max_iter, seed=seed)
        began = time.process_time()
        lm = trained(lm, Size(n), train, dev, keep, say, None)
        lm.report_.details.setdefault("cpu", time.process_time() - began)
        if keep is not None:
            lm.save(Path(keep) / f"{n}-0")
        _add(table, lm, dev, test, ngrams)
    table.rows += [[name, valid, None, tested, *[None] * 3] for name, valid, tested in PUBLISHED]
    return table


def _add(table: Table, lm: HMMLanguageModel, dev: Words, test: Words, ngrams: KneserNey | None) -> None:
    """Add the row, the curve and the figures of a model."""
    n, seconds, points = lm.n_states, lm.report_.details["cpu"], lm.report_.details["curve"]
    valid, tested = lm.perplexity(dev), lm.perplexity(test)
    name, unit = f"HMM, {n} states in blocks", "perplexity per token"
    megabytes = sum(array.nbytes for array in lm._state()[1].values()) / 2**20
    table.rows.append([name, valid, tested, GIVEN.get(n), seconds / 60, points[-1][1], megabytes])
    share = seconds / points[-1][0]  # processor time per time
    table.curves.append(Curve(name, [share * p[0] / 60 for p in points], [p[2] for p in points]))
    note = f"{points[-1][1]:g} epochs, {get_num_threads()} threads; theirs: a GPU, recalled from the literature"
    table.add(f"{name}: validation", None, valid, unit, seconds, note)
    table.add(f"{name}: test", GIVEN.get(n), tested, unit, seconds, note)
    if ngrams is not None:
        weight = _weight(*(_log_probs(model, dev) for model in (lm, ngrams)))
        both = _mixed(weight, *(_log_probs(model, test) for model in (lm, ngrams)))
        note = f"{weight:.2f} of the HMM and {1 - weight:.2f} of the 5-grams, chosen on the validation text"
        table.add(f"{name}, with 5-grams: test", None, float(np.exp(-both.mean())), unit, None, note)


def _log_probs(model: Any, sentences: Words) -> NDArray[np.float64]:
    """Return log p of each word and sentence end of a text."""
    return np.concatenate([model.token_log_probs(sentence) for sentence in sentences])


def _mixed(weight: float, one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.logaddexp(np.log(weight) + one, np.log1p(-weight) + other))


def _weight(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the weight of the first model with the largest likelihood, by EM."""
    weight = 0.5
    for _ in range(STEPS):
        weight = float(np.exp(np.log(weight) + one - _mixed(weight, one, other)).mean())
    return weight
