"""Training data of a CRF as arrays: attributes, labels (some of them perhaps unknown), and allowed transitions."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_shape
from trelliswork.compute.padding import pad
from trelliswork.data import Corpus, Vocabulary
from trelliswork.data.files import shorten
from trelliswork.data.schemes import N_PLACES, FileScheme, Scheme, allowed_transitions, detect_scheme, standard_labels
from trelliswork.errors import DataError, DataWarning, ShapeError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.learning import whole
from trelliswork.models.crf.beams.structure import Structure, observed_ngrams
from trelliswork.models.crf.layout import Allowed, FeatureLayout
from trelliswork.models.crf.problem import Labeling, Problem, Tokens
from trelliswork.models.evidence import Labels, names_of
from trelliswork.rules import Rule
from trelliswork.rules.chains import Ruled


def prepare(
    attributes: Attributes,
    y: Labels,
    labels: Vocabulary,
    scheme: Scheme | None = None,
    *,
    feature_set: str = "observed",
    label_weights: NDArray[np.float64] | None = None,
    sample_weight: object = None,
    order: int = 1,
) -> Problem:
    """Return the problem of attributes and labels, checked against each other, with the weights of a feature set."""
    labeling = read_labeling(attributes, y, labels)
    allowed = allowed_by(labels, scheme)
    if allowed is not None:
        check_scheme(y, labels, allowed, scheme)
    tokens, n_edges = Tokens.of(attributes), 0 if attributes.edges is None else attributes.edges.n_attributes
    every, seen = (
        partial(make, n_attributes=attributes.n_attributes, n_labels=len(labels), n_edge_attributes=n_edges)
        for make in (FeatureLayout.all_pairs, partial(FeatureLayout.observed, tokens, labeling))
    )
    layout = every() if feature_set in ("all", "all-states") else seen()
    if feature_set == "all-transitions":
        layout = replace(layout, transitions=np.arange(len(labels) ** 2))
    elif feature_set == "all-states":
        layout = replace(layout, transitions=seen().transitions)
    tokens, layout, structure = Tokens.with_vectors(attributes).without_zeros(), layout.for_data(attributes), None
    if order > 1:
        structure = _structure(tokens, labeling, layout, order)
        layout = replace(layout, transitions=np.empty(0, np.int64))
    weights = sentence_weights(sample_weight, len(attributes))
    return Problem(tokens, labeling, layout, weights, label_weights, allowed, structure)


def _structure(tokens: Tokens, labeling: Labeling, layout: FeatureLayout, order: int) -> Structure:
    """Return weights for the label pairs of the layout and for the longer n-grams that occur."""
    if not labeling.complete:
        raise ValueRangeError(f"order={order} needs a label at every token: use order=1 for partly labeled data.")
    if layout.n_edge_attributes:
        raise ValueRangeError(
            f"order={order} does not support B templates with columns: leave them out, or use order=1."
        )
    grams = observed_ngrams(labeling.gold, tokens.offsets, layout.n_labels, order)[1:]
    return Structure.ngrams(layout.n_labels, [layout.transitions, *map(whole.union, grams)])


def label_vocabulary(y: Labels) -> Vocabulary:
    """Return all labels that occur, alone or in a set."""
    if all(isinstance(token, str) for sentence in y for token in sentence):
        return Vocabulary.from_sequences(y)  # type: ignore[arg-type]
    return Vocabulary.from_sequences(
        [label for token in sentence if token is not None for label in names_of(token)] for sentence in y
    )


def read_labeling(attributes: Attributes, y: Labels, labels: Vocabulary) -> Labeling:
    """Return the known labels of all tokens as arrays."""
    if len(y) != len(attributes):
        raise ShapeError(f"X and y must pair up, got {len(attributes)} and {len(y)} sentences.")
    sizes = np.diff(attributes.offsets).tolist()
    for n, (sentence, size) in enumerate(zip(y, sizes, strict=True)):
        if len(sentence) != size:
            raise ShapeError(f"sentence {n} has {size} tokens but {len(sentence)} labels.")
    partly = [not all(isinstance(token, str) for token in sentence) for sentence in y]
    rows = [[-1] * len(row) if part else labels.ids(row) for row, part in zip(y, partly, strict=True)]  # type: ignore[arg-type]
    gold = np.array(list(chain.from_iterable(rows)), np.int32)
    if not any(partly):
        return Labeling(gold)
    S = len(labels)
    numbers: dict[tuple[int, ...], int] = {}
    set_ids = np.full(len(gold), -1, np.int32)
    for n, sentence in enumerate(y):
        if partly[n]:
            for t, token in enumerate(sentence):
                if token is not None and len(token) == 0:
                    raise DataError(
                        f"sentence {n}, token {t}: an empty set of labels; use None if all labels are possible."
                    )
                ids = tuple(range(S)) if token is None else tuple(sorted(set(labels.ids(names_of(token)))))
                set_ids[attributes.offsets[n] + t] = numbers.setdefault(ids, len(numbers))
    sets = np.zeros((len(numbers), S), bool)
    for ids, number in numbers.items():
        sets[number, list(ids)] = True
    return Labeling(gold, sets, set_ids)


def sentence_weights(sample_weight: object, n_sentences: int) -> NDArray[np.float32] | None:
    """Return the checked weights of the sentences."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, np.float32)
    check_shape("sample_weight", weights.shape, "n_sentences", n_sentences=n_sentences)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueRangeError("sample_weight must be finite and not negative.")
    if not whole.anywhere(bool(weights.any())):
        raise ValueRangeError("sample_weight must have a positive weight, got only zeros: nothing would be learned.")
    return weights


