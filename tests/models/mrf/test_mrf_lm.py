"""The Markov random field language model as its users see it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.oracle import fields
from trelliswork.data.moments import count_moments
from trelliswork.errors import DataError, NotFittedError, ValueRangeError
from trelliswork.inference.lifted import exact
from trelliswork.inference.lifted.potentials import dense
from trelliswork.models import MRFLanguageModel, load
from trelliswork.models.mrf import field as mrf_field
from trelliswork.models.mrf.queries import write_word2vec

TEXT = [s.split() for s in ("a b c a", "b c a", "c c", "a b", "b c c a b", "a", "c a b")] * 3
pytestmark = pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")


def learned(model):
    return model.field_.log_unary, np.array([dense(t) for t in model.field_.tables])


def make(K=2, **options):
    given = {"rank": 3, "l2": 0.1, "max_iter": 15} | options
    if options.get("form") == "full":
        del given["rank"]
    if "algorithm" in options:
        del given["max_iter"]
    return MRFLanguageModel(K, **given).fit(TEXT)


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("form", ["UW", "URW", "full"])
@pytest.mark.parametrize("bound", ["chain", "star"])
def test_likelihoods_are_those_of_the_field(K, form, bound, monkeypatch):
    model = make(K, form=form, bound=bound)
    field = learned(model)
    log_tau = model.field_.log_tau(6)
    assert np.exp(log_tau).sum() < 1
    want = []
    for s in TEXT[:7]:
        ids = tuple(model.vocabulary_.ids(s))
        want.append(fields.sentence_score(*field, ids) - fields.sentence_log_z(*field, len(ids)) + log_tau[len(ids)])
    found = model.log_likelihood_bounds(TEXT[:7])
    assert found.kind == "exact"
    assert_allclose(found.values, want, rtol=1e-6)
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)  # as if there were many words
    below = model.log_likelihood_bounds(TEXT[:7])
    assert (below.values <= np.array(want) + 1e-9).all()
    name = {"chain": "chain", "star": "chain with star weights"}[bound]  # sentences have no star
    assert (below.kind, below.bound) == (("exact", "exact") if K == 1 else ("lower", name))
    assert model.bound_ == ("exact" if K == 1 and bound == "chain" else bound)
    a_position, a_token = model.moment_bound(TEXT)
    assert_allclose(a_token / a_position, model.n_positions_ / model.n_tokens_)
    # The circle pays for its pads: below the sentences, the lengths of which are given to them.
    conditional = np.sum(model.score(TEXT)) - np.sum([log_tau[len(s)] for s in TEXT])
    assert a_position * model.n_positions_ <= conditional + 1e-6


def test_fill_is_the_conditional_of_the_field():
    model = make(2)
    field = learned(model)
    for sentence in ("a ___ c a", "___ b", "___", "a b c ___"):
        words = sentence.split()
        scores = {
            w: fields.sentence_score(*field, tuple(model.vocabulary_.ids([w if v == "___" else v for v in words])))
            for w in "abc"
        }
        total = fields.log_sum(list(scores.values()))
        found = dict(model.fill(sentence))
        assert set(found) == set("abc")
        for w in "abc":
            assert_allclose(found[w], np.exp(scores[w] - total), rtol=1e-6)
    with pytest.raises(ValueRangeError, match="one blank"):
        model.fill("a b")
    with pytest.raises(DataError, match="no unknown word"):
        model.fill("zebra ___")


@pytest.mark.parametrize("K", [1, 2])
def test_samples(K):
    model = make(K)
    drawn = model.sample(200, seed=1)
    assert drawn == model.sample(200, seed=1)
    assert drawn != model.sample(200, seed=2)
    assert {w for s in drawn for w in s} == set("abc")
    assert max(map(len, model.sample(50, max_length=2))) == 2
    means = [np.mean([len(s) for s in text]) for text in (drawn, TEXT)]
    assert abs(means[0] - means[1]) < 0.5


def test_saved_models_are_the_same(tmp_path):
    for n, model in enumerate((make(1), make(2, form="URW"), make(2, form="full"), make(2, weights=(0.7, 0.3)))):
        model.save(tmp_path / str(n))
        again = load(tmp_path / str(n))
        assert isinstance(again, MRFLanguageModel)
        assert (again.score(TEXT) == model.score(TEXT)).all()
        assert again.sample(5) == model.sample(5)
        assert again.moment_bound(TEXT) == model.moment_bound(TEXT)
        assert again.get_params() == model.get_params() or model.weights is not None


def test_moments_are_enough_and_early_stop_keeps_the_best(tmp_path):
    moments, dev = count_moments(TEXT, 2), TEXT[:5]
    steps = []
    model = MRFLanguageModel(rank=3, l2=0.0, max_iter=30, patience=3, tol=0)
    model.fit(moments, dev=dev, callback=lambda step, _: steps.append(step.dev))
    best = max(step.dev for step in model.report_.history)
    assert_allclose(model.moment_bound(dev)[0], best, atol=1e-5)
    assert_allclose(steps, [step.dev for step in model.report_.history])
    with pytest.raises(ValueRangeError, match="K=1 are wanted"):
        MRFLanguageModel(1).fit(moments)


def test_an_interrupted_training_goes_on_to_the_same_model(tmp_path, monkeypatch):
    from trelliswork.learning.checkpoint import Checkpoint

    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    options = {"rank": 3, "l2": 0.1, "max_iter": 12, "tol": 0}
    whole = MRFLanguageModel(2, **options).fit(TEXT, dev=TEXT[:4])

    class PowerError(Exception):
        pass

    def cut(step, _):
        if step.iteration == 5:
            raise PowerError

    path = tmp_path / "run"
    with pytest.raises(PowerError):
        MRFLanguageModel(2, **options).fit(TEXT, dev=TEXT[:4], checkpoint=path, callback=cut)
    assert path.exists()
    again = MRFLanguageModel(2, **options).fit(TEXT, dev=TEXT[:4], checkpoint=path)
    assert not path.exists()
    assert (again.field_.log_unary == whole.field_.log_unary).all()
    assert again.report_.n_iter == whole.report_.n_iter


def test_a_run_that_the_caller_stops_keeps_its_checkpoint(tmp_path):
    options = {"rank": 3, "l2": 0.1, "tol": 0}
    whole = MRFLanguageModel(2, max_iter=12, **options).fit(TEXT, dev=TEXT[:4])
    path = tmp_path / "run"
    first = MRFLanguageModel(2, max_iter=9, **options)
    first.fit(TEXT, dev=TEXT[:4], checkpoint=path, callback=lambda step, _: step.iteration == 5)
    assert (first.report_.reason, first.report_.n_iter) == ("stopped by the caller", 5)
    assert path.exists()
    again = MRFLanguageModel(2, max_iter=12, **options).fit(TEXT, dev=TEXT[:4], checkpoint=path)  # and further
    assert not path.exists()
    assert (again.field_.log_unary == whole.field_.log_unary).all()
    assert again.report_.n_iter == 12
    first.fit(TEXT, dev=TEXT[:4], checkpoint=path, callback=lambda step, _: step.iteration == 5)
    with pytest.raises(DataError, match="other data or settings"):
        MRFLanguageModel(2, max_iter=12, **(options | {"l2": 0.2})).fit(TEXT, dev=TEXT[:4], checkpoint=path)


def test_only_one_chain_with_all_of_the_weight_is_exact():
    """K = 1 by the star's bound, or with less weight, maximises a bound; its likelihood can still be computed."""
    names = {}
    for name, options in (("exact", {}), ("star", {"bound": "star"}), ("chain", {"weights": (0.5,)})):
        model = make(1, **options)
        names[name] = model.bound_
        circle = model.moment_bound(TEXT)[0]
        truth = circle + model.field_.log_z_bound - model.tighten().value
        assert model.tighten().kind == "exact"
        if name == "exact":
            assert_allclose(circle, truth, atol=1e-6)
        else:
            assert circle < truth - 1e-4
        assert (model.evidence_kind, model.evidence_bound) == ("exact", "exact")
    assert names == {name: name for name in names}
    assert make(2, algorithm="pseudo-likelihood", epochs=1).bound_ == "chain"


