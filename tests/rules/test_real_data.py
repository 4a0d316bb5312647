"""Rules on real data: fields of addresses that occur once, and limits of entities, learned from training."""

import time
import warnings
from collections import Counter
from itertools import chain, groupby

import numpy as np
import pytest

from benchmarks.contenders.rules import limits, tagged
from trelliswork import CRF, evaluate, read_columns
from trelliswork.errors import DataWarning
from trelliswork.records import read_records
from trelliswork.rules import AtMostOnce

pytestmark = pytest.mark.slow  # trains on real data


def auc(wrong: np.ndarray, right: np.ndarray) -> float:
    """Return how often a wrong one has a lower value than a right one; equal values count half."""
    return float(((wrong[:, None] < right) + 0.5 * (wrong[:, None] == right)).mean())


def seconds(call) -> float:
    """Return the least time of three calls."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


@pytest.mark.parametrize("case", ["all", "50 strings", "5 folds"])
def test_fields_of_addresses_occur_once(data_dir, case):
    """Trained on 50 strings, the plain model breaks the rules often; on all of them, hardly ever.

    Accuracy is that of the strings whose fields satisfy the rules: a field may be repeated later for the first time.
    """
    folder = data_dir / "records" / "usaddress"
    X, y = tagged(read_records(folder / ("us50-train.xml" if case == "50 strings" else "train.xml")))
    parts = [((X, y), tagged(read_records(folder / "test.xml")))]
    if case == "5 folds":
        parts = [(([x for n, x in enumerate(X) if n % 5 != k], [row for n, row in enumerate(y) if n % 5 != k]),
                  (X[k::5], y[k::5])) for k in range(5)]  # fmt: skip
    every = []
    for train, (words, gold) in parts:
        runs = [Counter(label for label, _ in groupby(row)) for row in train[1]]
        several = {label for own in runs for label, n in own.items() if n > 1}
        rule = AtMostOnce(*sorted({label for own in runs for label in own} - several))
        model = CRF("records", scheme=None, l2=0.05).fit(*train)
        plain, ruled = model.predict(words), model.predict(words, rules=rule)
        assert all(map(rule.holds, ruled))
        assert all(a == b for a, b in zip(plain, ruled, strict=True) if rule.holds(a))
        true = [n for n, row in enumerate(gold) if rule.holds(row)]
        assert len(true) >= 0.99 * len(gold)
        counts = [sum(a == b for n in true for a, b in zip(p[n], gold[n], strict=True)) for p in (plain, ruled, gold)]
        right = [a == b for a, b in zip(plain, gold, strict=True)]
        p = model.rules_probability(words, rule)
        every.append((counts, list(zip(right, p, map(rule.holds, plain), strict=True))))
    before, after, total = np.sum([counts for counts, _ in every], axis=0).tolist()
    before, after = before / total, after / total
    right, p, holds = (np.array(column) for column in zip(*chain(*(rows for _, rows in every)), strict=True))
    cost = seconds(lambda: model.predict(words, rules=rule)) / seconds(lambda: model.predict(words))
    each = [
        seconds(lambda x=x: model.predict([x], rules=rule)) / seconds(lambda x=x: model.predict([x])) for x in words
    ]
    print(
        f"{case}: {len(rule.names)} fields once, broken by {(~holds).sum()} of {len(p)}; accuracy {before:.4f}, "
        f"under rules {after:.4f}; {(~right).sum()} wrong, AUC of P(rules) {auc(p[~right], p[right]):.3f}; "
        f"time {cost:.2f} x over the file, by string mean {np.mean(each):.2f}, 99 % {np.quantile(each, 0.99):.2f}"
    )
    assert after >= before
    assert auc(p[~right], p[right]) > 0.6
    if case == "all":
        assert cost <= 1.5


@pytest.mark.parametrize("language", ["esp", "ned"])
def test_limits_and_patterns_of_entities(data_dir, language):
    """Types that never touch in training do not, and no span is longer than those of training; answers are exact."""
    folder = data_dir / "conll2002"
    train, test = (read_columns(folder / f"{language}.{part}") for part in ("train", "testb"))
    X, y = train.sentences(0), [list(row) for row in train.sentences(-1)]
    rule = limits(y)
    with warnings.catch_warnings(action="ignore", category=DataWarning):  # a label that breaks BIO
        model = CRF("ner", l2=0.1, tol=1e-3).fit(X, y)
    X, y = test.sentences(0), [list(row) for row in test.sentences(-1)]
    plain, ruled = model.predict(X), model.predict(X, rules=rule)
    assert all(map(rule.holds, ruled))
    changed = [n for n, row in enumerate(plain) if row != ruled[n]]
    assert changed == [n for n, row in enumerate(plain) if not rule.holds(row)]
    for n in changed:  # the first of the best labelings that satisfies the rules
        best = model.predict_topk([X[n]], 300)[0]
        assert next(labels for labels, _ in best if rule.holds(labels)) == ruled[n]
    f1 = [evaluate(model, X, y, **given).chunks.f1 for given in ({}, {"rules": rule})]
    cost = seconds(lambda: model.predict(X, rules=rule)) / seconds(lambda: model.predict(X))
    print(f"{language}: {len(rule.parts)} rules; {len(changed)} of {len(X)} change; F1 {f1[0]:.4f}, under them "
          f"{f1[1]:.4f}; time {cost:.2f} x")  # fmt: skip
    assert f1[1] >= f1[0]
    assert cost <= 3
