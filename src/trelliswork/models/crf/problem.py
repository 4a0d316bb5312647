"""A training problem of a CRF: labeled sentences, which weights there are, and constraints."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import ValueRangeError
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.models.crf.beams.structure import Structure
from trelliswork.models.crf.layout import Allowed, FeatureLayout, Floats
from trelliswork.models.crf.tokens import Labeling, Tokens
from trelliswork.rules import Rule, parse
from trelliswork.rules.chains import Ruled


@dataclass(frozen=True)
class Problem:
    """What every objective of a CRF is made of; by default all labels and pairs of labels are allowed."""

    tokens: Tokens
    labeling: Labeling
    layout: FeatureLayout
    weights: Floats | None = None  # (n_sentences,)
    label_weights: Floats | None = None  # (S,)
    allowed: Allowed | None = None
    structure: Structure | None = None  # for order 2 and above, and under rules

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        return self.layout.n_features + (0 if self.structure is None else self.structure.n_weights)

    @property
    def alpha(self) -> NDArray[np.float32]:
        """The weight of each sentence (n_sentences,)."""
        n = len(self.tokens.offsets) - 1
        return np.ones(n, np.float32) if self.weights is None else np.asarray(self.weights, np.float32)

    def under(self, rules: Rule | str, labels: Vocabulary) -> tuple["Problem", Ruled]:
        """Return the same problem over the labelings that satisfy rules, and what answers queries about those."""
        if self.layout.n_edge_attributes or self.layout.vectors is not None:
            raise ValueRangeError("training under rules supports neither B templates with columns nor vectors.")
        ruled = Ruled.of(parse(rules) if isinstance(rules, str) else rules, labels.names)
        free = self.structure or Structure.ngrams(self.layout.n_labels, [self.layout.transitions])
        layout = replace(self.layout, transitions=np.empty(0, np.int64))
        return replace(self, layout=layout, structure=free.under(ruled.joint(range(len(ruled.parts))))), ruled

    def fingerprint(self, parameters: dict[str, Any], dev: Sequence[Sequence[Any]] | None) -> str:
        """Return the mark of a run on this data with these parameters and development labels, for a checkpoint."""
        tokens, known = self.tokens, self.labeling
        plain = parameters | {"dev": None if dev is None else [list(sentence) for sentence in dev]}
        edges = None if tokens.edges is None else tokens.edges.ids
        arrays = tokens.offsets, tokens.ids, tokens.values, edges, known.gold, known.sets, known.set_ids
        return fingerprint(plain, *arrays, self.weights, self.layout.vectors)