def test_start_from_the_exact_model_of_one_distance():
    first = make(1, max_iter=40)
    at = MRFLanguageModel(2, rank=3, l2=0.0, weights=(0.97, 0.03), max_iter=1, tol=0).fit(TEXT, start=first)
    assert -at.report_.history[0].value > -make(2, l2=0.0, weights=(0.97, 0.03), max_iter=1).report_.history[0].value
    with pytest.raises(ValueRangeError, match="rank as here"):
        MRFLanguageModel(2, rank=4).fit(TEXT, start=first)


def test_pseudo_likelihood_learns(monkeypatch):
    model = make(2, algorithm="pseudo-likelihood", epochs=8, rate=0.02, batch_size=16)
    values = [step.value for step in model.report_.history]
    assert values[-1] < values[0]
    assert model.report_.value == values[-1]
    truth = model.score(TEXT[:7])
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)
    assert (model.score(TEXT[:7]) <= truth + 1e-9).all()
    pseudo = MRFLanguageModel(2, algorithm="pseudo-likelihood")
    with pytest.raises(ValueRangeError, match="needs the text"):
        pseudo.fit(count_moments(TEXT, 2))
    with pytest.raises(ValueRangeError, match="leave start out"):  # before the text is looked at
        pseudo.fit("there/is/no/such/file", start=model)
    with pytest.raises(ValueRangeError, match="needs the text"):
        pseudo.fit("there/is/no/such/file", dev=count_moments(TEXT, 2))


