"""Queries of a model on the page: one object per task, which answers with plain data for JSON."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from trelliswork.errors import DataError, TrellisworkError
from trelliswork.explore.requests import BLANKS, Body, RequestError, TokenReader
from trelliswork.models.tasks import LanguageModel, LayeredTagger, Tagger, TreeParser

MAX_LABELS = 24  # rows of a trellis
WORTH = 0.01  # labels that are less probable everywhere are left out
Answer = dict[str, Any]
Abilities = dict[str, Callable[[Body], Answer]]
Rows = Sequence[Mapping[Any, float]]


class Explorer(Protocol):
    """A model behind the page."""

    reader: TokenReader  # format of sentences
    abilities: Abilities  # functions that answer a ``Body``, by name

    def facts(self) -> Answer:
        """Return facts that the page needs: labels, layers, whether evidence can be given."""
        ...


def explorer_of(model: Any) -> Explorer:
    """Return the object that answers for a model."""
    if isinstance(model, LayeredTagger):
        from trelliswork.explore.tagging import LayersExplorer

        return LayersExplorer(model)
    if isinstance(model, Tagger):
        from trelliswork.explore.tagging import TaggerExplorer

        return TaggerExplorer(model)
    if isinstance(model, TreeParser):
        from trelliswork.explore.parsing import GrammarExplorer, ParserExplorer

        return GrammarExplorer(model) if model.constituents else ParserExplorer(model)
    if isinstance(model, LanguageModel):
        from trelliswork.explore.text import TextExplorer

        return TextExplorer(model)
    raise DataError(f"{type(model).__name__} has no page: expected a tagger, a parser or a language model.")


def describe(model: Any, explorer: Explorer, name: str) -> Answer:
    """Return the answer of ``/api/model``."""
    facts = explorer.facts()
    about = [["kind", model.kind], *facts.pop("about", [])]
    words = model.known_words() if hasattr(model, "known_words") else None
    if words is not None:
        about.append(["known words", f"{len(words):,}"])
    if model.report_.reason:
        about.append(["training", model.report_.reason])
    if model.calibration_ is not None:
        about.append(["calibration", str(model.calibration_)])
    reader = explorer.reader
    return {
        "name": name,
        "kind": model.kind,
        "title": model.title,
        "about": about,
        "parameters": {key: _text(value) for key, value in model.get_params().items()},
        "abilities": list(explorer.abilities),
        "input": {"hint": reader.hint(), "example": reader.example(), "max_words": reader.max_words},
        **facts,
    }


def warm_up(explorer: Explorer) -> None:
    """Answer an example once, so that modules and kernels are loaded, or compiled, before somebody waits for them."""
    example = explorer.reader.example()
    blank = " ".join([BLANKS[0], *example.split()[1:]])
    requests = {"score": {"text": example}, "fill": {"sentence": blank}}
    for name in explorer.abilities.keys() & {"tag", "parse", "next", *requests} if example else ():
        with suppress(RequestError, TrellisworkError):  # such as for a model that does not know the words
            explorer.abilities[name](Body(requests.get(name, {"sentence": example})))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."


def plain(value: float) -> float | None:
    """Round a number to six digits; ``None`` for what JSON cannot represent."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def evidence_answer(log_p: float, kind: str) -> Answer:
    """Return the probability of evidence; ``kind`` is exact, lower or estimate."""
    log_p = -math.inf if math.isnan(log_p) else min(log_p, 0.0)
    return {"p": plain(math.exp(log_p)), "log_p": plain(log_p), "kind": kind}


def span_answers(spans: Any) -> list[Answer]:
    """Return spans of a sentence with the probabilities of all their labels together."""
    return [{"type": s.type, "start": s.start, "stop": s.stop, "p": plain(p)} for s, p in spans]


def layer_answer(
    name: str,
    labels: Sequence[str],
    now: tuple[Sequence[str], Rows],
    before: tuple[Sequence[str], Rows] | None,
    named: Collection[str] = (),
) -> Answer:
    """Return one layer of labels: the path, and the probabilities of the labels to show, in the order of ``labels``.

    ``now`` and ``before`` are the best label of each token, and p(label) of each token as a dict; ``before`` is without
    evidence. Labels that the evidence names are always shown.
    """
    both = [now, *([] if before is None else [before])]
    highest = {label: max(row.get(label, 0.0) for _, rows in both for row in rows) for label in labels}
    must = set(named).union(*(path for path, _ in both))
    worth = sorted(labels, key=lambda label: (label not in must, -highest[label]))[: max(MAX_LABELS, len(must))]
    kept = {label for label in worth if label in must or highest[label] >= WORTH}
    shown = [label for label in labels if label in kept]

    def numbers(rows: Rows) -> list[list[float | None]]:
        return [[plain(row.get(label, 0.0)) for label in shown] for row in rows]

    return {
        "name": name,
        "labels": shown,
        "n_labels": len(labels),
        "path": list(now[0]),
        "marginals": numbers(now[1]),
        "before": None if before is None else {"path": list(before[0]), "marginals": numbers(before[1])},
    }
