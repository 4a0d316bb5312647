"""Connections of a shared socket, spread evenly over the worker processes."""

import asyncio
from collections.abc import Callable
from typing import Any

from trelliswork.serve.metrics import Metrics
from trelliswork.serve.sockets import Socket

PAUSE = 0.002  # seconds that a worker with more connections than others leaves a new one to them


class Acceptor:
    """Accepts one connection at a time, unless another worker has fewer; then it waits a moment before it does.

    Without this, the first worker that wakes up takes all connections that have come together, and keeps them.
    """

    def __init__(
        self, listening: Socket, protocol: Callable[[], asyncio.Protocol], metrics: Metrics, most: int, connections: Any
    ) -> None:
        self._socket, self._protocol, self._metrics = listening, protocol, metrics
        self._most, self._connections = most, connections
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._closed = False
        self._watch()

    def close(self) -> None:
        """Accept what has come so far, and no more."""
        self._closed = True
        self._loop.remove_reader(self._socket)
        if self._later is not None:
            self._later.cancel()
        while len(self._connections) + len(self._tasks) < self._most and self._accept():
            pass

    async def wait_closed(self) -> None:
        """Wait for connections that are being accepted."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _watch(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket, self._readable, True)

    def _readable(self, polite: bool) -> None:
        own = len(self._connections) + len(self._tasks)
        pairs = zip(self._metrics.of_workers("connections"), self._metrics.of_workers("workers"), strict=True)
        least = min((n for n, alive in pairs if alive), default=own)
        if own >= self._most or (polite and own > least):
            self._loop.remove_reader(self._socket)
            self._later = self._loop.call_later(PAUSE, self._again)
        else:
            self._accept()

    def _again(self) -> None:
        self._watch()
        self._readable(polite=False)

    def _accept(self) -> bool:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another worker was faster
            return False
        except OSError:  # such as too many open files: try again later
            self._loop.remove_reader(self._socket)
            self._later = self._loop.call_later(0.1, self._watch)
            return False
        connection.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
        self._tasks.add(task)
        task.add_done_callback(self._accepted)
        return True

    def _accepted(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the client has gone
        self._metrics.set("connections", len(self._connections))