@pytest.mark.parametrize(("patience", "n_epochs"), [(10, 2), (11, 3), (20, 3), (21, 4), (1000, 6)])
def test_patience_of_pseudo_likelihood_is_in_tenths_of_epochs(patience, n_epochs, monkeypatch):
    worse = iter(range(-1, -100, -1))
    monkeypatch.setattr("trelliswork.models.mrf.pseudo_likelihood.mean_log_p", lambda *_: next(worse))
    model = MRFLanguageModel(1, 3, algorithm="pseudo-likelihood", epochs=6, patience=patience)
    model.fit(TEXT, dev=TEXT[:5])
    assert model.report_.n_iter == n_epochs
    assert model.report_.converged == (n_epochs < 6)
    assert model.report_.value == model.report_.history[0].value  # of the epoch that is kept


def test_counting_is_told(tmp_path):
    (tmp_path / "text").write_text("\n".join(" ".join(s) for s in TEXT))
    steps = []
    MRFLanguageModel(1, 2, max_iter=2).fit(tmp_path / "text", dev=TEXT[:3], counting=lambda s: steps.append(s.n_tokens))
    assert steps[-1] == sum(map(len, TEXT[:3]))
    assert sum(map(len, TEXT)) in steps


def test_estimates_are_near_the_truth(monkeypatch):
    model = make(2)
    truth = model.score(TEXT).sum() / (sum(map(len, TEXT)) + len(TEXT))
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)
    found = model.estimate(TEXT, n_samples=200, n_steps=10)
    assert found.kind == "estimate"
    assert abs(found.per_token - truth) < 5 * found.standard_error + 1e-3


def test_embeddings(tmp_path):
    model = make(2)
    assert model.embeddings_.shape == (4, 3)
    assert [w for w, _ in model.neighbors("a", 5)] in (["b", "c"], ["c", "b"])
    model.export_word2vec(tmp_path / "v.txt")
    lines = (tmp_path / "v.txt").read_text().splitlines()
    assert lines[0] == "3 3"
    assert lines[1].split()[0] == model.vocabulary_[1]
    assert_allclose([float(v) for v in lines[1].split()[1:]], model.embeddings_[1], rtol=1e-5)
    with pytest.raises(DataError, match="cannot be written"):
        model.export_word2vec(tmp_path / "none" / "v.txt")
    with pytest.raises(DataError, match="white space, got 'New York'"):
        write_word2vec(tmp_path / "w.txt", model.embeddings_[1:3], ["a", "New York"])
    with pytest.raises(ValueRangeError, match="no embeddings"):
        make(2, form="full").neighbors("a")
    with pytest.raises(ValueRangeError, match="'zebra' is not among the 3 words"):
        model.neighbors("zebra")


