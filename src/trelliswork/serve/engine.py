"""The thread that computes. Requests that wait for the same work are answered by one call.

While a call runs, other requests arrive; the next call takes what waits, up to a number of words. So batches grow with
the load, and a single request never waits for others to come.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from trelliswork.serve.requests import BUSY, RequestError

Items = Sequence[Any]
Compute = Callable[[Items], list[Any]]
Observe = Callable[[Any, int, float], object]  # key, words, seconds


class Job:
    """Items to answer, and the future of their answers."""

    __slots__ = ("answers", "compute", "error", "future", "items", "key", "loop", "started", "words")

    def __init__(self, key: Hashable, compute: Compute, items: Items, words: int) -> None:
        self.key, self.compute, self.items, self.words = key, compute, items, words
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Any]] = self.loop.create_future()
        self.answers: list[Any] = []
        self.error: Exception | None = None
        self.started = False


class Engine:
    """Computes in a daemon thread, one batch after the other, so that the server keeps answering.

    At most ``max_waiting`` jobs wait; one more is refused. One call answers at most ``batch_words`` words, unless a job
    has more. ``observe`` is called after each batch in the thread, with key, number of words, and seconds.
    """

    def __init__(self, max_waiting: int, batch_words: int = 0, observe: Observe | None = None) -> None:
        self.max_waiting, self.batch_words, self._observe = max_waiting, batch_words, observe
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
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        if len(self._jobs) >= self.max_waiting:
            expected = f"at most {self.max_waiting} waiting"
            raise RequestError("too many requests at once", expected, "one more", status=BUSY, wait=1)
        job = Job(key, compute, items, words)
        self._jobs.append(job)
        job.loop.call_soon(self._some.release)  # after the requests that have come together
        return job

    def _work(self) -> None:
        while True:
            self._some.acquire()
            if batch := self._take():
                self._answer(batch)

    def _take(self) -> list[Job]:
        """Take the first job and those that can be answered with it. Only this thread takes jobs."""
        jobs = self._jobs
        if not jobs:  # it was taken with an earlier one
            return []
        batch, others = [jobs.popleft()], []
        key, words = batch[0].key, batch[0].words
        while key is not None and jobs and words < self.batch_words:
            job = jobs.popleft()
            if job.key == key and words + job.words <= self.batch_words:
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
        try:
            if len(batch) > 1:
                answers = iter(batch[0].compute([item for job in batch for item in job.items]))
                for job in batch:
                    job.answers = [next(answers) for _ in job.items]
            else:
                _alone(batch[0])
        except Exception:  # of one of them: the others have no part in it
            for job in batch:
                _alone(job)
        if self._observe is not None:
            self._observe(batch[0].key, sum(job.words for job in batch), time.perf_counter() - began)
        loop = batch[0].loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, batch)


def _alone(job: Job) -> None:
    try:
        job.answers = job.compute(job.items)
    except Exception as error:  # reported to the client: the thread continues
        job.error = error


def _settle(batch: list[Job]) -> None:
    """Give the answers, or the errors, to who waits for them; in the thread of the event loop."""
    for job in batch:
        if job.error is not None and not job.future.cancelled():
            job.future.set_exception(job.error)
        elif not job.future.cancelled():
            job.future.set_result(job.answers)
