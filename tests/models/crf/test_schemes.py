"""Label schemes in training and prediction."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.estimators import made
from tests.models.crf.cases import TAGS, WORDS, tagger
from trelliswork.data.schemes import labels_from_spans, spans
from trelliswork.errors import DataWarning
from trelliswork.models import CRF


@pytest.mark.parametrize("feature_set", ["observed", "all"])
def test_bio_never_predicts_an_ill_formed_transition(feature_set):
    # Each word wants one label whatever stands before it, and new sentences put I- words where they may not be.
    words = ["b i o", "c j o b i", "o b i i o c j j", "b b i c c j"]
    labels = {"o": "O", "b": "B-X", "i": "I-X", "c": "B-Y", "j": "I-Y"}
    x = [s.split() for s in words]
    y = [[labels[word] for word in s] for s in x]
    rng = np.random.default_rng(0)
    new = [[str(w) for w in rng.choice(list(labels), n)] for n in rng.integers(2, 12, 100)]
    options = {"l2": 1e-3, "feature_set": feature_set}

    def ill_formed(sentences):
        pairs = [pair for labeling in sentences for pair in pairwise(labeling)]
        return [(a, b) for a, b in pairs if b[0] == "I" and a not in (f"B-{b[2:]}", f"I-{b[2:]}")]

    free = made(CRF, "U:%x[0,0]", scheme=None, **options).fit(x, y)
    assert ill_formed(free.predict(new))  # the features do suggest it
    for scheme in ("bio", "auto"):
        crf = made(CRF, "U:%x[0,0]", scheme=scheme, **options).fit(x, y)
        assert crf.predict(x) == y
        assert not ill_formed(crf.predict(new))
        ranked = crf.predict_topk(new[:10], 5)
        assert not ill_formed([labeling for sentence in ranked for labeling, _ in sentence])
        posterior = crf.posterior(["o", "i"])
        ids = torch.tensor([[list(crf.labels_).index(label) for label in ("O", "I-X")]])
        assert posterior.log_prob(ids).item() == -np.inf


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_predictions_are_whole_spans(scheme):
    # Also at the ends: no sentence begins inside a span, and in bioes none ends there.
    spans_of = [[("X", 1, 3)], [("Y", 0, 1), ("X", 1, 4)], [("Y", 1, 3), ("Y", 3, 5)], [("X", 0, 1)]]
    y = [labels_from_spans(found, 5, scheme) for found in spans_of]
    x = [[label.lower() for label in labels] for labels in y]
    words = sorted({word for s in x for word in s})
    rng = np.random.default_rng(0)
    new = [[str(w) for w in rng.choice(words, n)] for n in rng.integers(1, 8, 100)]

    def whole(labels):
        return labels_from_spans(spans(labels, scheme), len(labels), scheme) == labels

    free = CRF("U:%x[0,0]", scheme=None, l2=1e-3).fit(x, y).predict(new)
    assert not all(whole(labels) for labels in free)
    crf = CRF("U:%x[0,0]", scheme=scheme, l2=1e-3).fit(x, y)
    assert crf.predict(x) == y
    for labels in [*crf.predict(new), *(labels for s in crf.predict_topk(new, 4) for labels, _ in s)]:
        assert whole(labels), labels
    with pytest.warns(DataWarning, match=r"1 label breaks .*sentence 0, token 0"):
        read = CRF("U:%x[0,0]", scheme=scheme, l2=1e-3).fit([["a"], *x], [["I-X"], *y])
    assert read.predict([["a"]]) == [labels_from_spans([("X", 0, 1)], 1, scheme)]


def test_training_labels_outside_the_scheme_are_named():
    with pytest.warns(DataWarning, match=r"1 label breaks BIO .*sentence 1, token 2"):
        tagger(scheme="bio").fit([["a"], ["a", "b", "c"]], [["O"], ["B-NP", "O", "I-NP"]])
    tagger(scheme=None).fit([["a"], ["a", "b", "c"]], [["O"], ["B-NP", "O", "I-NP"]])


def test_plain_tags_have_no_scheme():
    assert tagger(scheme="auto").fit(WORDS, TAGS).predict(WORDS) == TAGS
