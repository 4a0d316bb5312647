"""The web application of a worker: routes, API key, limits, and errors as JSON."""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from trelliswork.data.tokenize import Piece
from trelliswork.data.tokenize import tokenizer as load_tokenizer
from trelliswork.errors import LimitError, TrellisworkError
from trelliswork.serve import page
from trelliswork.serve.abilities import Ability, Answers, Named, Options
from trelliswork.serve.engine import Engine, Job
from trelliswork.serve.metrics import Metrics
from trelliswork.serve.openapi import document
from trelliswork.serve.requests import Form, RequestError, Tokens, check_type, read_body, read_json
from trelliswork.serve.settings import Settings

JSON, NDJSON = "application/json", "application/x-ndjson"
SHORT = 8_192  # bytes of a request that is read and answered at once; what takes longer leaves the event loop free
to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Endpoint = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger("trelliswork.serve")


@dataclass(frozen=True)
class Served:
    """A model in memory. A reload makes another one, and requests that have begun keep theirs."""

    name: str
    model: Any
    abilities: dict[str, Ability]
    form: Form


class Asked(NamedTuple):
    """What a request asks: tokens of raw text, if it has any, sentences, options, and the number of words."""

    pieces: list[list[Piece]] | None
    sentences: list[Tokens]
    options: Options
    words: int


