"""Compile the kernels of estimators by training and using each on tiny data; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from trelliswork.data.columns import read_columns, write_columns_with
from trelliswork.data.corpus import Column
from trelliswork.data.shares import excerpts
from trelliswork.features.brown import BrownClusters
from trelliswork.inference import warmup as inference
from trelliswork.inference.chain.beam import Beam
from trelliswork.models.crf import CRF
from trelliswork.models.crf.beams.objective import BeamObjective
from trelliswork.models.crf.layout import FeatureLayout, Tokens
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.factorial import FactorialCRF
from trelliswork.models.hmm import HMM
from trelliswork.models.hmm.data import HMMParameters, Sequences
from trelliswork.models.hmm.objective import expected_counts
from trelliswork.models.parser import DependencyParser

X = [["a", "b", "a"], ["b", "a"]]
Y = [["A", "B", "A"], ["B", "A"]]


Task = tuple[str, Callable[[], object]]


def tasks(group: str) -> Iterator[Task]:
    """Yield the name and the call of each task of a group: a model as in ``train``, or a structure of ``inference``.

    The tasks of all groups together reach every kernel, in every precision it is used in.
    """
    yield from _MODELS[group]() if group in _MODELS else inference.tasks(group)


def _crf() -> Iterator[Task]:
    yield "templates", partial(_train, "U:%x[0,0]\nU:%x[-1,0]/%x[0,0]", X)
    yield "preset", partial(_train, "pos", X)
    yield "column files", _columns
    yield "real-valued features", partial(_train, None, [[{w: 0.5} for w in x] for x in X])
    yield "many sentences", partial(_train, "U:%x[0,0]\nU:%x[-1,0]/%x[0,0]", X * 400)
    yield "L1", partial(_train, "U:%x[0,0]", X, l1=0.1)
    yield "edge features", partial(_train, "U:%x[0,0]\nB:%x[0,0]", X)
    yield "hashed features", partial(_train, "U:%x[0,0]", X, hash_bits=4)
    yield "SGD", partial(_train, "U:%x[0,0]", X, algorithm="sgd")
    yield "perceptron", _perceptron
    yield "scores that underflow", _underflow


def _crf_beams() -> Iterator[Task]:
    for name, features in (("templates", "U:%x[0,0]"), ("edge features", "U:%x[0,0]\nB:%x[0,0]")):
        yield name, partial(_beam, features, order=1)
    yield "order 2", partial(_beam, "U:%x[0,0]", order=2)


def _factorial_crf() -> Iterator[Task]:
    for engine in ("bp", "structured_mean_field", "exact"):
        yield engine, partial(_layers, engine)


def _parsers() -> Iterator[Task]:
    for projective in (True, False):
        yield "projective" if projective else "all trees", partial(_parser, projective)


def _hmms() -> Iterator[Task]:
    yield "EM, float32", partial(_hmm, "float32")
    yield "EM, float64", partial(_hmm, "float64")
    yield "order 2", _trigrams


def _language_models() -> Iterator[Task]:
    yield "clusters of words, EM", _language_model


def _grammars() -> Iterator[Task]:
    yield "gradient", _grammar


def _counts() -> Iterator[Task]:
    yield "moments", _moments


def _clusters() -> Iterator[Task]:
    yield "clusters", lambda: BrownClusters(2).fit([["a", "b", "c"], ["b", "a"]])


def _columns() -> None:
    """Read and write a column file as the command ``tag`` does."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_text("a b\n\n" * 2000)
        for part in excerpts(path, blank_lines=True, first=1):
            corpus = read_columns(part, keep_lines=True, allow_empty=True)
            write_columns_with(corpus, [Column(["c"], np.zeros(corpus.n_tokens, np.int64))], StringIO())


def _beam(features: str, order: int) -> object:
    """Also call the objective directly: with few states a beam is not faster, and training would not use it."""
    crf = CRF(features, order=order, beam="kl=0.1,min=1", scheme=None, tol=0.1).fit(X, Y)
    crf.predict_marginals(X)
    tokens = Tokens(np.array([0, 2]), np.array([0, 1, 2]), np.array([0, 0], np.int32))
    edges = Tokens(tokens.offsets, np.array([0, 0, 1]), np.zeros(1, np.int32)) if "B" in features else None
    given = Tokens(tokens.offsets, tokens.token_ptr, tokens.ids, None, edges)
    gold, n_edges = np.zeros(2, np.int32), 0 if edges is None else 1
    layouts = [FeatureLayout.all_pairs(1, 5, n_edges)]
    if edges is None:
        layouts.append(FeatureLayout.observed(given, gold, 1, 5))
    for layout in layouts:
        objective = BeamObjective(given, gold, layout, beam=Beam("size", size=1), completes=True, full_first=False)
        weights = np.zeros(layout.n_features)
        weights[len(layout.transitions)] = 3.0  # of the first label, which the beam keeps
        objective.hold(weights)
        objective(weights)
        objective.release()
        objective(weights)
    return crf.predict(X)


def _parser(projective: bool) -> object:
    """Train both orders on partial trees and labels, and use every method of prediction."""
    parser = DependencyParser(
        2, projective=projective, hash_bits=10, max_iter=1, options={"max_iter_second_order": 1, "max_iter_labels": 1}
    )
    tagged = [list(zip(x, y, y, strict=True)) for x, y in zip(X, Y, strict=True)]
    trees: Any = [[(2, "a"), (0, "b"), (None, "a")], [(2, "a"), (0, "b")]]
    DependencyParser(1, projective=projective, hash_bits=10, max_iter=1, dropout=0.5).fit(tagged, trees)
    parser.fit(tagged, trees)
    parser.predict_topk(tagged, 2)
    parser.predict(tagged, decoding="mbr-las")
    return parser.parse(tagged)