def test_gensim_reads_the_embeddings(tmp_path):
    gensim = pytest.importorskip("gensim")
    words, vectors = ["a", "é", "5\u00a0000", '"'], np.random.default_rng(0).normal(size=(4, 3))
    write_word2vec(tmp_path / "v.txt", vectors, words)
    found = gensim.models.KeyedVectors.load_word2vec_format(tmp_path / "v.txt")
    assert found.index_to_key == words
    assert_allclose(found.vectors, vectors, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "WU"}, "form must be"),
        ({"bound": "tree"}, "bound must be"),
        ({"weights": (0.9, 0.9)}, "weights must be"),
        ({"bound": "star", "weights": (0.5, 0.5)}, "star cover has its own weights"),
        ({"l2": -1}, "l2 must be"),
        ({"rank": 0}, "rank must be"),
        ({"algorithm": "pseudo-likelihood", "form": "full"}, "form='UW'"),
        ({"algorithm": "pseudo-likelihood", "bound": "star"}, "bound has no meaning for algorithm='pseudo"),
        ({"algorithm": "pseudo-likelihood", "weights": np.array([0.5, 0.5])}, "weights has no meaning"),
        ({"algorithm": "pseudo-likelihood", "max_iter": 7}, "max_iter has no meaning"),
        ({"algorithm": "pseudo-likelihood", "memory": 7}, "memory has no meaning"),
        ({"epochs": 3}, "epochs has no meaning for algorithm='lifted'"),
        ({"rate": 0.1}, "rate has no meaning"),
        ({"batch_size": 3}, "batch_size has no meaning"),
        ({"form": "full", "rank": 4}, "no rank"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueRangeError, match=message):
        MRFLanguageModel(2, **options).fit(TEXT)


def test_moments_say_which_words_there_are():
    with pytest.raises(ValueRangeError, match="leave min_count and max_words out"):
        MRFLanguageModel(2, min_count=2).fit(count_moments(TEXT, 2))


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.fill("a ___"),
        lambda m: m.score(TEXT),
        lambda m: m.log_likelihood_bounds(TEXT),
        lambda m: m.perplexity(TEXT),
        lambda m: m.estimate(TEXT),
        lambda m: m.moment_bound(TEXT),
        lambda m: m.tighten(),
        lambda m: m.sample(),
        lambda m: m.neighbors("a"),
        lambda m: m.embeddings_,
        lambda m: m.bound_,
        lambda m: m.evidence_kind,
        lambda m: m.evidence_bound,
        lambda m: m.save("nowhere"),
    ],
)
def test_nothing_learned_yet(ask):
    with pytest.raises(NotFittedError, match="has learned nothing yet"):
        ask(MRFLanguageModel())


