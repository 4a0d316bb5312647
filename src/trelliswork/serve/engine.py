"""The thread that computes. Requests that wait for the same work are answered by one call.

While a call runs, other requests arrive; the next call takes what waits, up to a number of words. So batches grow with
the load, and a single request never waits for others to come.
"""

import asyncio
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from trelliswork.serve.requests import RequestError

Items = Sequence[Any]
Compute = Callable[[Items], list[Any]]
Observe = Callable[[Any, int, int, float], object]  # key, jobs, words, seconds


class Job:
    """Items to answer, and the future of their answers."""

    __slots__ = ("answers", "compute", "error", "future", "items", "key", "loop", "started", "words")

    def __init__(self, key: Hashable, compute: Compute, items: Items, words: int) -> None:
        self.key, self.compute, self.items, self.words = key, compute, items, words
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Any]] = self.loop.create_future()
        self.answers: list[Any] | None = None
        self.error: Exception | None = None
        self.started = False

    def settle(self) -> None:
        """Give the answers, or the error, to who waits for them; in the thread of the event loop."""
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answers or [])


class Engine:
    """Computes in a daemon thread, one batch after the other, so that the server keeps answering.

    Parameters
    ----------
    max_waiting : int
        Number of jobs that may wait; one more is refused with ``status``.
    batch_words : int
        Number of words that are answered by one call.
    status : int
        HTTP status of a refusal.
    observe : callable, optional
        Called after each batch in the thread, with key, number of jobs, number of words, and seconds.
    """

    def __init__(
        self,
        max_waiting: int = 16,
        batch_words: int = 8_000,
        status: int = 429,
        observe: Observe | None = None,
        name: str = "compute",
    ) -> None:
        self.max_waiting, self.batch_words, self.status = max_waiting, batch_words, status
        self._observe, self._name = observe, name
        self._jobs: deque[Job] = deque()
        self._some = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._jobs)

    def submit(self, key: Hashable, compute: Compute, items: Items, words: int = 0) -> Job:
        """Add a job: ``compute(items)`` returns an answer for each item.

        Jobs with the same key (``None`` is equal to nothing) have the same ``compute`` and may be answered by one call
        with the items of all of them.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        if len(self._jobs) >= self.max_waiting:
            expected = f"at most {self.max_waiting} waiting"
            raise RequestError("too many requests at once", expected, "one more", status=self.status, wait=1)
        job = Job(key, compute, items, words)
        self._jobs.append(job)
        job.loop.call_soon(self._some.release)  # after the requests that have come together
        return job

    async def run(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of ``work``, computed alone; texts of its warnings are added as ``notes``."""
        (answer,) = await self.submit(None, lambda _: [_with_notes(work)], [None]).future
        result: dict[str, Any] = answer
        return result

    def _work(self) -> None:
        while True:
            self._some.acquire()
            batch = self._take()
            if batch:
                self._answer(batch)

    def _take(self) -> list[Job]:
        """Take the first job and those that can be answered with it. Only this thread takes jobs."""
        jobs = self._jobs
        first = jobs.popleft() if jobs else None
        if first is None:  # it was taken with an earlier one
            return []
        batch, words = [first], first.words
        if first.key is not None:
            others: list[Job] = []
            while jobs and words < self.batch_words:
                job = jobs.popleft()
                if job.key == first.key and words + job.words <= self.batch_words:
                    batch.append(job)
                    words += job.words
                else:
                    others.append(job)
            jobs.extendleft(reversed(others))
        batch = [job for job in batch if not job.future.cancelled()]  # the client has gone, or its time is over
        for job in batch:
            job.started = True
        return batch

    def _answer(self, batch: list[Job]) -> None:
        began = time.perf_counter()
        if len(batch) == 1:
            self._alone(batch[0])
        else:
            items = [item for job in batch for item in job.items]
            try:
                answers = batch[0].compute(items)
                assert len(answers) == len(items)
                at = 0
                for job in batch:
                    job.answers = answers[at : at + len(job.items)]
                    at += len(job.items)
            except Exception:  # of one of them: the others have no part in it
                for job in batch:
                    self._alone(job)
        if self._observe is not None:
            words = sum(job.words for job in batch)
            self._observe(batch[0].key, len(batch), words, time.perf_counter() - began)
        loop = batch[0].loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, batch)

    def _alone(self, job: Job) -> None:
        try:
            job.answers = job.compute(job.items)
        except Exception as error:  # reported to the client: the thread continues
            job.error = error


def _settle(batch: list[Job]) -> None:
    for job in batch:
        job.settle()


def _with_notes(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        result = work()
    if notes:
        result["notes"] = list(dict.fromkeys(str(note.message) for note in notes))
    return result
