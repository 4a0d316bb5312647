"""The web application: routes with JSON in and out, headers, and limits."""

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

from trelliswork.data.tokenize import Tokenizer
from trelliswork.errors import TrellisworkError
from trelliswork.explore.abilities import Answer, Explorer, describe, explorer_of
from trelliswork.explore.requests import MAX_BODY, Body
from trelliswork.serve.engine import Engine
from trelliswork.serve.requests import RequestError, check_type, read_body, read_json
from trelliswork.serve.sockets import LOOPBACK

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
MAX_WAITING = 16  # requests
_log = logging.getLogger("trelliswork.explore")


def create_app(
    model: Any, *, name: str = "", hosts: Sequence[str] = LOOPBACK, split: Tokenizer | None = None
) -> Starlette:
    """Return the web application for one model.

    Parameters
    ----------
    model : Estimator
        Any fitted or loaded model.
    name : str
        Name of the model, shown on the page.
    hosts : sequence of str
        Host names that requests may use. Others are refused, so that a page of another site cannot reach the server by
        a name that resolves to this machine (DNS rebinding); ``("*",)`` allows all.
    split : callable, optional
        A tokenizer of raw text (`data.tokenize.tokenizer`). Default: words are between white space.

    Notes
    -----
    ``GET /`` is the page, ``GET /api/model`` describes the model and its abilities, ``POST /api/ABILITY`` queries it.
    Requests are JSON with the content type ``application/json``, which a page of another site cannot send. Errors are
    JSON too, ``{"what", "expected", "got"}``, except for a wrong ``Host``, which gets a line of plain text.
    """
    explorer, engine = explorer_of(model), Engine(MAX_WAITING, status=503, name="explore")
    explorer.reader.split, explorer.reader.kept = split, model.example_
    about = describe(model, explorer, name)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def facts(request: Request) -> Response:
        return JSONResponse(about)

    async def ask(request: Request) -> Response:
        return await _answer(request, explorer, engine)

    routes = [
        Route("/", page),
        Route("/api/model", facts),
        Route("/api/{ability}", ask, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC, packages=[("trelliswork", "report/shared")])),
    ]
    middleware = [
        Middleware(_Headers),
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
    ]
    app = Starlette(routes=routes, middleware=middleware, exception_handlers={HTTPException: _not_found})
    app.state.explorer = explorer
    return app


async def _answer(request: Request, explorer: Explorer, engine: Engine) -> Response:
    """Query the model in the thread of the engine; every failure becomes JSON."""
    try:
        ability = request.path_params["ability"]
        if ability not in explorer.abilities:
            names = ", ".join(explorer.abilities)
            raise RequestError("this model has no such ability", f"one of {names}", ability, status=404)
        body = Body(await _json(request))
        return JSONResponse(await engine.run(partial(explorer.abilities[ability], body)))
    except RequestError as error:
        return JSONResponse(error.to_dict(), status_code=error.status)
    except TrellisworkError as error:
        return _refusal(str(error), 400)
    except Exception:
        _log.exception("a request failed")
        return _refusal("internal error; see the terminal of the server", 500)


async def _json(request: Request) -> Any:
    """Return the body as JSON; anything else, or a long body, is an error."""
    check_type(request.headers.get("content-type"), "application/json")
    return read_json(await read_body(request.receive, request.headers, MAX_BODY))


def _refusal(what: str, status: int) -> JSONResponse:
    answer: Answer = {"what": what, "expected": None, "got": None}
    return JSONResponse(answer, status_code=status)


async def _not_found(request: Request, error: Exception) -> Response:
    """Answer unknown addresses and wrong methods."""
    assert isinstance(error, HTTPException)  # the only exceptions it is registered for
    answer = {
        "what": str(error.detail),
        "expected": "GET /, GET /api/model or POST /api/ABILITY",
        "got": f"{request.method} {request.url.path}"[:80],
    }
    return JSONResponse(answer, status_code=error.status_code, headers=error.headers)


class _Headers:
    """Adds headers that restrict the browser to the needs of the page."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        await self.app(scope, receive, send_with_headers)