def test_means_of_nothing_are_refused():
    model = make(2)
    for ask in (model.perplexity, model.estimate):
        with pytest.raises(DataError, match="no sentence"):
            ask([])
    assert model.score([]).shape == (0,)
    with pytest.raises(ValueRangeError, match="n_samples must be 2 or more"):
        model.estimate(TEXT, n_samples=1)


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("form", ["UW", "URW", "full"])
@pytest.mark.parametrize("bound", ["chain", "star"])
def test_fields_without_a_unary(K, form, bound, monkeypatch, tmp_path):
    """All questions have the answers of a field whose words have no scores of their own."""
    model = make(K, form=form, bound=bound, unary=False)
    log_unary, tables = learned(model)
    assert not log_unary.any()
    assert model.field_.bias is None
    rho = np.concatenate([[1 - model.field_.weights.sum()], model.field_.weights])
    assert_allclose(rho @ model.field_.unaries, 0, atol=1e-12)
    log_tau = model.field_.log_tau(6)
    some = TEXT[:7]
    want = []
    for s in some:
        ids = tuple(model.vocabulary_.ids(s))
        log_z = fields.sentence_log_z(log_unary, tables, len(ids))
        want.append(fields.sentence_score(log_unary, tables, ids) - log_z + log_tau[len(ids)])
    assert_allclose(model.score(some), want, rtol=1e-6)
    words = ["a", "___", "c", "a"]
    scores = [
        fields.sentence_score(log_unary, tables, tuple(model.vocabulary_.ids([w if v == "___" else v for v in words])))
        for w in "abc"
    ]
    filled = dict(model.fill(words))
    assert_allclose([filled[w] for w in "abc"], np.exp(np.array(scores) - fields.log_sum(scores)), rtol=1e-6)
    # Bounds of circles: endless ones, and of N words.
    endless = exact.cyclic_log_z(log_unary, model.field_.tables, 2**18) / 2**18
    assert model.field_.log_z_bound >= endless - 2e-5
    assert model.bound_ == ("exact" if K == 1 and bound == "chain" else bound)
    if model.bound_ == "exact":
        assert_allclose(model.field_.log_z_bound, model.tighten().value, atol=1e-6)
    N = 2 * K + 1
    truth = exact.cyclic_log_z(log_unary, model.field_.tables, N) / N
    assert model.tighten(n_positions=N, max_iter=10).value >= truth - 1e-9
    assert model.tighten("star", max_passes=10).value >= truth - 1e-9
    a_position, _ = model.moment_bound(TEXT)
    assert_allclose(-model.report_.value, a_position, atol=0.2)  # less the penalty
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.unary, again.bias) == (False, False)
    assert (again.score(some) == model.score(some)).all()
    assert again.moment_bound(TEXT) == model.moment_bound(TEXT)
    assert again.sample(5) == model.sample(5)
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)  # as if there were many words
    below = model.log_likelihood_bounds(some)
    assert (below.values <= np.array(want) + 1e-6).all()
    if (K, form) == (2, "UW"):
        guess = model.estimate(some, n_samples=100, n_steps=10)
        per_token = sum(want) / (sum(map(len, some)) + len(some))
        assert abs(guess.per_token - per_token) < 5 * guess.standard_error + 1e-3


@pytest.mark.parametrize("options", [{}, {"bound": "star"}, {"form": "URW"}, {"form": "full"}, {"weights": (0.6, 0.3)}])
@pytest.mark.parametrize("unary", [True, False])
def test_a_bias_of_right_words_is_as_good_as_a_unary(options, unary, tmp_path, monkeypatch):
    plain, biased = make(2, **options), make(2, unary=unary, bias=True, **options)
    assert biased.field_.log_unary.any() == unary
    assert_allclose(biased.field_.bias, plain.field_.log_unary / (2 + unary))
    assert_allclose(biased.score(TEXT), plain.score(TEXT), rtol=1e-9)
    assert_allclose(biased.moment_bound(TEXT), plain.moment_bound(TEXT), rtol=1e-9)
    assert_allclose(dict(biased.fill("a ___"))["b"], dict(plain.fill("a ___"))["b"], rtol=1e-9)
    assert biased.sample(20, seed=3) == plain.sample(20, seed=3)
    assert_allclose(biased.tighten(max_iter=20).value, plain.tighten(max_iter=20).value, atol=1e-6)
    biased.save(tmp_path / "model")
    assert (load(tmp_path / "model").score(TEXT) == biased.score(TEXT)).all()
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)
    assert_allclose(biased.score(TEXT), plain.score(TEXT), rtol=1e-9)  # bounds, too


def test_pseudo_likelihood_without_a_unary_and_with_a_bias():
    options = {"algorithm": "pseudo-likelihood", "epochs": 3, "rate": 0.02, "batch_size": 16}
    bare = make(2, unary=False, **options)
    assert not bare.field_.has_unary
    assert bare.report_.history[-1].value < bare.report_.history[0].value
    biased, plain = make(2, unary=False, bias=True, **options), make(2, **options)
    assert not biased.field_.log_unary.any()
    assert_allclose(biased.score(TEXT), plain.score(TEXT), rtol=1e-6)


