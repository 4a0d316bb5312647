"""The routes of the page: JSON in, JSON out, and nothing that is typed is ever executed."""

import json
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trelliswork.errors import TrellisworkError
from trelliswork.explore.abilities import Answer, Explorer, describe, explorer_of
from trelliswork.explore.requests import MAX_BODY, Body, RequestError
from trelliswork.explore.worker import Worker

STATIC = Path(__file__).parent / "static"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_log = logging.getLogger("trelliswork.explore")


def create_app(model: Any, *, name: str = "", hosts: Sequence[str] = LOOPBACK) -> Starlette:
    """The web application for one model.

    Parameters
    ----------
    model : Estimator
        Any fitted or loaded model.
    name : str
        Of the model, shown on the page.
    hosts : sequence of str
        Names by which the server may be called. Others are refused, so that a page of another site cannot reach it by
        a name that it lets point here (DNS rebinding); ``("*",)`` lets all pass.

    Notes
    -----
    ``GET /`` is the page, ``GET /api/model`` what the model is and can do, ``POST /api/ABILITY`` asks it. Requests are
    JSON with the content type ``application/json``, which no other site's page can send here unasked. Errors are JSON
    too: ``{"what", "wanted", "got"}``; only a wrong ``Host`` is refused before, by a line of plain text.
    """
    explorer, worker = explorer_of(model), Worker()
    about = describe(model, explorer, name)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def facts(request: Request) -> Response:
        return JSONResponse(about)

    async def ask(request: Request) -> Response:
        return await _answer(request, explorer, worker)

    routes = [
        Route("/", page),
        Route("/api/model", facts),
        Route("/api/{ability}", ask, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    middleware = [
        Middleware(_Headers),
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
    ]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={HTTPException: _not_found})


async def _answer(request: Request, explorer: Explorer, worker: Worker) -> Response:
    """Ask the model in its thread; every failure becomes JSON."""
    try:
        ability = request.path_params["ability"]
        if ability not in explorer.abilities:
            raise RequestError(
                "this model has no such ability", f"one of {', '.join(explorer.abilities)}", ability, status=404
            )
        body = Body(await _json(request))
        return JSONResponse(await worker.run(partial(explorer.abilities[ability], body)))
    except RequestError as error:
        return JSONResponse(error.to_dict(), status_code=error.status)
    except TrellisworkError as error:
        return _refusal(str(error), 400)
    except Exception:
        _log.exception("a request failed")
        return _refusal("something went wrong inside; the terminal of the server tells more", 500)


async def _json(request: Request) -> Any:
    """The body as JSON, if it is that and not too long."""
    kind = request.headers.get("content-type", "nothing")
    if kind.split(";")[0].strip().lower() != "application/json":
        raise RequestError("the content type", "application/json", kind, status=415)
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY:
            raise RequestError("the body of the request", f"{MAX_BODY:,} bytes at most", "more", status=413)
    try:
        return json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise RequestError("the body of the request", "JSON", bytes(raw[:60]).decode(errors="replace")) from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _refusal(what: str, status: int) -> JSONResponse:
    answer: Answer = {"what": what, "wanted": None, "got": None}
    return JSONResponse(answer, status_code=status)


async def _not_found(request: Request, error: Exception) -> Response:
    """Unknown addresses and wrong methods."""
    assert isinstance(error, HTTPException)  # it is called for nothing else
    answer = {
        "what": str(error.detail),
        "wanted": "GET /, GET /api/model or POST /api/ABILITY",
        "got": f"{request.method} {request.url.path}"[:80],
    }
    return JSONResponse(answer, status_code=error.status_code, headers=error.headers)


class _Headers:
    """Adds the headers that keep a browser from doing more than the page needs."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        await self.app(scope, receive, send_with_headers)
