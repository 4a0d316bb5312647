"""CRFs in groups of processes: the same attributes, objectives, weights and metrics on all ranks as in one process."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.models.crf.beams.test_objective import problem_of
from tests.processes import on_ranks
from trelliswork import CRF
from trelliswork.compute.sharing import Group
from trelliswork.data import AttributeCorpus, bundled
from trelliswork.errors import ProcessError
from trelliswork.features.feature_map import FeatureMap
from trelliswork.inference.chain.beam import Beam
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models.crf.beams.objective import BeamObjective
from trelliswork.models.crf.beams.start import counted_start, sampled_start
from trelliswork.models.crf.problem import Labeling

HERE = "tests.models.crf.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks
WORDS = [list(s.words) for s in bundled.load("train")[:24]]
TAGS = [list(s.tags) for s in bundled.load("train")[:24]]
CHUNKS = [list(s.chunks) for s in bundled.load("train")[:24]]
NEW = [list(s.words) for s in bundled.load("test")[:15]]
NEW_TAGS = [list(s.tags) for s in bundled.load("test")[:15]]
SMALL = "U0:%x[0,0]\nU1:%x[-1,0]"
CUTS = {2: [0, 15, 24], 3: [0, 10, 10, 24]}  # the second of three ranks has no sentences


def own(group, items):
    if group.size == 1:
        return items
    start, stop = CUTS[group.size][group.rank : group.rank + 2]
    return items[start:stop]


def around(sentence, t):
    return {"word": sentence[t], "length": len(sentence[t]) / 4, "first": t == 0}


def as_corpus(sentences):
    """Return what a reader of CRFsuite files would."""
    rows = [[(f"w={w}", 1.0), (f"s={w[-2:]}", 0.5)] for sentence in sentences for w in sentence]
    names = list(dict.fromkeys(name for row in rows for name, _ in row))
    number = {name: k for k, name in enumerate(names)}
    return AttributeCorpus(
        ["X"] * len(rows),
        np.concatenate([[0], np.cumsum([len(s) for s in sentences], dtype=np.int64)]),
        np.arange(len(rows) + 1) * 2,
        np.array([number[name] for row in rows for name, _ in row], np.int32),
        np.array([value for row in rows for _, value in row]),
        names,
    )


def partly(y):
    """Leave out labels of the first sentences, and with them of the first rank."""
    return [[None if t % 3 == 0 else tag for t, tag in enumerate(s)] if n < 5 else s for n, s in enumerate(y)]


CASES = {
    "templates": {"features": SMALL, "min_count": 2},
    "edges": {"features": SMALL + "\nB0:%x[0,0]", "min_count": 2},
    "function": {"features": around, "min_count": 3},
    "corpus": {"features": None, "min_count": 2},
    "hashed": {"features": SMALL, "hash_bits": 10},
    "partly": {"features": SMALL, "label_weight": {"NN": 2.0}},
    "l1": {"features": SMALL, "l1": 0.3, "l2": 0.1},
    "order": {"features": "U0:%x[0,0]", "order": 2},
    "beam": {"features": SMALL, "beam": "kl=0.001,min=10"},
    "auto": {"features": SMALL, "beam": "kl=auto"},
}


LARGER = ("templates", "function", "partly", "auto")  # with three ranks


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def learned(crf):
    """Return all that a model knows: names of attributes, labels, and bits of its arrays."""
    plain, arrays = crf._learned.state()
    return [crf._learned.features.names()[:5000], list(crf.labels_), plain["n_attributes"], digest(*arrays.values())]


def train(group, case, options):
    options = {"tol": 1e-8, "l2": 1.0, "scheme": None, **CASES[case], **options}
    X, y, new, weight = own(group, WORDS), own(group, TAGS), NEW, None
    if case == "corpus":
        X, new = as_corpus(X), as_corpus(NEW)
    if case == "order":
        y = own(group, CHUNKS)
    if case == "partly":
        y, weight = own(group, partly(TAGS)), own(group, np.linspace(0.5, 1.5, len(TAGS)))
    crf = made(CRF, **options).fit(X, y, sample_weight=weight)
    beam = crf.report_.beam
    states = None if beam is None else [beam.n_positions, beam.mean_size]
    # A labeling is clear if it is better than the second best one by more than rounding.
    two_best = [None] * len(NEW) if "beam" in options else crf.predict_topk(new, 2)
    clear = [pair is None or len(pair) < 2 or pair[0][1] > 1.001 * pair[1][1] for pair in two_best]
    best = [None if pair is None else pair[0][1] for pair in two_best]
    return [learned(crf), crf.report_.value, list(zip(crf.predict(new), clear, best, strict=True)), states]


@pytest.mark.parametrize(("case", "size"), [(case, 3 if case in LARGER else 2) for case in CASES])
def test_training_ends_as_in_one_process(case, size):
    alone = train(Group(), case, {})
    together = on_ranks(size, f"{HERE}:train", case, {})
    assert all(result == together[0] for result in together)  # bit for bit
    (names, labels, n, _), value, predicted, states = together[0]
    assert [names, labels, n] == alone[0][:3]
    exact = case not in ("beam", "auto")
    assert value == pytest.approx(alone[1], rel=1e-6 if exact else 1e-3)
    if exact:
        clear = [n for n, (one, two) in enumerate(zip(predicted, alone[2], strict=True)) if one[1] and two[1]]
        assert len(clear) > len(predicted) / 2
        assert [predicted[n][0] for n in clear] == [alone[2][n][0] for n in clear]
        assert [p for _, _, p in predicted] == pytest.approx([p for _, _, p in alone[2]], rel=0.02)  # also of ties
    if states is not None:
        assert states == pytest.approx(alone[3], rel=0.05)
    if case in ("templates", "auto"):
        assert on_ranks(size, f"{HERE}:train", case, {}) == together


def attributes(group, kind):
    """Return the attributes of this rank's sentences by name."""
    X = own(group, WORDS)
    features, X = {
        "templates": (SMALL + "/%x[0,1]", [[(w, w[-1:]) for w in s] for s in X]),
        "lists": (None, [[[w, w[:1]] for w in s] for s in X]),
        "corpus": (None, as_corpus(X)),
    }[kind]
    found = FeatureMap(features, min_count=3)
    part = found.fit(X)
    return [part.n_attributes, found.names(), [found.names()[a] for a in part.ids.tolist()]]