def test_starts_with_and_without_a_unary():
    """A training goes on where another one ended."""
    options = {"rank": 3, "l2": 0.1, "max_iter": 1, "tol": 0}
    for K, bound in ((1, "chain"), (2, "chain"), (2, "star")):
        for kind in ({"unary": False}, {"unary": False, "bias": True}):
            first = make(K, bound=bound, **kind)
            begun = MRFLanguageModel(K, bound=bound, **kind, **options).fit(TEXT, start=first)
            assert first.report_.value - 0.01 < begun.report_.value <= first.report_.value + 1e-5
    MRFLanguageModel(2, **options).fit(TEXT, start=make(1, unary=False))
    biased, plain = make(1, bias=True), make(1)
    values = [MRFLanguageModel(2, **options).fit(TEXT, start=s).report_.value for s in (biased, plain)]
    assert_allclose(values[0], values[1], rtol=1e-6)
    with pytest.raises(ValueRangeError, match="start has a unary or a bias"):
        MRFLanguageModel(2, unary=False, **options).fit(TEXT, start=plain)


def test_training_without_a_unary_stops_early_and_goes_on(tmp_path, monkeypatch):
    options = {"rank": 3, "l2": 0.1, "tol": 0, "unary": False}
    whole = MRFLanguageModel(2, max_iter=12, **options).fit(TEXT, dev=TEXT[:4])
    best = max(step.dev for step in whole.report_.history)
    assert_allclose(whole.moment_bound(TEXT[:4])[0], best, atol=1e-5)
    path = tmp_path / "run"
    MRFLanguageModel(2, max_iter=12, **options).fit(
        TEXT, dev=TEXT[:4], checkpoint=path, callback=lambda step, _: step.iteration == 5
    )
    again = MRFLanguageModel(2, max_iter=12, **options).fit(TEXT, dev=TEXT[:4], checkpoint=path)
    assert_allclose(again.moment_bound(TEXT[:4])[0], best, atol=1e-3)  # power iteration begins with other vectors
    MRFLanguageModel(2, max_iter=3, **options).fit(TEXT, dev=TEXT[:4], checkpoint=path, callback=lambda *_: True)
    with pytest.raises(DataError, match="other data or settings"):
        MRFLanguageModel(2, max_iter=12, **(options | {"unary": True})).fit(TEXT, dev=TEXT[:4], checkpoint=path)


@pytest.mark.parametrize("at", [3, 10, 14])  # tenths of epochs: within the first, at its end, within the second
@pytest.mark.parametrize("dev", [None, TEXT[:4]])
def test_pseudo_likelihood_goes_on_after_an_interruption(at, dev, tmp_path, monkeypatch):
    options = {"algorithm": "pseudo-likelihood", "epochs": 3, "rate": 0.05, "batch_size": 4, "rank": 3, "patience": 99}
    whole = MRFLanguageModel(2, **options).fit(TEXT, dev=dev)
    path = tmp_path / "run"
    first = MRFLanguageModel(2, **options)
    first.fit(TEXT, dev=dev, checkpoint=path, callback=lambda step, _: step.iteration == at)
    assert first.report_.reason == "stopped by the caller"
    assert path.exists()
    again = MRFLanguageModel(2, **options).fit(TEXT, dev=dev, checkpoint=path)
    assert not path.exists()
    assert (again.field_.log_unary == whole.field_.log_unary).all()
    assert [step.value for step in again.report_.history] == [step.value for step in whole.report_.history]
    assert again.report_.value == whole.report_.value
    first.fit(TEXT, dev=dev, checkpoint=path, callback=lambda step, _: step.iteration == at)
    with pytest.raises(DataError, match="other data or settings"):
        MRFLanguageModel(2, **(options | {"l2": 1.0})).fit(TEXT, dev=dev, checkpoint=path)
