"""Left-to-right language models: Kneser-Ney by hand and by dictionaries, log-bilinear by its definition."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trelliswork.compute import threads
from trelliswork.errors import DataError, NotFittedError, ValueRangeError
from trelliswork.models import load
from trelliswork.models.baselines import KneserNey, LogBilinear
from trelliswork.models.baselines import log_bilinear_training as lbl_training
from trelliswork.models.baselines.kneser_ney import discounts
from trelliswork.models.baselines.log_bilinear_training import LBLParameters, _Pieces, gradients, log_likelihoods

texts = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=12)


def test_kneser_ney_by_hand():
    """Two sentences, a b and a c; discounts of order 1 are 0.6 and 1, of order 2 two thirds and 1."""
    model = KneserNey(2).fit([["a", "b"], ["a", "c"]])
    ids = model.vocabulary_.id
    assert_allclose(model.next_distribution([])[ids("a")], 1 / 2 + 1 / 2 * 0.22, rtol=1e-12)
    after_a = model.next_distribution(["a"])
    assert_allclose(after_a[ids("b")], 1 / 6 + 2 / 3 * 0.22, rtol=1e-12)
    assert_allclose(after_a[0], 2 / 3 * 0.34, rtol=1e-12)
    want = np.log([0.61 * (1 / 6 + 2 / 3 * 0.22) * 0.56])
    assert_allclose(model.score([["a", "b"]]), want, rtol=1e-12)
    assert_allclose(model.perplexity([["a", "b"]]), np.exp(-want[0] / 3), rtol=1e-12)


def reference(text: list[list[str]], order: int):
    """p(word | words before) by dictionaries, as the equations say."""
    sentences = [("<S>", *s, "</S>") for s in text]
    words = sorted({w for s in text for w in s} | {"</S>"})
    counts = [Counter() for _ in range(order + 1)]
    for s in sentences:
        for i in range(1, len(s)):
            for m in range(1, min(order, i + 1) + 1):
                counts[m][s[i - m + 1 : i + 1]] += 1
    adjusted = [Counter(), *counts[1:]]
    for m in range(1, order):
        before = defaultdict(set)
        for gram in counts[m + 1]:
            before[gram[1:]].add(gram[0])
        adjusted[m] = Counter({g: n if g[0] == "<S>" else len(before[g]) for g, n in counts[m].items()})
    D = [None, *(discounts(np.array(list(adjusted[m].values()))) for m in range(1, order + 1))]

    def p(history: tuple[str, ...], word: str, m: int) -> float:
        if m == 0:
            return 1 / len(words)
        h = history[len(history) - (m - 1) :]
        seen = [n for g, n in adjusted[m].items() if g[:-1] == h]
        lower = p(history, word, m - 1)
        if not seen:
            return lower
        n = adjusted[m][(*h, word)]
        rest = sum(D[m][min(k, 3)] for k in seen) / sum(seen)
        return (n - D[m][min(n, 3)]) / sum(seen) + rest * lower

    def score(sentence: list[str]) -> float:
        s = ("<S>", *sentence, "</S>")
        return sum(np.log(p(s[max(0, i - order + 1) : i], s[i], min(order, i + 1))) for i in range(1, len(s)))

    return score


@settings(max_examples=40, deadline=None)
@given(texts, st.integers(1, 4))
def test_kneser_ney_is_what_dictionaries_say(text, order):
    model = KneserNey(order).fit(text)
    score = reference(text, order)
    words = sorted({w for s in text for w in s})
    new = [list(reversed(s)) for s in text[:4]] + [words]
    assert_allclose(model.score(new), [score(s) for s in new], rtol=1e-10)
    for context in ([], words[:1], words, words[::-1]):
        assert_allclose(model.next_distribution(context).sum(), 1, rtol=1e-12)


def test_orders_beyond_the_longest_sentence_change_nothing(tmp_path):
    text = [["a", "b"], ["b", "a"], ["a"]]
    plain, long = KneserNey(4).fit(text), KneserNey(9).fit(text)
    new = [["a", "b", "a", "b", "b", "a", "a", "b", "a", "a"], ["b"]]
    assert_allclose(long.score(new), plain.score(new), rtol=1e-12)
    assert_allclose(long.next_distribution(new[0]), plain.next_distribution(new[0]), rtol=1e-12)
    assert long.n_ngrams()[4:] == [0] * 5
    long.save(tmp_path / "m")
    assert_allclose(load(tmp_path / "m").score(new), plain.score(new), rtol=1e-12)


def test_the_next_word_and_the_score_agree():
    text = [["a", "b", "c"], ["b", "c"], ["a", "c", "c", "b"]]
    for model in (KneserNey(3).fit(text), LogBilinear(2, 3, max_iter=2, batch_size=4).fit(text)):
        sentence = ["c", "a", "b"]
        steps = [model.next_distribution(sentence[:i]) for i in range(4)]
        ids = [*model.vocabulary_.ids(sentence), 0]
        assert_allclose(
            model.score([sentence, []]),
            [sum(np.log(p[i]) for p, i in zip(steps, ids, strict=True)), np.log(steps[0][0])],
            rtol=1e-5,
        )
        assert model.predict_next(["a"], 2)[0][1] >= model.predict_next(["a"], 2)[1][1]


@pytest.mark.parametrize("model", [KneserNey(3, min_count=2), LogBilinear(2, 4, min_count=2, max_iter=2)])
def test_saved_models_are_the_same(model, tmp_path):
    text = [["a", "b", "a"], ["b", "a", "x"], ["y"]]
    with pytest.raises(NotFittedError):
        model.score(text)
    model.fit(text)
    (tmp_path / "text").write_text("\n".join(" ".join(s) for s in text))
    again = load((model.save(tmp_path / "m"), tmp_path / "m")[1])
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert_allclose(again.score([["a", "new"]]), model.score([["a", "new"]]), rtol=1e-12)
    assert_allclose(again.score(tmp_path / "text"), model.score(text), rtol=1e-12)


def test_words_that_cannot_be_scored_are_named():
    model = KneserNey(2).fit([["a"]])
    with pytest.raises(DataError, match="'new' is not among"):
        model.score([["new"]])
    with pytest.raises(ValueRangeError, match="split it"):
        model.score(iter(["a a"]))
    with pytest.raises(DataError, match="sentence 1: <s> marks"):
        KneserNey(2, min_count=2).fit([["a", "a", "b"]]).score([["a"], ["<s>"]])
    with pytest.raises(ValueRangeError):
        KneserNey(0).fit([["a"]])
    with pytest.raises(ValueRangeError):
        LogBilinear(rate=0).fit([["a"]])


def test_the_gradient_of_the_log_bilinear_model():
    torch.manual_seed(0)
    C, D, K = 5, 3, 2
    tensors = [torch.randn(*shape, dtype=torch.float64) for shape in ((C, D), (K, D, D), (C, D), (C,))]
    contexts, words = np.array([[1, 0], [2, 1], [1, 0], [3, 3]]), np.array([2, 0, 4, 1])
    pieces = _Pieces.of(contexts, words, C, None)
    assert pieces.context.shape == (3, 2)
    batch = next(pieces.batches(100, np.random.default_rng(0)))
    batch = (batch[0], batch[1].double(), *batch[2:])
    torch.set_default_dtype(torch.float64)
    try:
        loss, slopes = gradients(LBLParameters(*tensors), *batch)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_allclose(loss, -log_likelihoods(LBLParameters(*tensors), contexts, words).sum(), rtol=1e-9)
    free = [t.clone().requires_grad_() for t in tensors]
    scores = torch.einsum("bkd,kde->be", free[0][contexts], free[1]) @ free[2].T + free[3]
    torch.nn.functional.cross_entropy(scores, torch.from_numpy(words), reduction="sum").backward()
    for slope, tensor in zip(slopes, free, strict=True):
        assert_allclose(slope.numpy(), tensor.grad.numpy(), rtol=1e-8, atol=1e-12)


def test_many_tiles_on_many_threads_are_one_softmax(monkeypatch):
    monkeypatch.setattr(lbl_training.tiles, "TILE_BYTES", 1 << 18)
    rng = np.random.default_rng(0)
    C, D, K, n = 3000, 7, 2, 250
    shapes = ((C, D), (K, D, D), (C, D), (C,))
    tensors = [torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for shape in shapes]
    contexts, words = rng.integers(0, C, (n, K)), rng.integers(0, C, n)
    p, ones = LBLParameters(*tensors), torch.ones(n)
    loss, slopes = gradients(p, torch.from_numpy(contexts), ones, torch.arange(n), torch.from_numpy(words))
    free = [t.double().requires_grad_() for t in tensors]
    scores = torch.einsum("bkd,kde->be", free[0][contexts], free[1]) @ free[2].T + free[3]
    want = torch.nn.functional.cross_entropy(scores, torch.from_numpy(words), reduction="none")
    want.sum().backward()
    assert_allclose(log_likelihoods(p, contexts, words), -want.detach().numpy(), rtol=1e-5, atol=1e-5)
    assert_allclose(loss, want.detach().sum().item(), rtol=1e-6)
    for slope, tensor in zip(slopes, free, strict=True):
        assert_allclose(slope.numpy(), tensor.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [1, 30, 50, 500])
def test_every_token_is_trained_once_an_epoch(size):
    rng = np.random.default_rng(0)
    contexts, words = rng.integers(0, 3, (500, 2)), rng.integers(0, 7, 500)
    seen = Counter()
    for some, n, rows, targets in _Pieces.of(contexts, words, 7, rng).batches(size, rng):
        assert n.sum() == len(targets) <= size + 16
        seen.update(zip(*some[rows].T.tolist(), targets.tolist(), strict=True))
    assert seen == Counter(zip(*contexts.T.tolist(), words.tolist(), strict=True))


def test_the_log_bilinear_model_learns_and_stops_early():
    rng = np.random.default_rng(0)
    text = [[f"w{(start + i) % 5}" for i in range(6)] for start in rng.integers(0, 5, 200)]
    epochs = []
    model = LogBilinear(1, 6, max_iter=10, batch_size=50, patience=2).fit(text, dev=text[:20], callback=epochs.append)
    assert model.perplexity(text[:20]) < 1.9  # 1.85: five begins, and the end after any word with 1/6
    assert epochs[-1].dev == pytest.approx(max(e.dev for e in epochs), abs=0.1)
    assert len(model.history_) == len(epochs)
    short = LogBilinear(1, 6, max_iter=10).fit(text, callback=lambda epoch: True)
    assert short.reason_ == "stopped by the callback"
    assert len(short.history_) == 1
    timed = LogBilinear(1, 6, max_iter=10, max_seconds=0).fit(text)
    assert timed.reason_ == "the time was over"


def test_nothing_to_score(tmp_path):
    (tmp_path / "text").write_text("a b\n")
    for model in (KneserNey(2), LogBilinear(1, 2, max_iter=1)):
        with pytest.raises(NotFittedError):
            model.perplexity([["a"]])
        model.fit(tmp_path.glob("*"))
        assert model.score([]).shape == (0,)
        assert_allclose(model.score(tmp_path.glob("*")), model.score([["a", "b"]]))
        with pytest.raises(DataError, match="got none"):
            model.perplexity([])


def test_training_does_not_depend_on_threads():
    rng = np.random.default_rng(0)
    text = [[f"w{w}" for w in words] for words in rng.integers(0, 3000, (300, 8))]
    found = []
    for n in (1, 3):
        with threads.num_threads(n):
            found.append(LogBilinear(2, 12, max_iter=1, batch_size=500).fit(text))
    assert np.array_equal(found[0].embeddings_, found[1].embeddings_)
    assert np.array_equal(found[0].score(text[:9]), found[1].score(text[:9]))
