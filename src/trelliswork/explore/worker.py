"""One thread that computes, one request after the other, while the server goes on answering."""

import asyncio
import queue
import threading
import warnings
from collections.abc import Callable
from typing import Any

from trelliswork.explore.requests import RequestError

MAX_WAITING = 16
Job = tuple[Callable[[], dict[str, Any]], "asyncio.Future[dict[str, Any]]", asyncio.AbstractEventLoop]


class Worker:
    """Runs functions in one daemon thread: they never meet each other, and none keeps the program from ending."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[Job] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What ``work`` returns; texts of warnings it gave are added as ``notes``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="explore", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[str, Any]] = loop.create_future()
        try:
            self._jobs.put_nowait((work, future, loop))
        except queue.Full:
            raise RequestError(
                "too many requests at once", f"{MAX_WAITING} waiting at most", "one more", status=503
            ) from None
        return await future

    def _work(self) -> None:
        while True:
            work, future, loop = self._jobs.get()
            if future.cancelled():  # the reader has gone
                continue
            result, error = None, None
            try:
                with warnings.catch_warnings(record=True) as notes:
                    warnings.simplefilter("always", UserWarning)
                    result = work()
                if notes:
                    result["notes"] = list(dict.fromkeys(str(note.message) for note in notes))
            except Exception as found:  # it is the reader's: the thread goes on
                error = found
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
