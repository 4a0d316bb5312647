"""The web application: routes with JSON in and out, headers, limits, and the thread that computes."""

import asyncio
import json
import logging
import queue
import threading
import warnings
from collections.abc import Callable, Sequence
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
from trelliswork.explore.requests import MAX_BODY, Body, RequestError

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
MAX_WAITING = 16  # requests
Job = tuple[Callable[[], Answer], "asyncio.Future[Answer]", asyncio.AbstractEventLoop]
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
    explorer, worker = explorer_of(model), Worker()
    explorer.reader.split = split
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
    app = Starlette(routes=routes, middleware=middleware, exception_handlers={HTTPException: _not_found})
    app.state.explorer = explorer
    return app


async def _answer(request: Request, explorer: Explorer, worker: "Worker") -> Response:
    """Query the model in the worker thread; every failure becomes JSON."""
    try:
        ability = request.path_params["ability"]
        if ability not in explorer.abilities:
            names = ", ".join(explorer.abilities)
            raise RequestError("this model has no such ability", f"one of {names}", ability, status=404)
        body = Body(await _json(request))
        return JSONResponse(await worker.run(partial(explorer.abilities[ability], body)))
    except RequestError as error:
        return JSONResponse(error.to_dict(), status_code=error.status)
    except TrellisworkError as error:
        return _refusal(str(error), 400)
    except Exception:
        _log.exception("a request failed")
        return _refusal("internal error; see the terminal of the server", 500)


async def _json(request: Request) -> Any:
    """Return the body as JSON; anything else, or a long body, is an error."""
    kind = request.headers.get("content-type", "nothing")
    if kind.split(";")[0].strip().lower() != "application/json":
        raise RequestError("the content type", "application/json", kind, status=415)
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY:
            raise RequestError("the body of the request", f"at most {MAX_BODY:,} bytes", "more", status=413)
    try:
        return json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise RequestError("the body of the request", "JSON", bytes(raw[:60]).decode(errors="replace")) from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


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


class Worker:
    """Runs functions one after the other in a daemon thread, so that the server keeps answering."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[Job] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """Return the result of ``work``; texts of its warnings are added as ``notes``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="explore", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        try:
            self._jobs.put_nowait((work, future, loop))
        except queue.Full:
            expected = f"at most {MAX_WAITING} waiting"
            raise RequestError("too many requests at once", expected, "one more", status=503) from None
        return await future

    def _work(self) -> None:
        while True:
            work, future, loop = self._jobs.get()
            if future.cancelled():  # the client has gone
                continue
            result, error = None, None
            try:
                with warnings.catch_warnings(record=True) as notes:
                    warnings.simplefilter("always", UserWarning)
                    result = work()
                if notes:
                    result["notes"] = list(dict.fromkeys(str(note.message) for note in notes))
            except Exception as raised:  # reported to the client: the thread continues
                error = raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
