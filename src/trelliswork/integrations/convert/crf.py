"""CRFs of other tools as ours: the same patterns, attributes and weights, so the same answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trelliswork.data import Vocabulary
from trelliswork.data.files import shorten
from trelliswork.errors import DataError
from trelliswork.features.feature_map import FeatureMap
from trelliswork.features.spelled import SpelledExtractor
from trelliswork.features.templates import Template, parse_template
from trelliswork.integrations.convert.crf_models import ForeignCRF, Weights
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.crf.learned import Learned


def converted(model: ForeignCRF) -> tuple[Learned, dict[str, Any]]:
    """Return the weights of a model of another tool, and the layout of the files that it tags."""
    S = len(model.labels)
    if not S or len(set(model.labels)) < S:
        raise DataError(f"the model of {model.tool} must have distinct labels, got {S} of which some are equal.")
    transitions = model.transitions.copy()
    if not model.patterns:
        features = FeatureMap.from_names(model.names)
        edges, layout = Weights(*(np.empty(0, np.int64),) * 2, np.empty(0)), {"format": "crfsuite"}
        n_edges = 0
    else:
        nodes, pairs, constant = _patterns(model)
        edges, edge_names = _without_constants(model, constant, transitions)
        outside = "_B" if model.tool == "CRF++" else "_x"
        features = FeatureMap.from_spelled(
            SpelledExtractor(nodes, model.names, outside=outside),
            SpelledExtractor(pairs, edge_names, outside=outside, edge=True) if edge_names else None,
        )
        n_edges, layout = len(edge_names), {"format": "columns"}
    order, edge_order = (np.lexsort((w.labels, w.attributes)) for w in (model.state, edges))
    pairs_with_weight = np.flatnonzero(transitions)
    learned = Learned(
        features,
        Vocabulary(model.labels),
        FeatureLayout(
            S,
            len(model.names),
            pairs_with_weight,
            model.state.attributes[order].astype(np.int32),
            model.state.labels[order].astype(np.int16),
            n_edges,
            edges.attributes[edge_order].astype(np.int32),
            edges.labels[edge_order].astype(np.int32),
        ),
        np.concatenate(
            [transitions.reshape(-1)[pairs_with_weight], model.state.weights[order], edges.weights[edge_order]]
        ),
    )
    learned.layout.check()
    n_columns = max([model.n_columns, *(p.n_columns for p in nodes + pairs)]) if model.patterns else 0
    columns = list(range(n_columns))
    return learned, layout | {"columns": columns, "label": len(columns) if columns else None, "separator": None}


def _patterns(model: ForeignCRF) -> tuple[list[Template], list[Template], set[str]]:
    """Return the templates of tokens, those of pairs of labels, and the names of pairs that all positions have."""
    nodes, pairs, constant = [], [], set()
    for line in model.patterns:
        kind = line[:1].lower()
        template = parse_template(line) if model.tool == "CRF++" else wapiti_template(line)
        if template.knowledge:
            raise DataError(f"a template of {model.tool} must be written with %x[row,col], got {shorten(line)}.")
        if kind in "u*":
            nodes.append(template)
        if kind in "b*":
            if template.macros:
                pairs.append(template)
            else:
                constant.add(template.pieces[0])
    return nodes, pairs, constant


def _without_constants(model: ForeignCRF, constant: set[str], transitions: Any) -> tuple[Weights, list[str]]:
    """Return the weights of pairs that depend on words; those of other pairs are added to the transitions."""
    edges = model.edges
    assert edges is not None
    is_constant = np.array([name in constant for name in model.edge_names], bool)
    times = [sum(line == name or line.lower() == name for line in model.patterns) for name in model.edge_names]
    for k in np.flatnonzero(is_constant).tolist():
        own = edges.attributes == k
        transitions.reshape(-1)[edges.labels[own]] += max(1, times[k]) * edges.weights[own]
    kept = ~is_constant[edges.attributes] if len(edges.attributes) else np.empty(0, bool)
    renumbered = np.cumsum(~is_constant) - 1
    left = Weights(renumbered[edges.attributes[kept]], edges.labels[kept], edges.weights[kept])
    return left, [name for name, out in zip(model.edge_names, is_constant.tolist(), strict=True) if not out]


def wapiti_template(line: str) -> Template:
    """Parse a pattern of Wapiti with commands %x; its first character (u, b or *) is a part of the attributes.

    Examples
    --------
    >>> wapiti_template("U:%x[-1,0]/%x[0,0]").pieces
    ('u:', '/', '')
    """
    kind = line[:1].lower()
    if kind not in ("u", "b", "*"):
        raise DataError(f"a pattern of Wapiti starts with u, b or *, got {shorten(line)}.")
    template = parse_template(f"U{line[1:]}", "a pattern of Wapiti")
    return replace(template, name=kind + line[1:], pieces=(kind + template.pieces[0][1:], *template.pieces[1:]))
