"""Brown clusters: ours and the package brown-clustering on the same lines of a text.

Each function takes ``{"file": ..., "lines": ..., "words": ..., "clusters": ...}``: the first lines of a file in the
data folder (None: all), whose words beyond the most frequent ones are ``<unk>``. The digest is the log-likelihood per
token of the class-based bigram model, computed in the same way for both. Reading the file is not timed.

Without a file, the text is WikiText-2, the Penn Treebank and the running text of the folder ``raw-text``, tokenized to
a temporary file; reading and counting that file is timed.
"""

import tempfile
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.contenders.crf import data_folder
from benchmarks.declarations import Params, Task

UNKNOWN = "<unk>"


def sentences(params: Params) -> list[list[str]]:
    """Return the sentences of a case."""
    lines = (data_folder() / params["file"]).read_text(encoding="utf-8").splitlines()[: params["lines"]]
    text = [line.split() for line in lines if line.strip()]
    counts = Counter(word for sentence in text for word in sentence)
    kept = {word for word, _ in counts.most_common(params["words"])}
    return [[word if word in kept else UNKNOWN for word in sentence] for sentence in text]


def log_likelihood(text: list[list[str]], cluster: dict[str, Any]) -> float:
    """Return the log-likelihood per token, in nats; words without a cluster, and sentence ends, have their own."""
    pairs: Counter[tuple[Any, Any]] = Counter()
    words: Counter[str] = Counter()
    for sentence in text:
        words.update(["<s>", *sentence])
        classes = ["<s>", *(cluster.get(word, word) for word in sentence), "<s>"]
        pairs.update(pairwise(classes))
    left: Counter[Any] = Counter()
    right: Counter[Any] = Counter()
    for (a, b), n in pairs.items():
        left[a] += n
        right[b] += n

    def total(counts: Counter[Any]) -> float:
        values = np.array(list(counts.values()), float)
        return float((values * np.log(values)).sum())

    return (total(pairs) - total(left) - total(right) + total(words)) / sum(words.values())


def _raw_text() -> Any:
    """Return a temporary file of the large text; it is deleted when nothing refers to it any more."""
    from experiments.chain_tagging import raw_text

    file = tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt")  # noqa: SIM115
    file.writelines(" ".join(sentence) + "\n" for sentence in raw_text(data_folder()))
    file.flush()
    return file


def trelliswork(params: Params) -> Task:
    """Return the task of our package."""
    from trelliswork import BrownClusters

    if params["file"] is None:
        file = _raw_text()
        large = BrownClusters(params["clusters"], max_words=params["words"])
        return Task(lambda: large.fit(file.name).objective_, lambda value: {"log_likelihood": value})
    text = sentences(params)
    model = BrownClusters(params["clusters"], max_words=None)
    return Task(lambda: model.fit(text).paths_, lambda paths: {"log_likelihood": log_likelihood(text, paths)})


def brown_clustering(params: Params) -> Task:
    """Return the task of brown-clustering; its additive smoothing is set to almost nothing, as in our objective."""
    from brown_clustering import BigramCorpus, BrownClustering

    text = sentences(params)

    def work() -> dict[str, int]:
        groups = BrownClustering(BigramCorpus(text, alpha=1e-6, min_count=0), params["clusters"]).train()
        return {word: k for k, group in enumerate(groups) for word in group}

    return Task(work, lambda cluster: {"log_likelihood": log_likelihood(text, cluster)})
