"""What a CRF learns from, as arrays: made from attributes and labels, and recognised again by a checkpoint."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.schemes import Scheme
from trelliswork.errors import ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.learning.checkpoint import Checkpoint, fingerprint
from trelliswork.models.crf.beams.layout import Structure, observed_ngrams
from trelliswork.models.crf.labels import allowed_by, check_scheme, read_labelling, sentence_weights
from trelliswork.models.crf.layout import Allowed, FeatureLayout, Labelling, Tokens
from trelliswork.models.crf.scoring import tokens_of
from trelliswork.models.evidence import Labels


@dataclass(frozen=True)
class Problem:
    """What is to be learned from."""

    tokens: Tokens
    labelling: Labelling
    layout: FeatureLayout
    sentence_weights: NDArray[np.float32] | None
    label_weights: NDArray[np.float64] | None
    allowed: Allowed | None
    structure: Structure | None = None  # of the second order and above

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        return self.layout.n_features + (0 if self.structure is None else self.structure.n_weights)


def prepare(
    attributes: Attributes,
    y: Labels,
    labels: Vocabulary,
    scheme: Scheme | None,
    feature_set: str,
    label_weights: NDArray[np.float64] | None,
    sample_weight: object,
    layout: FeatureLayout | None = None,
    order: int = 1,
) -> Problem:
    """Check that attributes and labels fit together; without a layout make that of the ``feature_set``."""
    labelling = read_labelling(attributes, y, labels)
    allowed = allowed_by(labels, scheme)
    if allowed is not None:
        check_scheme(y, labels, allowed, scheme)
    tokens = tokens_of(attributes)
    if layout is None:
        sizes = (attributes.n_attributes, len(labels), 0 if attributes.edges is None else attributes.edges.n_attributes)
        all_pairs = feature_set == "all"
        layout = FeatureLayout.all_pairs(*sizes) if all_pairs else FeatureLayout.observed(tokens, labelling, *sizes)
    structure = None
    if order > 1:
        structure = _structure(tokens, labelling, layout, order)
        layout = replace(layout, transitions=np.empty(0, np.int64))
    weights = sentence_weights(sample_weight, len(attributes))
    return Problem(tokens, labelling, layout, weights, label_weights, allowed, structure)


def _structure(tokens: Tokens, labelling: Labelling, layout: FeatureLayout, order: int) -> Structure:
    """Weights for the pairs of labels of the layout and for the longer n-grams that occur."""
    if not labelling.complete:
        raise ValueRangeError(f"order={order} needs a label at every token: use order=1 for partly labelled data.")
    if layout.n_edge_attributes:
        raise ValueRangeError(f"order={order} knows no B templates with columns: leave them out, or use order=1.")
    grams = observed_ngrams(labelling.gold, tokens.offsets, layout.n_labels, order)
    return Structure.ngrams(layout.n_labels, [layout.transitions, *grams[1:]])


def open_checkpoint(
    path: str | os.PathLike[str], problem: Problem, parameters: dict[str, Any], dev: Sequence[Sequence[str]] | None
) -> Checkpoint:
    """The checkpoint of a run on this problem with these parameters and development labels."""
    tokens, labelling = problem.tokens, problem.labelling
    plain = parameters | {"dev": None if dev is None else [list(sentence) for sentence in dev]}
    edges = None if tokens.edges is None else tokens.edges.ids
    text = fingerprint(
        plain, tokens.offsets, tokens.ids, tokens.values, edges, labelling.gold, labelling.sets, labelling.set_ids,
        problem.sentence_weights,
    )  # fmt: skip
    return Checkpoint(path, text)
