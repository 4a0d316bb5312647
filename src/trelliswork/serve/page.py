"""The page of models in a browser: static files, headers that restrict the browser, and facts about a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trelliswork.answers import layer_labels
from trelliswork.models.tasks import LanguageModel, LayeredTagger, Tagger, TreeParser
from trelliswork.report.learned import embeddings
from trelliswork.serve.posterior import has_all_rules

if TYPE_CHECKING:
    from trelliswork.serve.app import Served

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
SIZES = {"order": "order", "context_size": "context size", "rank": "rank", "_n_states": "states"}
Facts = dict[str, Any]


def routes() -> list[BaseRoute]:
    """Return the routes of the page."""
    files = StaticFiles(directory=STATIC, packages=[("trelliswork", "report/shared")])
    return [Route("/", lambda request: FileResponse(STATIC / "index.html")), Mount("/static", files)]


class Headers:
    """Adds headers that restrict the browser to the needs of the page."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *RAW_HEADERS]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


def facts(served: "Served", raw: bool) -> Facts:
    """Return what the page says about a model, and what it needs for requests."""
    model, form = served.model, served.form
    about = [["kind", model.family], *_about(model)]
    words = model.known_words() if hasattr(model, "known_words") else None
    more = {"known words": words and f"{len(words):,}", "training": model.report_.reason}
    more["calibration"] = model.calibration_ and str(model.calibration_)
    about += [[name, text] for name, text in more.items() if text]
    vectors, constituents = embeddings(model) is not None, isinstance(model, TreeParser) and model.constituents
    return {
        "name": served.name,
        "kind": model.family,
        "title": model._title,
        "about": about,
        "parameters": {key: _short(value) for key, value in model.get_params().items()},
        "abilities": [name for name in served.abilities if name != "neighbors" or vectors],
        "form": {"kind": form.kind, "columns": form.n_columns, "lower": form.lower},
        "raw": raw and form.kind == "words",
        "example": model.example_ or [],
        "layers": _layers(model),
        "constituents": constituents,
        "evidence": isinstance(model, Tagger | TreeParser) and not (constituents and not has_all_rules(model)),
        "score": {
            "kind": model.kind,
            "end": bool(getattr(model, "end", True)),
            "any_word": type(None) in model._tokens,
        },
        "word": _frequent_word(model) if vectors else "",
    }


def _layers(model: Any) -> list[Facts]:
    """Return names and labels of the layers of labels, or of hidden states."""
    if isinstance(model, Tagger):
        return [{"name": name or "label", "labels": list(own)} for name, own in layer_labels(model).items()]
    states = hasattr(model, "predict_marginals") and not isinstance(model, TreeParser)
    return [{"name": "state", "labels": [f"#{z}" for z in range(model._n_states)]}] if states else []


def _about(model: Any) -> list[list[str]]:
    """Return lines about the size of a model."""
    if isinstance(model, LayeredTagger):
        layers = ", ".join(f"{name} ({len(labels)})" for name, labels in layer_labels(model).items())
        return [["layers", layers], ["engine", model.engine]]  # type: ignore[attr-defined]
    if isinstance(model, Tagger):
        order = getattr(model, "order", 1)
        return [["labels", f"{len(model.labels_):,}"], *([["order", str(order)]] if order != 1 else [])]
    if isinstance(model, TreeParser) and model.constituents:
        N, P, _ = model._grammar.sizes  # type: ignore[attr-defined]
        rank = getattr(model, "rank", None)
        return [["symbols", f"{N} over phrases, {P} over words"], *([["rank", str(rank)]] if rank is not None else [])]
    if isinstance(model, LanguageModel):
        sizes = [(title, getattr(model, name, None)) for name, title in SIZES.items()]
        full = getattr(model, "form", "") == "full"
        return [[title, f"{n:,}"] for title, n in sizes if isinstance(n, int) and not (full and title == "rank")]
    labels = model.labels_
    return [
        ["order", str(model.describe().facts["order"])],
        ["trees", "projective" if model.projective else "any"],
        ["arc labels", "none" if labels is None else f"{len(labels)}"],
    ]


def _frequent_word(model: Any) -> str:
    """Return a first word to look up: a frequent one of some length."""
    items = model.vocabulary_[1:400]
    return next((word for word in items if len(word) > 3 and word.isalpha()), items[0] if items else "")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."
