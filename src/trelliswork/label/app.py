"""The web application of the labeling page. Requests, errors, headers and access are as in the service."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from trelliswork.data.reading import FileFormat
from trelliswork.data.tokenize import Tokenizer
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.label.pool import Task, read_pool, record, write_columns, write_records
from trelliswork.label.session import Session
from trelliswork.models.tasks import LayeredTagger, Tagger
from trelliswork.serve.app import JSON, explained
from trelliswork.serve.page import Headers
from trelliswork.serve.requests import Form, RequestError, check_type, read_body, read_json

STATIC = Path(__file__).parent / "static"
MAX_BODY = 1 << 20
MAX_NAME = 40  # characters of the name of a person
Fields = dict[str, Any]


def create_app(session: Session, key: bytes | None = None, hosts: tuple[str, ...] = ("*",)) -> Starlette:
    """Return the web application of a session; requests need the key, if there is one."""

    def status(fields: Fields) -> Fields:
        return session.status()

    def next_one(fields: Fields) -> Fields:
        n = session.next(_name(fields))
        return {"sentence": None} if n is None else _shown(session, n)

    def sentence(fields: Fields) -> Fields:
        return _shown(session, session.check_number(fields.get("sentence")))

    def decode(fields: Fields) -> Fields:
        return session.answer(*session.check(fields.get("sentence"), fields.get("labels")))

    def save(fields: Fields) -> Fields:
        n, labels = session.check(fields.get("sentence"), fields.get("labels"))
        clicks = fields.get("clicks", 0)
        if type(clicks) is not int or not 0 <= clicks < 1 << 31:
            raise ValueRangeError(f"clicks must be a number of clicks, got {clicks!r}.")
        session.save(n, labels, fields.get("state", ""), _name(fields), clicks)
        return session.status()

    def listed(fields: Fields) -> Fields:
        return {"sentences": session.listed(str(fields.get("query", ""))[:200])}

    async def export(request: Request) -> Response:
        raw = await asyncio.to_thread(_exported, session, request.path_params["kind"])
        name = f"{session.out.stem}.{request.path_params['kind']}"
        return Response(raw, headers={"content-disposition": f'attachment; filename="{_ascii(name)}"'})

    def route(name: str, work: Callable[[Fields], Fields]) -> Route:
        async def endpoint(request: Request) -> Response:
            check_type(request.headers.get("content-type"), JSON)
            fields = read_json(await read_body(request.receive, request.headers, MAX_BODY))
            if not isinstance(fields, dict):
                raise RequestError("the body of the request", "a JSON object", fields)
            return JSONResponse(await asyncio.to_thread(work, fields))

        return Route(f"/label/{name}", _answering(endpoint, key), methods=["POST"])

    asked = {"status": status, "next": next_one, "sentence": sentence, "decode": decode, "save": save, "list": listed}
    files = StaticFiles(directory=STATIC, packages=[("trelliswork", "report/shared"), ("trelliswork", "serve/static")])
    routes = [
        *(route(name, work) for name, work in asked.items()),
        Route("/label/export/{kind:str}", _answering(export, key)),
        Route("/", lambda request: FileResponse(STATIC / "label.html")),
        Mount("/static", files),
    ]
    middleware = [Middleware(Headers)]
    if hosts != ("*",):
        middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False))
    return Starlette(routes=routes, middleware=middleware)


def _answering(endpoint: Callable[[Request], Awaitable[Response]], key: bytes | None) -> Any:
    """Let only requests with the key pass, and answer errors in JSON."""

    async def answering(request: Request) -> Response:
        try:
            if key is not None and not hmac.compare_digest(request.headers.get("x-api-key", "").encode(), key):
                raise RequestError("the API key", "header 'X-API-Key: KEY'", "another one, or none", 401)
            return await endpoint(request)
        except Exception as error:
            refusal = explained(error)
            return JSONResponse({"error": refusal.to_dict()}, refusal.status, refusal.headers)

    return answering


def _shown(session: Session, n: int) -> Fields:
    """Return a sentence with the answer of the model."""
    shown = session.sentence(n)
    return shown | {"answer": session.answer(n, shown["labels"])}


def _name(fields: Fields) -> str:
    who = fields.get("who", "")
    if not isinstance(who, str) or len(who) > MAX_NAME:
        raise ValueRangeError(f"who must be a name of at most {MAX_NAME} characters, got {who!r:.60}.")
    return who


def _ascii(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "_" for c in name)


def _exported(session: Session, kind: str) -> bytes:
    """Return what is labeled completely, as JSON lines, of doccano too, or in columns."""
    with session.lock:
        done = sorted((n, saved.labels) for n, saved in session.answers.items() if saved.state == "done")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "export"
        if kind == "jsonl":
            write_records(path, (record(session.pool, n, labels, True) for n, labels in done))
        elif kind == "doccano":
            rows = (record(session.pool, n, labels, True) for n, labels in done)
            spans = ("start", "end", "label")
            write_records(
                path, ({"text": r["text"], "label": [[s[name] for name in spans] for s in r["spans"]]} for r in rows)
            )
        elif kind == "conll":
            write_columns(path, session.pool, done)
        else:
            raise RequestError("no such format", "/label/export/jsonl, doccano or conll", kind, status=404)
        return path.read_bytes()


def open_session(
    path: str, out: Path, labels: Sequence[str], model: str | None, task: Task, split: Tokenizer | None,
    format: FileFormat,
) -> Session:  # fmt: skip
    """Return the session of a pool and an output, perhaps with a saved tagger."""
    from trelliswork.compute.threads import available, is_set, set_num_threads

    if not is_set():
        set_num_threads(max(1, available() // 2))  # the training leaves room for answers
    fitted: Any = None
    if model is not None:
        from trelliswork.models import load

        fitted = load(model)
        if not isinstance(fitted, Tagger) or isinstance(fitted, LayeredTagger) or Form.of(fitted).kind != "words":
            raise DataError(f"{model}: expected a tagger of words with one layer of labels.")
        fitted.freeze()
    return Session(read_pool(path, task, split, format), out, labels, fitted)


def run(session: Session, where: tuple[str, int, bool], ready: Callable[[str], object]) -> None:
    """Serve the page until Ctrl-C or SIGTERM; ``where`` is host, port, and whether other machines may be let in."""
    import signal
    import sys

    import uvicorn

    from trelliswork.label.loop import Loop
    from trelliswork.serve.settings import api_key
    from trelliswork.serve.sockets import LOOPBACK, address, check_host, is_loopback, open_socket

    host, port, allow_remote = where
    check_host(host, allow_remote)
    key = api_key()
    hosts = (*LOOPBACK, host) if key is None and (is_loopback(host) or host not in ("0.0.0.0", "::")) else ("*",)
    sys.setswitchinterval(0.001)  # the thread that trains gives way to an answer
    with open_socket(host, port) as listening:
        app: Any = create_app(session, key, hosts)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="critical", lifespan="off", ws="none", server_header=False)
        )
        for ending in (signal.SIGINT, signal.SIGTERM):  # raised again after the server has handled them
            signal.signal(ending, lambda *_: None)
        loop = Loop(session).start()
        try:
            ready(address(host, listening))
            server.run(sockets=[listening])
        finally:
            loop.close()
