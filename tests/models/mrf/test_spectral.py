"""The field in closed form: mutual information, its bound, and word vectors in every gauge."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.models.mrf.cases import TEXT, circle_bound, learned, make, tightened
from tests.oracle import fields
from trelliswork.data.moments import count_moments
from trelliswork.errors import ValueRangeError
from trelliswork.inference.lifted.potentials import dense
from trelliswork.models import MRFLanguageModel, load
from trelliswork.models.mrf import spectral
from trelliswork.models.mrf.spectral import positive_information

pytestmark = pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")


@pytest.fixture(autouse=True, scope="module")
def all_words_count_fully():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spectral, "SUBSAMPLE", 0.0)
        yield


@pytest.fixture(scope="module")
def model(all_words_count_fully):
    return make(2, algorithm="spectral", rank=3, l2=2.5)


def window(K):
    """Return the counts of pairs of the text within a window, by hand."""
    words = ["<s>", *count_moments(TEXT, K).vocabulary.items[1:]]
    counts = np.zeros((4, 4))
    for s in TEXT:
        for i, x in enumerate(s):
            for j, y in enumerate(s):
                counts[words.index(x), words.index(y)] += 0 < abs(i - j) <= K
    return counts


def test_tables_of_full_rank_are_the_positive_mutual_information(model):
    counts = window(2)
    n = counts.sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nan_to_num(np.maximum(np.log(counts * counts.sum() / np.outer(n, n)), 0))
    assert information.max() > 0.1
    for rho, table in zip(model._field.weights, model._field.tables, strict=True):
        assert_allclose(dense(table), rho * information, atol=1e-5)


def test_it_is_a_normalized_language_model(model):
    field, log_tau = learned(model), model._field.log_tau(6)
    expected = []
    for s in TEXT[:7]:
        ids = tuple(model._words.ids(s))
        score = fields.sentence_score(*field, ids) - fields.sentence_log_z(*field, len(ids))
        expected.append(score + log_tau[len(ids)])
    assert_allclose(model.log_prob(TEXT[:7]), expected, rtol=1e-6)
    assert_allclose(model.report_.value, -circle_bound(model, TEXT), rtol=1e-6)
    chains = zip(model._field.weights, model._field.tables, model._field.unaries[1:], strict=True)
    roots = [np.abs(np.linalg.eigvals(np.exp(dense(table) / rho + unary))).max() for rho, table, unary in chains]
    assert_allclose(roots, 1, rtol=1e-6)  # of the cover, whose bound of log Z is 0
    assert tightened(model).value <= model._field.log_z_bound + 1e-6
    assert model._field.log_z_bound == 0
    assert model.report_.converged
    assert model.report_.n_iter == 1


def test_unary_is_that_of_the_whole_text(monkeypatch):
    """Subsampling changes the tables only: frequent words stay frequent."""
    text = [["the", w, "of", "the", w] for w in "abcdefgh"] * 2
    monkeypatch.setattr(spectral, "SUBSAMPLE", 0.001)
    few = MRFLanguageModel(2, rank=3, algorithm="spectral", unknown="error").fit(text)
    p = dict(few.fill("___")[0])
    assert max(p, key=p.get) == "the"


def test_development_data_and_saving(model, tmp_path):
    other = make(2, algorithm="spectral", l2=2.5)
    assert other.fit(TEXT, dev=TEXT).report_.dev == pytest.approx(-other.report_.value)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert_allclose(again.vectors(), model.vectors())
    assert_allclose(again.log_prob(TEXT), model.log_prob(TEXT))
    moments = count_moments(TEXT, 2)
    same = MRFLanguageModel(2, rank=3, algorithm="spectral").fit(moments)
    assert_allclose(same.vectors(), model.vectors())


@pytest.mark.parametrize(
    "options", [{"l2": 1.0}, {"form": "URW"}, {"bound": "star"}, {"max_iter": 3}, {"unary": False}, {"patience": 3}]
)
def test_parameters_without_an_effect_are_errors(options):
    with pytest.raises(ValueRangeError, match="has no effect with algorithm='spectral'"):
        made(MRFLanguageModel, algorithm="spectral", **options).fit(TEXT)


def test_other_errors(model):
    with pytest.raises(ValueRangeError, match="leave checkpoint out"):
        MRFLanguageModel(algorithm="spectral").fit(TEXT, checkpoint="x")
    with pytest.raises(ValueRangeError, match="leave start out"):
        MRFLanguageModel(algorithm="spectral").fit(TEXT, start=model)
    with pytest.raises(ValueRangeError, match="full-rank model has no vectors"):
        make(1, form="full").vectors(0.5)


@pytest.mark.parametrize("options", [{}, {"form": "URW"}, {"algorithm": "spectral", "rank": 2, "l2": 2.5}])
def test_word_vectors_are_singular_vectors_of_the_tables(options):
    model = make(2, **options)
    tables = np.hstack(learned(model)[1])
    left, values, _ = np.linalg.svd(tables)
    D = model.rank
    for scaling in (0.0, 0.5, 1.0):
        vectors = model.vectors(scaling)
        want = left[:, :D] * values[:D] ** scaling * np.sqrt(len(left))
        assert_allclose(vectors @ vectors.T, want @ want.T, atol=1e-5 * np.abs(want @ want.T).max())
    gauge = np.array([[1.0, 0.3, 0.0], [0.0, 2.0, 0.1], [0.5, 0.0, 0.7]])[:D, :D]
    factors = dict(model._field.factors)
    factors["left"] = factors["left"] @ gauge
    if model._field.form == "URW":
        factors["middle"] = np.linalg.inv(gauge) @ factors["middle"]
    else:
        factors["right"] = factors["right"] @ np.linalg.inv(gauge).T
    before = model.vectors(0.0)
    object.__setattr__(model._field, "factors", factors)
    after = model.vectors(0.0)
    assert_allclose(after @ after.T, before @ before.T, atol=1e-5 * len(tables))


def test_vectors_of_the_spectral_field_have_unit_columns(model):
    small = make(2, algorithm="spectral", rank=2, l2=2.5)
    assert_allclose((small.vectors() ** 2).mean(0), 1, rtol=1e-4)
    assert_allclose(np.abs(small.vectors(0.0)), np.abs(small.vectors()), atol=1e-4)


def test_information_of_no_pairs_is_empty():
    from scipy.sparse import csr_matrix

    assert positive_information(csr_matrix((3, 3))).nnz == 0
    lonely = MRFLanguageModel(2, rank=2, algorithm="spectral").fit([["a"], ["b"], ["a"]])
    assert np.isfinite(lonely.log_prob([["a"]])).all()