def _layers(engine: Any) -> object:
    crf = FactorialCRF(("one", "two"), features="U:%x[0,0]", engine=engine, tol=0.1)
    return crf.fit(X, [[(label, label.lower()) for label in y] for y in Y]).predict_marginals(X)


def _hmm(dtype: Literal["float32", "float64"]) -> object:
    """Run EM with few sentences and with many, log space, and tagging."""
    hmm = HMM(2, options={"dtype": dtype}, max_iter=6, tol=0).fit(X)
    HMM(2, options={"dtype": dtype}, max_iter=1, tol=0).fit([[f"w{k}" for k in range(16)]] * 64)
    hmm.predict(X, decoding="mbr")
    hmm.predict_topk(X, 2)
    zero = np.log(np.array([[0.5, 0.5], [0.5, 0.5]]))
    impossible = np.array([[0.0, -np.inf], [-2000.0, 0.0]])
    for log_transition in (zero, impossible):
        parameters = HMMParameters(np.log([0.5, 0.5]), log_transition, None, zero)
        sequences = Sequences(np.array([0, 3]), np.array([0, 1, 0], np.int32), np.array([-1, 1, -1], np.int32))
        expected_counts(parameters, sequences, dtype=dtype)
    return hmm.predict(X)


def _moments() -> object:
    """Count text as bytes and as sentences, and merge two blocks, in memory and on disk."""
    from pathlib import Path

    from trelliswork.data.ids import tokenized_block
    from trelliswork.data.moments import count_moments
    from trelliswork.data.text import Lines
    from trelliswork.models.baselines.kneser_ney import KneserNey

    tokenized_block(b"a b\n", Path("text"), 1)
    model = KneserNey(2).fit(X)
    plain, arrays = model._state()  # arrays of a fitted model cannot be changed, those of a loaded one can
    loaded = KneserNey._from_state(plain, {name: array.copy() for name, array in arrays.items()})
    loaded.score(Lines(" ".join(x) for x in X))  # a stream of sentences
    return count_moments(X * 9, 2, memory_limit=1), model.log_evidence(X), loaded.score(X)


def _language_model() -> object:
    from trelliswork.models.hmm_lm import HMMLanguageModel

    HMMLanguageModel(3, hidden=4, clusters=1, max_iter=1).fit(X)
    return HMMLanguageModel(2, hidden=4, em_iterations=1, max_iter=1).fit(X).perplexity(X)


def _grammar() -> object:
    from trelliswork.models.pcfg import PCFG

    return PCFG(1, n_preterminals=1, max_iter=1).fit(X).predict(X)


def _trigrams() -> object:
    hmm = HMM(order=2).fit(X, Y)
    hmm.log_evidence(X)
    return hmm.predict(X), hmm.predict(X, decoding="mbr")


def _underflow() -> object:
    """Evaluate transition weights of -1000 and 1000, which underflow in float32; shared, and with edge features."""
    tokens = Tokens(np.array([0, 2]), np.array([0, 1, 2]), np.array([0, 0], np.int32))
    pairs = Tokens(tokens.offsets, np.array([0, 0, 1]), np.zeros(1, np.int32))
    weights = 1000.0 * np.array([-1, 1, 1, -1, 1, -1, 1, 1, 1, 1])
    values = []
    for n_edges, edges in ((0, None), (1, pairs)):
        layout = FeatureLayout.all_pairs(1, 2, n_edges)
        given = Tokens(tokens.offsets, tokens.token_ptr, tokens.ids, None, edges)
        values.append(ChainObjective(given, np.array([0, 0], np.int32), layout)(weights[: layout.n_features]))
    return values


def _perceptron() -> object:
    """Train with a label scheme, which is checked per sentence, and a set of labels."""
    crf = CRF("U:%x[0,0]", algorithm="perceptron", scheme="bio")
    return crf.fit(X, [["B-A", {"I-A", "O"}, "O"], ["O", "O"]]).predict(X)


def _train(features: str | None, sentences: list, **options: Any) -> object:
    labels = Y * (len(sentences) // len(Y))
    return CRF(features, scheme=None, tol=0.1, **options).fit(sentences, labels).predict(sentences)


_MODELS: dict[str, Callable[[], Iterator[Task]]] = {
    "crf": _crf,
    "crf-beams": _crf_beams,
    "hmm": _hmms,
    "parser": _parsers,
    "hmm-lm": _language_models,
    "factorial-crf": _factorial_crf,
    "pcfg": _grammars,
    "cluster": _clusters,
    "kneser-ney": _counts,
    "lbl": _counts,
    "mrf": _counts,
    "mrf-tagger": _counts,
}
NAMES = (*_MODELS, *inference.STRUCTURES)
# Groups that together compile everything, the longest first, a model after the structure that it uses.
ALL = (
    *("chain.beam", "chain", "crf", "graph", "crf-beams", "tree.second_order", "hmm", "tree", "span", "lowrank"),
    *("factorial", "parser", "hmm-lm", "factorial-crf", "pcfg", "cluster", "mrf"),
)
WITH_TORCH = {"lowrank", "hmm-lm"}  # groups of models that need the extra