@pytest.mark.parametrize("kind", ["templates", "lists", "corpus"])
def test_attributes_are_those_of_all_sentences(kind):
    n, names, rows = attributes(Group(), kind)
    for size in CUTS:
        together = on_ranks(size, f"{HERE}:attributes", kind)
        assert all(result[:2] == [n, names] for result in together)
        assert [name for result in together for name in result[2]] == rows


def no_sentences(group):
    try:
        CRF(SMALL).fit([], [])
    except Exception as error:
        return str(error)


def test_no_sentences_at_all():
    assert on_ranks(2, f"{HERE}:no_sentences") == [no_sentences(Group())] * 2
    assert "at least one sentence" in no_sentences(Group())


def held_beams(group, case):
    """Return value and gradient of an objective with states outside, where they were chosen and elsewhere."""
    problem, w = problem_of(*case)
    start, stop = group.share(30)
    which = np.arange(start, stop) if group.size < 3 else np.arange(30 * (group.rank == 1))
    tokens, token = problem.tokens.sentences(which)
    labeling, weights = Labeling(problem.labeling.gold[token]), problem.weights[which]
    own = replace(problem.given, tokens=tokens, labeling=labeling, weights=weights)
    objective = BeamObjective(own, beam=Beam.parse("size=2"), l2=0.1, completes=True)
    objective.hold(w)
    results = [list(objective(w + k)) for k in (0.0, 0.1)]
    saved, _ = objective.held()
    counted = counted_start(own)
    return [[value, gradient.tolist()] for value, gradient in results] + [saved["statistics"], counted.tolist()]


