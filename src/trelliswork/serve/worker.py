"""A worker process: loads the models, answers requests, loads again on SIGHUP, finishes on SIGTERM.

The master starts ``python -m trelliswork.serve.worker SOCKET MEMORY ROW`` and writes the settings to standard input,
which it keeps open: if the master dies, its end closes, and the worker finishes. The worker writes a line to standard
output when it is ready, and after each reload.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Generator
from functools import partial
from typing import Any

import uvicorn

from trelliswork import machine
from trelliswork.errors import DataError, TrellisworkError
from trelliswork.serve.abilities import abilities_of
from trelliswork.serve.app import Served, Service, create_app
from trelliswork.serve.metrics import Metrics
from trelliswork.serve.protocol import TimedProtocol
from trelliswork.serve.requests import Form, RequestError, Tokens
from trelliswork.serve.settings import Settings, api_key
from trelliswork.serve.sockets import Socket

SWITCH = 0.001  # seconds after which the thread that computes gives way to the one that talks to clients
PAUSE = 0.002  # seconds that a worker with more connections than others leaves a new one to them
KEEP_ALIVE = 60  # seconds that a connection may be idle between requests
_log = logging.getLogger("trelliswork.serve")


class Worker(uvicorn.Server):
    """A server that accepts from a socket that all workers share; signals are handled by `_serve`.

    It accepts one connection at a time, and leaves a new one to workers with fewer for a moment. Without this, the
    first worker that wakes up takes all connections that have come together, and keeps them.
    """

    def __init__(self, config: uvicorn.Config, listening: Socket, service: Service) -> None:
        super().__init__(config)
        self._listening, self._service = listening, service

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals as they are."""
        yield

    async def startup(self, sockets: Any = None) -> None:
        """Start to accept connections."""
        self._loop, self.servers = asyncio.get_running_loop(), []
        self._connecting: set[asyncio.Task[Any]] = set()
        self._service.metrics.set("workers", 1)
        self._accepting = self._loop.create_task(self._accept_all())
        self.started = True
        _report("ready")

    async def on_tick(self, counter: int) -> bool:
        """Publish the number of connections, ten times per second."""
        self._service.metrics.set("connections", self._n)
        self._service.metrics.set("waiting", self._service.engine.waiting)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        """Accept what has come so far, answer what has begun, then close."""
        self._service.metrics.set("workers", 0)
        self._accepting.cancel()
        self._loop.remove_reader(self._listening)
        while self._n < self._service.settings.max_connections and self._accept():
            pass
        if self._connecting:
            await asyncio.wait(self._connecting)
        self._listening.close()
        await super().shutdown(sockets)

    @property
    def _n(self) -> int:
        return len(self.server_state.connections) + len(self._connecting)

    async def _accept_all(self) -> None:
        metrics, readable = self._service.metrics, asyncio.Event()
        while True:
            readable.clear()
            self._loop.add_reader(self._listening, readable.set)
            await readable.wait()
            self._loop.remove_reader(self._listening)
            pairs = zip(metrics.of_workers("connections"), metrics.of_workers("workers"), strict=True)
            if self._n > min((n for n, alive in pairs if alive), default=self._n):
                await asyncio.sleep(PAUSE)
            while self._n >= self._service.settings.max_connections:
                await asyncio.sleep(PAUSE)
            if not self._accept():
                await asyncio.sleep(PAUSE)

    def _accept(self) -> bool:
        try:
            connection, _ = self._listening.accept()
        except OSError:  # another worker was faster, or there are too many open files
            return False
        connection.setblocking(False)
        protocol: Any = partial(TimedProtocol, config=self.config, server_state=self.server_state, app_state={})
        task = self._loop.create_task(self._loop.connect_accepted_socket(protocol, connection))
        self._connecting.add(task)
        task.add_done_callback(self._accepted)
        return True

    def _accepted(self, task: "asyncio.Task[Any]") -> None:
        self._connecting.discard(task)
        if not task.cancelled():
            task.exception()  # the client has gone
        self._service.metrics.set("connections", self._n)


