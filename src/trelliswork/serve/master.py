"""The master process: opens the socket, starts the workers, replaces those that die, reloads and stops them."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trelliswork.data.storage import arrays_file
from trelliswork.errors import TrellisworkError
from trelliswork.serve.metrics import Metrics
from trelliswork.serve.settings import Settings, api_key
from trelliswork.serve.sockets import LOOPBACK, Socket, address, check_host, is_loopback, open_socket

WORKER = "trelliswork.serve.worker"
PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0)  # seconds before a worker is started again that has died soon after its start
SOON = 10.0  # seconds
RELOAD_SECONDS = 600.0  # that a worker has to load the models again
PATIENCE = 2.0  # seconds before a line says what is being waited for
EXTRA = 5.0  # seconds after the grace until workers are killed
Process = asyncio.subprocess.Process


class Child:
    """A worker process, and what it reports: "ready" or why not, a line after each reload, an empty one at the end."""

    def __init__(self, process: Process) -> None:
        self.process, self.lines, self.started = process, asyncio.Queue[str](), asyncio.Event()
        self._listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            await self.lines.put(line.decode(errors="replace").strip())
        await self.lines.put("")


class Master:
    """The workers of a service."""

    def __init__(self, settings: Settings, listening: Socket) -> None:
        self._copies = {name: os.memfd_create(name) for name in settings.models} if sys.platform == "linux" else {}
        copies = {name: f"/proc/{os.getpid()}/fd/{place}" for name, place in self._copies.items()}
        self._settings, self._listening = replace(settings, copies=copies), listening
        self._memory = Metrics.create(settings.abilities, settings.workers + 1)
        self._metrics = Metrics(settings.abilities, self._memory, settings.workers + 1, settings.workers)
        self._workers: dict[int, Child] = {}
        self._reloading: asyncio.Task[None] | None = None

    async def run(self, ready: Callable[[], object], waiting: Callable[[], object]) -> None:
        """Serve until SIGTERM or Ctrl-C."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        late = loop.call_later(PATIENCE, waiting)
        starting, ending = asyncio.ensure_future(self._start_all()), asyncio.ensure_future(ended.wait())
        both: list[asyncio.Future[Any]] = [starting, ending]
        keepers: list[asyncio.Future[Any]] = []
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                late.cancel()
                keepers += [asyncio.ensure_future(self._keep(row)) for row in range(self._settings.workers)]
                ready()
                await ending
        finally:
            late.cancel()
            for task in (*both, *keepers):
                task.cancel()
            self._listening.close()
            await self._stop()
            for place in (self._memory, *self._copies.values()):
                os.close(place)

    def _copy_weights(self) -> None:
        """Copy the weights into memory that workers share: whoever maps a file is killed if somebody truncates it."""
        for name, place in self._copies.items():
            with contextlib.suppress(TrellisworkError, OSError):  # a worker reports what it cannot load
                file = arrays_file(self._settings.models[name])
                fresh = os.memfd_create(file.name)
                try:
                    shutil.copyfile(file, f"/proc/self/fd/{fresh}")
                    os.dup2(fresh, place, inheritable=False)  # workers keep what they have mapped
                finally:
                    os.close(fresh)

    async def _start_all(self) -> None:
        await asyncio.to_thread(self._copy_weights)
        await asyncio.gather(*map(self._start, range(self._settings.workers)))

    async def _start(self, row: int) -> None:
        """Start a worker, and wait until it serves."""
        socket, memory = self._listening.fileno(), self._memory
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", WORKER, str(socket), str(memory), str(row)]
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, pass_fds=(socket, memory))
        assert process.stdin is not None
        self._workers[row] = child = Child(process)
        with contextlib.suppress(ConnectionError):
            process.stdin.write(f"{self._settings.to_json()}\n".encode())
            await process.stdin.drain()
        line = await child.lines.get()
        child.started.set()
        if line != "ready":
            code = await process.wait()
            message = f"a worker ended with exit code {code} at its start."
            raise TrellisworkError(line.removeprefix("failed ") or message)

    async def _keep(self, row: int) -> None:
        """Replace a worker whenever it ends."""
        failures = 0
        while True:
            began = time.monotonic()
            code = await self._workers[row].process.wait()
            self._metrics.reset(row)
            self._metrics.add("restarts_total")
            failures = failures + 1 if time.monotonic() - began < SOON else 1
            pause = PAUSES[min(failures, len(PAUSES)) - 1]
            _say(f"worker {row} ended with exit code {code}; another one starts" + (f" in {pause} s" * (pause > 0)))
            await asyncio.sleep(pause)
            try:
                await self._start(row)
            except TrellisworkError as error:
                _say(f"worker {row}: {error}")

    def _reload(self) -> None:
        """Have the workers load the models again, one after the other, so that all but one answer at full speed."""
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.ensure_future(self._reload_all())

    async def _reload_all(self) -> None:
        await asyncio.to_thread(self._copy_weights)
        failed = self._metrics.total("reloads_total", 'result="failed"')
        for child in list(self._workers.values()):
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                async with asyncio.timeout(RELOAD_SECONDS):
                    await child.started.wait()  # it may have read the old model just before
                    child.process.send_signal(signal.SIGHUP)
                    await child.lines.get()
        failed = self._metrics.total("reloads_total", 'result="failed"') - failed
        _say("models were loaded again" if not failed else "not all models were loaded again: see above")

    async def _stop(self) -> None:
        """End the workers when they have answered what has begun."""
        processes = [child.process for child in self._workers.values()]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        try:
            async with asyncio.timeout(self._settings.grace + EXTRA):
                for process in processes:
                    await process.wait()
        except TimeoutError:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def serve(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    allow_remote: bool = False,
    ready: Callable[[str], object] = print,
    waiting: Callable[[], object] = lambda: None,
) -> None:
    """Serve models until SIGTERM or Ctrl-C, at a free port if ``port`` is 0.

    ``ready`` is called with the address when all workers serve, ``waiting`` if that takes long. An address that other
    machines can reach is an error without ``allow_remote``. Requests need the key in the environment variable
    ``TRELLISWORK_API_KEY``, if it is set. Without a key, requests to this machine must use one of its names, so that a
    page of another site cannot send any (DNS rebinding).
    """
    check_host(host, allow_remote)
    if not hasattr(signal, "SIGHUP"):
        raise TrellisworkError("serve needs an operating system with POSIX signals, such as Linux or macOS.")
    if api_key() is None and (is_loopback(host) or (settings.page and host not in ("0.0.0.0", "::"))):
        settings = replace(settings, hosts=(*LOOPBACK, host))
    listening = open_socket(host, port)
    with listening:
        asyncio.run(Master(settings, listening).run(lambda: ready(address(host, listening)), waiting))
