"""Displays of objects in notebooks: the pictures of the report, self-contained, for light and dark pages."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from trelliswork.compute.display import Names
from trelliswork.data import Tree
from trelliswork.errors import LimitError
from trelliswork.learning.report import FitReport
from trelliswork.models.base import Estimator
from trelliswork.report.curves import learning_curves
from trelliswork.report.page import Html, element, number, shortened, side_by_side, stylesheet
from trelliswork.report.structures import automaton, constituent_tree, dependency_tree, trellis
from trelliswork.report.tables import bars, facts, shown_value
from trelliswork.rules import Rule

SHOWN = 3  # sequences of a batch
MOST_WORDS, MOST_VARIABLES = 80, 60
MOST_STATES = 12  # of an automaton
_CLASS = "trelliswork-display"
# Notebooks may be dark where the system is light, and the other way round.
_DARK = ('[data-jp-theme-light="false"]', ".vscode-dark", '[data-theme="dark"]')
_LIGHT = ('[data-jp-theme-light="true"]', ".vscode-light", '[data-theme="light"]')


def display(shown: Any) -> str:
    """Return the display of an estimator, a `FitReport`, a rule, or a distribution over structures."""
    if isinstance(shown, FitReport):
        blocks = _report(shown)
    elif isinstance(shown, Rule):
        blocks = _rule(shown)
    elif isinstance(shown, Estimator):
        blocks = _estimator(shown)
    else:
        blocks = _distribution(shown)
    return framed(*blocks)


def framed(*blocks: Html) -> str:
    """Return pieces of a report with their style, for notebooks."""
    return str(element("div", element("style", Html(_style())), *blocks, class_=_CLASS))


@lru_cache(maxsize=1)
def _style() -> str:
    """Return the style of pages, limited to displays: everything is nested in their class."""
    css = stylesheet()
    themes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    rules = re.sub(r"(?m)^html \{.*\}$|^@media \(prefers-reduced-motion.*$|^@media print.*$", "", css)
    rules = rules.replace(":root {", "& {").replace("\nbody {", "\n& {").replace("margin: 0; background", "background")
    rules = re.sub(r"(?m)^(header|section|footer|nav)\b.*$", "", rules)  # of pages only
    rules = re.sub(r"(\d)rem\b", r"\1em", rules)  # relative to the display, not to the page around it
    rules = rules.replace("minmax(min(100%, 400px)", "minmax(min(100%, 300px)")  # cells are narrower than pages
    rules = re.sub(r"(?ms)^@media \(max-width: 600px\) \{.*?^\}", "", rules)
    chosen = [
        f"{', '.join(f'{where} .{_CLASS}' for where in places)} {{{theme}}}"
        for places, theme in ((_LIGHT, themes[0]), (_DARK, themes[1]))
    ]
    extra = f".{_CLASS} {{ padding: 12px 16px; font-size: 14px; overflow-x: auto; }}"
    return "\n".join([f".{_CLASS} {{\n{rules}\n}}", *chosen, extra])


def _report(report: FitReport) -> list[Html]:
    rows: list[tuple[str, object]] = [("end", report.reason), ("converged", "yes" if report.converged else "no")]
    if report.n_iter:
        rows.append(("iterations", f"{report.n_iter:,}"))
    if not math.isnan(report.value):
        rows.append(("objective", number(report.value)))
    if report.dev is not None:
        rows.append((f"development data, {report.metric}", number(report.dev)))
    if report.seconds:
        rows.append(("seconds", number(report.seconds)))
    table = facts(rows, title="Training")
    return [side_by_side(table, *learning_curves(SimpleNamespace(report_=report)))]


def _estimator(model: Estimator) -> list[Html]:
    parameters: list[tuple[str, object]] = [(k, shortened(repr(v), 80)) for k, v in model.get_params().items()]
    table = facts(parameters, title=f"{type(model).__name__}: parameters")
    if not model.__sklearn_is_fitted__():
        return [table, element("p", "Not fitted.")]
    described = model.describe(5)
    about = [(key, shortened(str(shown_value(value)), 80)) for key, value in described.facts.items()]
    return [side_by_side(table, facts(about, title=described.title)), *_report(model.report_)]


def _rule(rule: Rule) -> list[Html]:
    """Return a rule as text, and its automaton over the names in it; all other labels are one."""
    text, names = element("p", element("code", repr(rule))), [*rule.names, "others"]
    try:
        table = rule.automaton(names, "run")
    except LimitError:
        return [text, element("p", "The automaton is too large to be drawn.", class_="note")]
    live = np.flatnonzero(table.live).tolist()
    if not 0 < len(live) <= MOST_STATES:
        return [text, element("p", f"An automaton of {len(live):,} states.", class_="note")]
    read = [[_read(names, table.step[q] == r) for r in live] for q in live]
    pairs = {(q + 1, r + 1): some for q, row in enumerate(read) for r, some in enumerate(row) if some and q != r}
    loops = [row[q] for q, row in enumerate(read)]
    note = "It starts on the left and accepts in rings; labels without an arrow break the rule."
    return [text, automaton(pairs, loops, table.final[live].tolist(), note=note)]


def _read(names: list[str], which: Any) -> str:
    """Return the labels that an arrow reads as text."""
    some, others = ([name for name, hit in zip(names, which, strict=True) if hit == chosen] for chosen in (True, False))
    if not others:
        return "any"
    if some and len(others) < len(some):
        return f"all but {shortened(', '.join(others))}"
    return shortened(", ".join(some))


def _distribution(shown: Any) -> list[Html]:
    from trelliswork.distributions import Alignment, FactorGraph, LinearChain, NgramChain, SemiMarkovChain
    from trelliswork.distributions.dependency_tree import DependencyTree

    names = getattr(shown, "names", None)
    if isinstance(shown, FactorGraph):
        return _graph(shown)
    chain, arcs = isinstance(shown, LinearChain | NgramChain), isinstance(shown, DependencyTree)
    draw = _chain if chain else _arcs if arcs else _brackets
    lengths = shown.lengths.tolist()
    drawn = [] if isinstance(shown, Alignment | SemiMarkovChain) else lengths[:SHOWN]
    blocks = [draw(shown, b, n, names) for b, n in enumerate(drawn) if n <= MOST_WORDS]
    left = len(lengths) - len(blocks)
    more = [element("p", f"{left} more of this batch not shown: {shown!r}", class_="note")] if left else []
    log_z = ", ".join(number(float(value)) for value in shown.log_partition()[:SHOWN])
    return [*blocks, *more, element("p", f"log Z: {log_z} ({shown.kind})", class_="note")]


def _words(names: Names | None, n: int) -> list[str]:
    return names.words if names is not None and len(names.words) == n else [str(t + 1) for t in range(n)]


def _labels(names: Names | None, n: int) -> list[str]:
    return names.labels if names is not None and len(names.labels) == n else [str(k) for k in range(n)]


def _chain(chain: Any, b: int, n: int, names: Names | None) -> Html:
    marginals = chain.marginals()[b, :n].detach().cpu().numpy()
    labels = _labels(names, marginals.shape[1])
    path = [labels[k] for k in chain.mode[b, :n].tolist()]
    return trellis(_words(names, n), labels, marginals, path)


def _arcs(tree: Any, b: int, n: int, names: Names | None) -> Html:
    best = tree.mbr().value[b, :n]
    marginals = tree.marginals()[b].detach().cpu().numpy()
    if tree.labeled:
        labels = _labels(names, marginals.shape[2])
        heads, which = best[:, 0].tolist(), [labels[k] for k in best[:, 1].tolist()]
        marginals = marginals.sum(axis=2)
    else:
        heads, which = best.tolist(), None
    p = [float(marginals[head, t + 1]) for t, head in enumerate(heads)]
    return dependency_tree(_words(names, n), heads, which, p)


def _brackets(tree: Any, b: int, n: int, names: Names | None) -> Html:
    chart = tree.mbr().value[b, :n, :n].detach().cpu().numpy()
    marginals = tree.marginals()[b].detach().cpu().numpy()
    labels = _labels(names, marginals.shape[2]) if marginals.ndim == 3 else [""]
    p = marginals.sum(axis=2) if marginals.ndim == 3 else marginals
    spans = {(int(i), int(j)): float(p[i, j]) for i, j in np.argwhere(chart >= 0) if i < j}
    words, inside = _words(names, n), {*spans, *((i, i) for i in range(n))}

    def node(i: int, j: int) -> Tree:
        name = labels[chart[i, j]] if chart[i, j] >= 0 and len(labels) > chart[i, j] else ""
        if i == j:
            return Tree(name or "·", (words[i],))
        cut = next((k for k in range(j - 1, i - 1, -1) if {(i, k), (k + 1, j)} <= inside), j - 1)
        return Tree(name or "·", (node(i, cut), node(cut + 1, j)))

    return (
        constituent_tree(node(0, n - 1), {(i, j + 1): q for (i, j), q in spans.items()})
        if n > 1
        else element("p", " ".join(words))
    )


def _graph(graph: Any) -> list[Html]:
    """Return sizes, and the most probable states of the first graph."""
    wiring = graph._wiring
    V = wiring.n_variables
    rows: list[tuple[str, object]] = [
        ("variables", f"{V:,}"),
        ("states", " to ".join(f"{k:,}" for k in sorted({min(wiring.n_states), max(wiring.n_states)})) if V else "0"),
        ("factors", f"{wiring.n_factors:,}"),
        ("graphs", f"{wiring.n_graphs:,}"),
        ("engine", graph.engine),
    ]
    blocks = [facts(rows, title="Factor graph")]
    if not 0 < V <= MOST_VARIABLES:
        return blocks
    marginals = [m.detach().cpu().numpy() for m in graph.marginals()[0]]
    best = [int(np.argmax(m[: wiring.n_states[v]])) for v, m in enumerate(marginals)]
    listed = [(f"x{v} = {k}", float(marginals[v][k])) for v, k in enumerate(best)]
    return [side_by_side(*blocks, bars(listed, title="Most probable state of each variable"))]
