"""``trelliswork tag --json``: one JSON object per sentence and line."""

import json as json_module
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from trelliswork.data import AttributeCorpus, Corpus
    from trelliswork.models import FactorialCRF


def labelings(tagger: Any, corpus: "Corpus | AttributeCorpus", known: Any, topk: int) -> list[dict[str, Any]]:
    """Return the labels of each sentence with their probabilities, or its ``topk`` best labelings."""
    if topk > 1:
        lists = tagger.predict_topk(corpus, topk, known=known)
        return [{"labelings": [{"labels": list(y), "probability": float(p)} for y, p in best]} for best in lists]
    labels = tagger.predict(corpus, known=known)
    return [
        {"labels": list(y), "probabilities": _chosen(rows, y)}
        for y, rows in zip(labels, tagger.predict_marginals(corpus, known=known), strict=True)
    ]


def layered_labelings(tagger: "FactorialCRF", corpus: "Corpus", known: Any) -> list[dict[str, Any]]:
    """Return labels and probabilities by layer."""
    labels, marginals = tagger.predict_layers(corpus, known=known), tagger.predict_marginals(corpus, known=known)
    return [
        {
            "labels": {name: list(rows[n]) for name, rows in labels.items()},
            "probabilities": {name: _chosen(marginals[name][n], rows[n]) for name, rows in labels.items()},
        }
        for n in range(len(corpus))
    ]


def write_json(corpus: "Corpus | AttributeCorpus", answers: list[dict[str, Any]], out: TextIO) -> None:
    """Write the answers, each with the words of its sentence; files of ready attributes have no words."""
    from trelliswork.data import Corpus

    words = [{"words": list(s)} for s in corpus.sentences(0)] if isinstance(corpus, Corpus) else [{}] * len(corpus)
    for sentence, answer in zip(words, answers, strict=True):
        out.write(json_module.dumps({**sentence, **answer}, ensure_ascii=False) + "\n")


def _chosen(rows: Any, labels: Any) -> list[float]:
    return [float(row[label]) for row, label in zip(rows, labels, strict=True)]
