"""Labels as users write them, also partly known, as arrays for the learner; and what a label scheme makes of them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_shape
from trelliswork.data import Vocabulary
from trelliswork.data.schemes import Scheme, allowed_transitions
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.models.crf.layout import Allowed, Labelling
from trelliswork.models.evidence import Labels, names_of


def label_vocabulary(y: Labels) -> Vocabulary:
    """All labels that occur, alone or in a set."""
    if all(isinstance(token, str) for sentence in y for token in sentence):
        return Vocabulary.from_sequences(y)  # type: ignore[arg-type]
    return Vocabulary.from_sequences(
        [label for token in sentence if token is not None for label in names_of(token)] for sentence in y
    )


def read_labelling(attributes: Attributes, y: Labels, labels: Vocabulary) -> Labelling:
    """What is known about each token."""
    if len(y) != len(attributes):
        raise ShapeError(f"X and y must pair up, got {len(attributes)} and {len(y)} sentences.")
    sizes = np.diff(attributes.offsets).tolist()
    for n, (sentence, size) in enumerate(zip(y, sizes, strict=True)):
        if len(sentence) != size:
            raise ShapeError(f"sentence {n} has {size} tokens and {len(sentence)} labels: they must be as many.")
    partly = [not all(isinstance(token, str) for token in sentence) for sentence in y]
    gold = np.array(
        [
            i
            for sentence, part in zip(y, partly, strict=True)
            for i in ([-1] * len(sentence) if part else labels.ids(sentence))  # type: ignore[arg-type]
        ],
        np.int32,
    )
    if not any(partly):
        return Labelling(gold)
    S = len(labels)
    numbers: dict[tuple[int, ...], int] = {}
    set_ids = np.full(len(gold), -1, np.int32)
    for n, sentence in enumerate(y):
        if partly[n]:
            for t, token in enumerate(sentence):
                if token is not None and len(token) == 0:
                    raise DataError(
                        f"sentence {n}, token {t}: an empty set of labels; None says that all are possible."
                    )
                ids = tuple(range(S)) if token is None else tuple(sorted(set(labels.ids(names_of(token)))))
                set_ids[attributes.offsets[n] + t] = numbers.setdefault(ids, len(numbers))
    sets = np.zeros((len(numbers), S), bool)
    for ids, number in numbers.items():
        sets[number, list(ids)] = True
    return Labelling(gold, sets, set_ids)


def sentence_weights(sample_weight: object, n_sentences: int) -> NDArray[np.float32] | None:
    """How much each sentence counts, checked."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, np.float32)
    check_shape("sample_weight", weights.shape, "n_sentences", n_sentences=n_sentences)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueRangeError("sample_weight must hold finite numbers that are not negative.")
    return weights


def label_weight_array(label_weight: Mapping[str, float] | None, labels: Vocabulary) -> NDArray[np.float64] | None:
    """(S,): 1 for labels that are not named."""
    if not label_weight:
        return None
    out = np.ones(len(labels))
    for name, weight in label_weight.items():
        if name not in labels:
            raise ValueRangeError(f"label_weight names {name!r}, which no token has; there are {', '.join(labels)}.")
        if not 0 < weight < np.inf:
            raise ValueRangeError(f"label_weight of {name!r} must be positive and finite, got {weight}.")
        out[labels.id(name)] = weight
    return out


def allowed_by(labels: Vocabulary, scheme: Scheme | None) -> Allowed | None:
    """What the scheme allows; ``None`` without one."""
    return None if scheme is None else Allowed(*allowed_transitions(labels.items, scheme))


def check_scheme(y: Labels, labels: Vocabulary, allowed: Allowed, scheme: Scheme | None) -> None:
    """Training labels that the scheme forbids would have probability zero: refuse them with their place."""
    for n, sentence in enumerate(y):
        ids = [labels.id(token) if isinstance(token, str) else None for token in sentence]
        bad = [
            (t, f"after {sentence[t - 1]}")
            for t in range(1, len(ids))
            if None not in (ids[t - 1], ids[t]) and not allowed.pairs[ids[t - 1], ids[t]]
        ]
        bad += [(0, "at the start")] * (ids[0] is not None and not allowed.start[ids[0]])
        bad += [(len(ids) - 1, "at the end")] * (ids[-1] is not None and not allowed.end[ids[-1]])
        for t, where in bad[:1]:
            raise DataError(
                f"sentence {n}, token {t}: {sentence[t]} {where} is not allowed in the scheme {scheme!r}. "
                "Mend the labels, or use scheme=None."
            )