def load_served(settings: Settings, name: str) -> Served:
    """Load a model and let it answer once, so that kernels are loaded, or compiled, before somebody waits for them."""
    from trelliswork.models import load

    model: Any = load(settings.models[name], mapped=settings.copies.get(name, False))
    model.freeze()
    served = Served(name, model, abilities_of(type(model), settings.page), Form.of(model))
    example: Tokens = [tuple(t) if isinstance(t, list) else t for t in model.example_ or ()]
    for ability in served.abilities.values() if example else ():
        sentence: Tokens = [None, *example[1:]] if ability.blanks else example[: ability.max_words]
        with contextlib.suppress(TrellisworkError, RequestError), warnings.catch_warnings():  # such as unknown words
            warnings.simplefilter("ignore")
            ability.answer(model, [sentence], ability.read_options({}))
    return served


async def _reload(service: Service) -> None:
    """Load all models again; one that fails, or can do other things than before, leaves the old one in place."""
    for name in service.models:
        try:
            fresh = await asyncio.to_thread(load_served, service.settings, name)
            if fresh.abilities.keys() != service.models[name].abilities.keys():
                raise DataError(f"{service.settings.models[name]}: the new model has other abilities: start again.")
        except Exception as error:
            service.metrics.add("reloads_total", 'result="failed"')
            _log.error("model %s was not loaded again: %s", name, error)
        else:
            service.models[name] = fresh
            service.metrics.add("reloads_total", 'result="done"')
    _report("reloaded")
    _keep()


def _keep() -> None:
    """Leave what is in memory out of garbage collections: under load, each full one would go through all of it."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _report(line: str) -> None:
    with contextlib.suppress(OSError):  # the master has gone
        print(line, flush=True)


async def _serve(server: Worker, service: Service) -> None:
    loop = asyncio.get_running_loop()
    tasks = []

    def end() -> None:
        loop.remove_reader(sys.stdin.fileno())
        server.should_exit = True

    loop.add_signal_handler(signal.SIGTERM, end)
    loop.add_signal_handler(signal.SIGHUP, lambda: tasks.append(loop.create_task(_reload(service))))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGHUP])
    loop.add_reader(sys.stdin.fileno(), end)  # the master has closed its end, or died
    await server.serve()
    sys.stderr.flush()
    os._exit(0)  # at once: a model that is being loaded, or the orderly end of large ones, would take seconds


def main() -> None:
    """Run a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the master ends the workers
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGHUP])  # until they can be handled
    listening, memory, row = map(int, sys.argv[1:])
    settings = Settings.from_json(sys.stdin.readline())
    sys.setswitchinterval(SWITCH)
    machine.threads(settings.threads)
    machine.limits(seconds=settings.timeout)
    named = settings.abilities
    service = Service(settings, named, Metrics(named, memory, settings.workers + 1, row), api_key())
    try:
        for name in settings.models:
            service.models[name] = load_served(settings, name)
    except (TrellisworkError, OSError) as error:
        _report(f"failed {' '.join(str(error).split())}")
        sys.exit(1)
    TimedProtocol.request_seconds = settings.request_seconds
    silent: Any = {"log_level": "critical", "access_log": False}  # the application logs failed requests itself
    limits: Any = {"timeout_keep_alive": KEEP_ALIVE, "timeout_graceful_shutdown": int(settings.grace) or 1}
    app: Any = {"app": create_app(service), "http": TimedProtocol, "ws": "none", "lifespan": "off"}
    config = uvicorn.Config(**app, server_header=False, **silent, **limits)
    config.load()
    _keep()
    inherited = Socket(fileno=listening)
    inherited.setblocking(False)
    asyncio.run(_serve(Worker(config, inherited, service), service))


if __name__ == "__main__":
    main()
