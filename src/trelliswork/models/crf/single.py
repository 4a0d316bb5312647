"""Labels of one sentence per call, for programs that tag string by string: what a call costs is most of it."""

from typing import Any, Self

import numpy as np

from trelliswork.features.ready import Items, ReadyExtractor, json_text
from trelliswork.models.crf import CRF
from trelliswork.models.crf.kernels.single import best_labels
from trelliswork.models.crf.weights import LARGEST


class SingleTagger:
    """A frozen CRF of order 1 over ready attributes, which one kernel asks for the best labels of a sentence."""

    def __init__(self, names: tuple[str, ...], *arrays: Any) -> None:
        self._names, self._arrays = names, arrays

    @classmethod
    def of(cls, crf: CRF) -> Self | None:
        """Return the tagger of a frozen CRF; None if its labels take more than its attributes and transitions."""
        learned, frozen = crf._fitted(), crf._frozen
        extractor, layout = learned.features.extractor, learned.layout
        if frozen is None or learned.structure is not None or crf._beam() is not None:
            return None
        if layout.n_edge_attributes or layout.vectors is not None or learned.features.function is not None:
            return None
        if not isinstance(extractor, ReadyExtractor):
            return None
        weights = frozen[1]
        return cls(crf.labels_, extractor.known.arrays, layout.places, weights.arrays, weights.labels, weights.n_labels)

    def tag(self, tokens: Items) -> list[str] | None:
        """Return the best labels; None if they must be found in another way, as where there is an error."""
        out = np.empty(len(tokens), np.int64)
        try:
            text = json_text(tokens)
        except (TypeError, ValueError, RecursionError):
            return None
        if not abs(best_labels(text, True, *self._arrays, out)) <= LARGEST:
            return None
        names = self._names
        return [names[label] for label in out.tolist()]