def label_weight_array(label_weight: Mapping[str, float] | None, labels: Vocabulary) -> NDArray[np.float64] | None:
    """Return the weights of all labels (S,); 1 for labels that are not named."""
    if not label_weight:
        return None
    out = np.ones(len(labels))
    for name, weight in label_weight.items():
        if name not in labels:
            raise ValueRangeError(f"label_weight names {shorten(name)}, which is none of {', '.join(labels)}.")
        if not 0 < weight < np.inf:
            raise ValueRangeError(f"label_weight of {shorten(name)} must be positive and finite, got {weight}.")
        out[labels.id(name)] = weight
    return out


def allowed_by(labels: Vocabulary, scheme: Scheme | None) -> Allowed | None:
    """Return the transitions that a scheme allows; ``None`` without a scheme."""
    return None if scheme is None else Allowed(*allowed_transitions(labels.items, scheme))


def in_scheme(y: Labels, scheme: FileScheme | Literal["auto"] | None, name: str = "y") -> tuple[Labels, Scheme | None]:
    """Return labels in BIO or BIOES and their scheme, with a warning if they were in another one, or broke theirs.

    Sentences that are labeled in part are left as they are.
    """
    if scheme is None:
        return y, None
    full = [n for n, row in enumerate(y) if all(isinstance(label, str) for label in row)]
    found = standard_labels([y[n] for n in full], scheme)  # type: ignore[misc]
    places = [f"sentence {full[n]}, token {t}" for n, t in found.breaks[:N_PLACES]]
    for text in filter(None, (found.text, found.broken(places))):
        warnings.warn(f"{name}: {text}.", DataWarning, stacklevel=4)
    if len(full) < len(y):  # parts may tell more than whole sentences
        names = label_vocabulary(y)
        target = detect_scheme(names) if scheme == "auto" and found.scheme is None else found.target
    else:
        target = found.target
    if not found.text and not found.breaks:
        return y, target
    rows = list(y)
    for n, row in zip(full, found.labels, strict=True):
        rows[n] = row
    return rows, target


def satisfying(X: Any, y: Labels, rules: Rule | str, on_violation: str, weights: Any) -> tuple[Any, Labels, Any]:
    """Return the sentences, labels and weights of training whose labels satisfy rules; or raise an error for others."""
    if on_violation not in ("error", "skip"):
        raise ValueRangeError(f"on_violation must be 'error' or 'skip', got {on_violation!r}.")
    if not all(isinstance(token, str) for sentence in y for token in sentence):
        raise ValueRangeError("training under rules needs one label per token: label the sentences fully.")
    names, lengths = label_vocabulary(y), np.array([len(sentence) for sentence in y], np.int64)
    ids = pad(np.array(names.ids(chain.from_iterable(y)), np.int64), lengths)  # type: ignore[arg-type]
    ruled = Ruled.of(rules, names.names)
    broken = ruled.broken(ids, lengths)
    for n in np.flatnonzero(broken.any(axis=1)).tolist() if on_violation == "error" else ():
        problem = f"sentence {n}: its labels break {ruled.parts[int(broken[n].argmax())]!r}"
        raise DataError(f"{problem}. Correct them, or leave such sentences out with on_violation='skip'.").at(n)
    kept = np.flatnonzero(~broken.any(axis=1)).tolist()
    if len(kept) == len(y):
        return X, y, weights
    columns = [X.sentences(c) for c in range(len(X.columns))] if isinstance(X, Corpus) else [X]
    rows = columns[0] if len(columns) == 1 else [list(zip(*row, strict=True)) for row in zip(*columns, strict=True)]
    return [rows[n] for n in kept], [y[n] for n in kept], None if weights is None else np.asarray(weights)[kept]


def check_scheme(y: Labels, labels: Vocabulary, allowed: Allowed, scheme: Scheme | None) -> None:
    """Raise an error for training labels that the scheme forbids: their probability would be zero."""
    for n, sentence in enumerate(y):
        ids = [labels.id(token) if isinstance(token, str) else None for token in sentence]
        bad = [
            (t, f"after {shorten(sentence[t - 1])[1:-1]}")
            for t in range(1, len(ids))
            if None not in (ids[t - 1], ids[t]) and not allowed.pairs[ids[t - 1], ids[t]]
        ]
        bad += [(0, "at the start")] * (ids[0] is not None and not allowed.start[ids[0]])
        bad += [(len(ids) - 1, "at the end")] * (ids[-1] is not None and not allowed.end[ids[-1]])
        for t, where in bad[:1]:
            raise DataError(
                f"sentence {n}, token {t}: {shorten(sentence[t])[1:-1]} {where} is not allowed in the scheme "
                f"{scheme!r}. Correct it, or allow such labels with scheme=None (--scheme none)."
            ).at(n, t)