class Service:
    """The models of a worker, and the engine that answers."""

    def __init__(self, settings: Settings, named: Named, metrics: Metrics, key: bytes | None = None) -> None:
        self.settings, self.named, self.metrics, self.key = settings, named, metrics, key
        self._split = load_tokenizer(settings.tokenizer)
        self.models: dict[str, Served] = {}
        self.engine = Engine(settings.max_queue, settings.batch_words, self._observe)
        self._texts = Engine(settings.max_queue)  # splits raw text, reads and writes JSON

    def find(self, ability: str, model: str | None) -> tuple[Served, Ability]:
        """Return a model by name, or the only one with an ability."""
        if model is None:
            able = [served for served in self.models.values() if ability in served.abilities]
            if len(able) != 1:
                names = ", ".join(f"/v1/{served.name}/{ability}" for served in able) or self._addresses()
                what = "several models can do this" if able else "no model can do this"
                raise RequestError(what, f"one of {names}", f"/v1/{ability}", status=404)
            return able[0], able[0].abilities[ability]
        served = self.models.get(model)
        if served is None or ability not in served.abilities:
            what = "no such model" if served is None else "this model cannot do this"
            raise RequestError(what, f"one of {self._addresses()}", f"/v1/{model}/{ability}", status=404)
        return served, served.abilities[ability]

    def _addresses(self) -> str:
        return ", ".join(f"/v1/{name}/{ability}" for name, own in self.named.items() for ability in own)

    async def apart(self, raw: bytes, work: Callable[[], Any]) -> Any:
        """Return the result of work on a request, in another thread unless the request is short."""
        if len(raw) <= SHORT:
            return work()
        (result,) = await self.wait(self._texts.submit(None, lambda _: [work()], [None]))
        return result

    def read(self, served: Served, ability: Ability, raw: bytes) -> Asked:
        """Return what a request asks; anything that is not as it should be is an error."""
        fields = read_json(raw)
        if isinstance(fields, dict) and not ability.sentences:
            return Asked(None, [[]], ability.read_options(fields), 0)
        pieces = self._pieces(served, fields) if isinstance(fields, dict) and "text" in fields else None
        given = fields.pop("sentences", None) if isinstance(fields, dict) else None
        if not isinstance(given, list) or not given:
            expected = 'a JSON object with a list of sentences: {"sentences": [...]}, or with {"text": "..."}'
            raise RequestError("the body of the request", expected, fields if given is None else given)
        options = ability.read_options(fields)
        read = served.form.sentence
        sentences = [read(one, f"sentence {n}", ability.blanks) for n, one in enumerate(given)]
        words, longest, most = sum(map(len, sentences)), max(map(len, sentences)), self.settings.max_words
        if words > most:
            raise RequestError("the request", f"at most {most:,} words", f"{words:,} words", status=413)
        if ability.max_words is not None and longest > ability.max_words:
            raise RequestError("the sentence", f"at most {ability.max_words} words", f"{longest} words", status=413)
        return Asked(pieces, sentences, options, words)

    def _pieces(self, served: Served, fields: dict[str, Any]) -> list[list[Piece]]:
        """Put the words of raw text in the place of sentences, and return them.

        A string is split into sentences; each string in a list is one sentence.
        """
        text = fields.pop("text")
        if "sentences" in fields:
            raise RequestError("the fields of the request", "either 'sentences' or 'text'", "both")
        if served.form.kind != "words":
            raise RequestError("field 'text'", f"no raw text, but sentences: {served.form.expected}", "raw text")
        if isinstance(text, list) and all(isinstance(one, str) for one in text):
            pieces = [list(chain.from_iterable(self._split(one))) for one in text]
        else:
            pieces = self._split(text) if isinstance(text, str) else []
        if not all(pieces) or not pieces:
            raise RequestError("field 'text'", "a string with at least one word", text)
        fields["sentences"] = [[piece.text for piece in sentence] for sentence in pieces]
        return pieces

    def submit(self, served: Served, ability: Ability, options: Options, sentences: list[Tokens], words: int) -> Job:
        """Have sentences answered."""

        def compute(items: Any) -> Answers:
            return ability.answer(served.model, items, options)

        together = ability.together and not any(isinstance(value, str | list | dict) for value in options)  # no rules
        key = (id(served), served.name, ability.name, options) if together else None
        return self.engine.submit(key, compute, sentences, words)

    async def wait(self, job: Job) -> Answers:
        """Return the answers of a job; too late is an error."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await job.future
        except TimeoutError:
            what = "the model takes too long" if job.started else "the service is busy"
            status, wait = (504, None) if job.started else (503, 1)
            expected = f"an answer in {self.settings.timeout:g} seconds"
            raise RequestError(what, expected, "none", status=status, wait=wait) from None

    def count(self, served: Served, ability: Ability, n_sentences: int, words: int) -> None:
        """Count answered sentences."""
        which = f'model="{served.name}",ability="{ability.name}"'
        self.metrics.add("sentences_total", which, n_sentences)
        self.metrics.add("words_total", which, words)

    def _observe(self, key: Any, words: int, seconds: float) -> None:
        if key is not None:
            which = f'model="{key[1]}",ability="{key[2]}"'
            self.metrics.add("batches_total", which)
            self.metrics.add("compute_seconds_total", which, seconds)


def _written(model: str, answers: Answers, asked: Asked) -> bytes:
    """Return answers as JSON; those to raw text with their words, and the places of their characters in the text.

    Each answer becomes JSON by a call of its own, so that other threads need not wait for all of them.
    """
    if asked.pieces is not None:
        rows = zip(answers, asked.pieces, strict=True)
        answers = [a | {"words": [p.text for p in own], "places": [[p.start, p.stop] for p in own]} for a, own in rows]
    return f'{{"model":{to_json(model)},"answers":[{",".join(map(to_json, answers))}]}}'.encode(errors="replace")


def create_app(service: Service) -> Starlette:
    """Return the web application of a worker."""
    from trelliswork.serve.stream import Stream

    described = document(service.settings, service.named, has_key=service.key is not None)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "models": list(service.models)})

    async def metrics(request: Request) -> Response:
        service.metrics.set("waiting", service.engine.waiting)
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    async def models(request: Request) -> Response:
        rows = [
            {"name": s.name, "kind": s.model.family, "abilities": list(s.abilities), "sentences": s.form.expected}
            for s in service.models.values()
        ]
        return JSONResponse({"models": rows})

    async def about(request: Request) -> Response:
        name = request.path_params["model"]
        if name not in service.models:
            return _json_error(RequestError("no such model", f"one of {', '.join(service.models)}", name, status=404))
        return JSONResponse(page.facts(service.models[name], service.settings.raw))

    async def ask(request: Request) -> Response:
        began = time.perf_counter()
        name, ability = request.path_params.get("model"), request.path_params["ability"]
        model, status = "", 500
        try:
            served, chosen = service.find(ability, name)
            model = served.name
            types = (JSON, NDJSON) if chosen.sentences else (JSON,)
            if check_type(request.headers.get("content-type"), *types) == NDJSON:
                response: Response = Stream(service, served, chosen, request)
            else:
                raw = await read_body(request.receive, request.headers, service.settings.max_body)
                asked: Asked = await service.apart(raw, partial(service.read, served, chosen, raw))
                job = service.submit(served, chosen, asked.options, asked.sentences, asked.words)
                answers = await service.wait(job)
                service.count(served, chosen, len(asked.sentences), asked.words)
                content = await service.apart(raw, partial(_written, model, answers, asked))
                response = Response(content, media_type=JSON)
            status = response.status_code
            return response
        except ConnectionResetError:  # the client has gone
            status = 400
            return Response(status_code=400)
        except Exception as error:
            refusal = explained(error)
            status = refusal.status
            return _json_error(refusal)
        finally:
            service.metrics.answered(model, ability if model else "other", status, time.perf_counter() - began)

    guarded = partial(_guarded, service)
    routes: list[BaseRoute] = [
        Route("/v1/{ability}", guarded(ask), methods=["POST"]),
        Route("/v1/{model}/{ability}", guarded(ask), methods=["POST"]),
        Route("/healthz", health),
        Route("/metrics", guarded(metrics)),
        Route("/openapi.json", guarded(openapi)),
        Route("/v1/models", guarded(models)),
    ]
    middleware = []
    if service.settings.page:
        routes += [Route("/v1/models/{model}", guarded(about)), *page.routes()]
        middleware.append(Middleware(page.Headers))
    if service.settings.hosts != ("*",):
        hosts = list(service.settings.hosts)
        middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False))
    handlers = {HTTPException: partial(_not_found, service)}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


def _guarded(service: Service, endpoint: Endpoint) -> Endpoint:
    """Let only requests with the API key pass."""
    key = service.key
    if key is None:
        return endpoint

    async def guarded(request: Request) -> Response:
        given = request.headers.get("x-api-key", "")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip()
        if not hmac.compare_digest(given.encode(), key):
            service.metrics.answered("", "other", 401, 0.0)
            got = "another key" if given else "none"
            error = RequestError("the API key", "header 'Authorization: Bearer KEY' or 'X-API-Key: KEY'", got, 401)
            return _json_error(error, {"www-authenticate": "Bearer"})
        return await endpoint(request)

    return guarded


def explained(error: Exception) -> RequestError:
    """Return an error as what the client is told; the details of unforeseen ones go to the log alone."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, LimitError):
        return RequestError(str(error), "less work", "more", status=413)
    if isinstance(error, TrellisworkError):
        return RequestError(str(error), "input that the model can read", "other input")
    _log.error("a request failed", exc_info=error)
    return RequestError("internal error; see the log of the server", "no error", "one", status=500)


def _json_error(error: RequestError, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": error.to_dict()}, error.status, error.headers | (headers or {}))


async def _not_found(service: Service, request: Request, error: Exception) -> Response:
    """Answer unknown addresses and wrong methods."""
    assert isinstance(error, HTTPException)  # the only exceptions it is registered for
    service.metrics.answered("", "other", error.status_code, 0.0)
    expected = "POST /v1/ABILITY or /v1/MODEL/ABILITY, GET /v1/models, /openapi.json, /metrics or /healthz"
    answer = RequestError(str(error.detail), expected, f"{request.method} {request.url.path}", error.status_code)
    return _json_error(answer, dict(error.headers or {}))
