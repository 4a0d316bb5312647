"""A worker process: loads the models, answers requests, loads again on SIGHUP, finishes on SIGTERM.

The master starts ``python -m trelliswork.serve.worker SOCKET MEMORY ROW`` and writes the settings to standard input,
which it keeps open: if the master dies, its end closes, and the worker finishes. The worker writes a line to standard
output when it is ready, and after each reload.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Generator
from typing import Any

import uvicorn

from trelliswork import machine
from trelliswork.errors import DataError, TrellisworkError
from trelliswork.serve.abilities import abilities_of
from trelliswork.serve.accepting import Acceptor
from trelliswork.serve.app import Served, Service, create_app
from trelliswork.serve.metrics import Metrics
from trelliswork.serve.protocol import TimedProtocol
from trelliswork.serve.requests import Form, RequestError, Tokens
from trelliswork.serve.settings import Settings, api_key
from trelliswork.serve.sockets import Socket, inherited

SWITCH = 0.001  # seconds after which the thread that computes gives way to the one that talks to clients
KEEP_ALIVE = 60  # seconds that a connection may be idle between requests
_log = logging.getLogger("trelliswork.serve")


class Worker(uvicorn.Server):
    """A server that accepts from a shared socket; signals are handled by `_serve`."""

    def __init__(self, config: uvicorn.Config, listening: Socket, service: Service) -> None:
        super().__init__(config)
        self._listening, self._service = listening, service
        self._acceptor: Acceptor | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals as they are."""
        yield

    async def startup(self, sockets: Any = None) -> None:
        """Start to accept connections."""
        config, state = self.config, self.server_state

        def protocol() -> asyncio.Protocol:
            connection: asyncio.Protocol = TimedProtocol(config=config, server_state=state, app_state={})
            return connection

        most = self._service.settings.max_connections
        self.servers = []
        self._acceptor = Acceptor(self._listening, protocol, self._service.metrics, most, state.connections)
        self._service.metrics.set("workers", 1)
        self.started = True
        _report("ready")

    async def on_tick(self, counter: int) -> bool:
        """Publish the number of connections, ten times per second."""
        self._service.metrics.set("connections", len(self.server_state.connections))
        self._service.metrics.set("waiting", self._service.engine.waiting)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        """Answer what has begun, then close."""
        assert self._acceptor is not None
        self._service.metrics.set("workers", 0)
        self._acceptor.close()
        await self._acceptor.wait_closed()
        self._listening.close()
        await super().shutdown(sockets)


def load_served(settings: Settings, name: str) -> Served:
    """Load a model and let it answer once, so that kernels are loaded, or compiled, before somebody waits for them."""
    from trelliswork.models import load

    model: Any = load(settings.models[name], mapped=settings.copies.get(name, False))
    model.freeze()
    served = Served(name, model, abilities_of(type(model), settings.page), Form.of(model))
    example: Tokens = [tuple(t) if isinstance(t, list) else t for t in model.example_ or ()]
    for ability in served.abilities.values() if example else ():
        sentence: Tokens = [None, *example[1:]] if ability.blanks else example
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


def _report(line: str) -> None:
    with contextlib.suppress(OSError):  # the master has gone
        print(line, flush=True)


async def _serve(server: Worker, service: Service) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def end() -> None:
        server.should_exit = True

    def orphaned() -> None:  # the master has closed its end, or died
        loop.remove_reader(sys.stdin.fileno())
        end()

    def reload() -> None:
        task = loop.create_task(_reload(service))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGTERM, end)
    loop.add_signal_handler(signal.SIGHUP, reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGHUP])
    loop.add_reader(sys.stdin.fileno(), orphaned)
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
    config = uvicorn.Config(
        create_app(service), http=TimedProtocol, ws="none", lifespan="off", server_header=False, **silent, **limits
    )
    config.load()
    asyncio.run(_serve(Worker(config, inherited(listening), service), service))


if __name__ == "__main__":
    main()