@pytest.mark.parametrize("case", [(14, "all_pairs", False, 0), (16, "observed", True, 0)])
def test_states_outside_of_beams(case):
    alone = held_beams(Group(), case)
    for size in (2, 3):
        together = on_ranks(size, f"{HERE}:held_beams", case)
        assert all(result == together[0] for result in together)
        for (value, gradient), (expected, slopes) in zip(together[0][:2], alone[:2], strict=True):
            assert value == pytest.approx(expected, rel=1e-6)
            assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-4)
        assert together[0][2] == pytest.approx(alone[2])
        assert_allclose(together[0][3], alone[3], rtol=1e-9)


def sample(group):
    problem, _ = problem_of(5, "observed", False, 0)
    which = np.tile(np.arange(30), 10)
    which = which[slice(*group.share(300))]
    tokens, token = problem.tokens.sentences(which)
    known = Labeling(problem.labeling.gold[token])
    own = replace(problem.given, tokens=tokens, labeling=known, weights=None)
    weights, n = sampled_start(own, l2=0.1, max_iter=6)
    return [weights.tolist(), n]


def test_the_sample_for_a_start_is_that_of_one_process():
    weights, n = sample(Group())
    for found, iterations in on_ranks(2, f"{HERE}:sample"):
        assert iterations == n > 0
        assert_allclose(found, weights, atol=1e-4)


def online(group):
    for algorithm in ("sgd", "perceptron"):
        with pytest.raises(ProcessError, match=f"training by {algorithm} takes small steps"):
            CRF(SMALL, algorithm=algorithm).fit(WORDS, TAGS)
    with pytest.raises(ProcessError, match="small steps"):
        CRF(SMALL, algorithm="sgd", options={"hash_bits": 9}).partial_fit(WORDS, TAGS)
    return True


def test_small_steps_are_refused():
    assert on_ranks(2, f"{HERE}:online") == [True, True]


def develop(group, scheme):
    y, gold = (CHUNKS, [list(s.chunks) for s in bundled.load("test")[:15]]) if scheme else (TAGS, NEW_TAGS)
    n = 15 if scheme else 2  # fewer than ranks
    crf = CRF(SMALL, patience=3).fit(own(group, WORDS), own(group, y), dev=(NEW[:n], gold[:n]))
    report = evaluate_tagging(gold[:n], crf.predict(NEW[:n]))
    measured = report.chunks.f1 if scheme else report.accuracy
    return [crf.report_.dev, measured, [step.dev for step in crf.report_.history]]


@pytest.mark.parametrize("scheme", [True, False])
def test_development_data_are_shared(scheme):
    for size in CUTS:
        together = on_ranks(size, f"{HERE}:develop", scheme)
        assert all(result == together[0] for result in together)
        assert together[0][0] == together[0][1] == max(together[0][2])


RESUMED = {
    "lbfgs": {"features": around, "l2": 0.5},
    "beam": {"features": SMALL, "beam": "size=3", "l2": 0.5},
}


def resume(group, case, path, stop):
    options = {"tol": 1e-6, "scheme": None} | RESUMED[case]
    crf = made(CRF, **options).fit(
        own(group, WORDS),
        own(group, TAGS),
        dev=(NEW, NEW_TAGS),
        checkpoint=path,
        callback=lambda step: group.rank == 1 and step.iteration == stop,
    )
    return [digest(crf._learned.weights), [step.value for step in crf.report_.history]]


@pytest.mark.parametrize("case", RESUMED)
def test_an_interrupted_training_goes_on(case, tmp_path):
    whole = on_ranks(2, f"{HERE}:resume", case, None, 0)
    path = str(tmp_path / "run.ckpt")
    interrupted = on_ranks(2, f"{HERE}:resume", case, path, 4)
    assert interrupted[0] == interrupted[1] != whole[0]
    assert on_ranks(2, f"{HERE}:resume", case, path, 0) == whole
