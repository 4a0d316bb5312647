"""Time our package against peers, each in its own process, and print the results.

A benchmark script declares a `Benchmark` and calls `main`. For each case every contender gets a worker (``worker.py``)
with the interpreter of its environment: ours with ``.venv``, peers with ``.venv-bench``. Results on a tiny problem and
of the warm-up call on the real one are compared with ours; then the repetitions are interleaved (ours, peer, peer,
ours, ...) and the best of each contender counts. All contenders have the same number of threads and cores; with several
numbers (``--threads 1,2``) there are rows for each, measured in the same rounds. A sample during which other processes
used these cores is repeated up to twice; if all were disturbed, ``extra`` marks the row, which is then not reliable.

A contender that is not installed is reported as skipped (below the table: absent); one that crashes, disagrees with
ours, or exceeds the time or memory limit is reported as failed; the others continue.

With ``--quick`` the tiny problems are timed, once each, to check that everything runs; cases without a tiny problem of
their own are left out.

Rows go to stdout, as a table or with ``--json`` as one object per line, and with ``--record`` to a file of records
(``records.py``); progress and a description of the machine go to
stderr. The exit status is 1 if ours could not be measured or a peer disagrees with it.
"""

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from benchmarks.declarations import Benchmark, Case, Contender, Reference, Task
from benchmarks.load import ForeignLoad
from benchmarks.records import Origin, entry, update
from benchmarks.rows import Row, format_table, without_absent
from benchmarks.workers import FailedError, Limits, SkippedError, WorkerProcess

__all__ = ["Benchmark", "Case", "CaseRun", "Contender", "Limits", "Reference", "Row", "Task", "main"]

_ATTEMPTS = 3
_PAUSE_SECONDS = 1.0
NOTHING = 3  # exit status with --any if this benchmark has none of the chosen cases or peers


class MismatchError(FailedError):
    """The results of a peer differ from ours."""


class Entrant(NamedTuple):
    """A contender with a number of threads on a case, or on a variant of it: what one worker measures."""

    contender: Contender
    threads: int
    case: str


class CaseRun:
    """One case, measured for ours, the peers and the reference.

    Parameters
    ----------
    bench : Benchmark
        The benchmark of the case.
    case : Case
        The case to measure.
    peers : sequence of Contender
        Peers to compare with. One that always uses one thread is measured once.
    limits : Limits
        Limits of each worker.
    threads : sequence of int
        Numbers of threads to measure.
    attempts : int
        Maximum number of attempts at a sample that other processes disturb.
    """

    def __init__(
        self,
        bench: Benchmark,
        case: Case,
        peers: Sequence[Contender],
        limits: Limits,
        threads: Sequence[int],
        attempts: int = _ATTEMPTS,
    ) -> None:
        self.bench, self.case, self.limits, self.threads, self.attempts = bench, case, limits, threads, attempts
        self.peers: Sequence[Contender] = () if case.alone else peers
        self.ours = {variant.name: variant for variant in (case, *case.variants)}
        self.problems: dict[Entrant, dict[str, str]] = {}
        self.ok = True
        self._workers: dict[Entrant, WorkerProcess] = {}
        self._digests: dict[str, Any] = {}
        self._figures: dict[Entrant, Any] = {}
        self._samples: dict[Entrant, list[tuple[bool, float]]] = {}  # disturbed?, seconds
        self._peak_mb: dict[Entrant, float] = {}
        self._interrupted = False

    def measure(self, repeats: int) -> None:
        """Prepare every entrant, then time ``repeats`` rounds of them, interleaved."""
        entrants = [Entrant(self.bench.ours, n, name) for name in self.ours for n in self.threads]
        others = [*self.peers, *([self.case.reference.contender] if self.case.reference else [])]
        entrants += dict.fromkeys(self._other(contender, n) for contender in others for n in self.threads)
        self._interrupted = True
        for entrant in entrants:
            self._guarded(entrant, self._prepare)
        for n in range(repeats):
            say(f"{self.case.name}: round {n + 1} of {repeats}")
            for entrant in list(self._workers):
                self._guarded(entrant, self._sample)
        self._interrupted = False

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def rows(self) -> list[Row]:
        """Return a row for each entrant that was measured, skipped or failed so far."""
        return [row for name in self.ours for n in self.threads for row in self._rows(name, n)]

    def _rows(self, name: str, threads: int) -> list[Row]:
        """Return the rows of one variant of the case with one number of threads."""
        own = Entrant(self.bench.ours, threads, name)
        ours = self._row(name, None, own, threads)
        rows = []
        if self.case.show and own in self._figures:
            ours.extra["ours"] = self._figures[own]
        if self.case.reference and name == self.case.name:
            reference = self.case.reference
            other = self._other(reference.contender, threads)
            if (seconds := self._best(other)) or other in self.problems:
                rows.append(self._row(reference.contender.name, None, other, threads))
            if seconds:
                rows[-1].extra |= reference.describe(seconds)
                if ours.seconds:
                    ours.extra |= reference.relate(ours.seconds, seconds)
        for peer in self.peers:
            other = self._other(peer, threads)
            if other in self._samples or other in self.problems:
                row = self._row(name, peer.name, own, threads)
                row.peer_seconds, row.peer_peak_mb = self._best(other), self._peak_mb.get(other)
                row.extra |= ours.extra
                if self.case.show and other in self._figures:
                    row.extra["theirs"] = self._figures[other]
                if self._disturbed(other):
                    row.extra["disturbed"] = True
                for kind, reason in self.problems.get(other, {}).items():
                    row.extra[kind] = "; ".join(filter(None, [ours.extra.get(kind), reason]))
                rows.append(row)
        if not any(row.peer for row in rows) and (ours.seconds or own in self.problems):
            rows.append(ours)
        return rows

    def _other(self, contender: Contender, threads: int) -> Entrant:
        return Entrant(contender, 1 if contender.one_thread else threads, self.case.name)

    def _row(self, case: str, peer: str | None, entrant: Entrant, threads: int) -> Row:
        """Return a row with the measurements of one entrant; problems of ours are marked."""
        row = Row(self.bench.name, case, peer, threads)
        row.seconds, row.peak_mb = self._best(entrant), self._peak_mb.get(entrant)
        prefix = "ours: " if entrant.contender is self.bench.ours else ""
        row.extra = {kind: prefix + reason for kind, reason in self.problems.get(entrant, {}).items()}
        if self._disturbed(entrant):
            row.extra["disturbed"] = True
        if self._interrupted:
            row.extra["interrupted"] = True
        return row

    def _guarded(self, entrant: Entrant, step: Callable[[Entrant], None]) -> None:
        """Run a step of an entrant; if it fails, note the reason and drop the entrant."""
        try:
            step(entrant)
        except SkippedError as error:
            self._drop(entrant, "skipped", str(error))
        except FailedError as error:
            self._drop(entrant, "failed", str(error))
            if isinstance(error, MismatchError):
                self.ok = False

    def _drop(self, entrant: Entrant, kind: str, reason: str) -> None:
        say(f"{entrant.case}: {self._name(entrant)} {kind.upper()}: {reason}")
        self.problems[entrant] = {kind: reason}
        self._samples.pop(entrant, None)
        self._peak_mb.pop(entrant, None)
        if worker := self._workers.pop(entrant, None):
            worker.close()
        if entrant.contender is self.bench.ours:
            self.ok = False

    def _prepare(self, entrant: Entrant) -> None:
        begin = time.monotonic()
        contender = entrant.contender
        worker = self._workers[entrant] = WorkerProcess(contender, replace(self.limits, threads=entrant.threads))
        versions = worker.start()
        is_reference = self.case.reference is not None and contender == self.case.reference.contender
        if self.case.check is not None and not is_reference:
            self._compare(entrant, "tiny case", worker.ask("check", params=self.case.check)["digest"])
        params = self.ours[entrant.case].params
        params = self.case.reference.params if is_reference and self.case.reference else params
        digest = worker.ask("prepare", params=params)["digest"]
        if not is_reference:
            self._figures[entrant] = digest
            self._compare(entrant, "case", digest)
        listed = ", ".join(f"{name} {version}" for name, version in versions.items())
        listed = f" ({listed})" if listed else ""
        say(f"{entrant.case}: {self._name(entrant)}{listed} ready after {time.monotonic() - begin:.1f} s")

    def _name(self, entrant: Entrant) -> str:
        """Return the name of a contender, with its threads if there are several numbers of them."""
        return entrant.contender.name + (f", {_threads([entrant.threads])}" if len(self.threads) > 1 else "")

    def _sample(self, entrant: Entrant) -> None:
        """Take one sample; a disturbed one is repeated, and counts only if there is no better one."""
        worker = self._workers[entrant]
        for attempt in range(self.attempts):
            load = ForeignLoad(worker.pid, entrant.threads)
            reply = worker.ask("run")
            disturbed = load.is_high()
            self._peak_mb[entrant] = reply["peak_mb"]
            self._samples.setdefault(entrant, []).append((disturbed, reply["seconds"]))
            if not disturbed:
                return
            say(f"{entrant.case}: {self._name(entrant)} was disturbed by other processes")
            if attempt + 1 < self.attempts:
                time.sleep(_PAUSE_SECONDS)

    def _best(self, entrant: Entrant) -> float | None:
        """Return the best undisturbed sample, or else the best."""
        return min(self._samples[entrant])[1] if entrant in self._samples else None

    def _disturbed(self, entrant: Entrant) -> bool:
        return entrant in self._samples and min(self._samples[entrant])[0]

    def _compare(self, entrant: Entrant, where: str, digest: Any) -> None:
        """Raise an error if a result differs from the first one of ours."""
        if entrant.contender is self.bench.ours and where not in self._digests:
            self._digests[where] = digest
            return
        ours = self._digests.get(where)
        if digest is None or ours is None:
            return
        if difference := differ(ours, digest, self.bench.rtol, self.bench.atol):
            raise MismatchError(f"MISMATCH with ours on the {where}: {difference}")


def differ(ours: Any, theirs: Any, rtol: float, atol: float, at: str = "digest") -> str | None:
    """Return a description of the first difference of two digests, or None.

    Parameters
    ----------
    ours, theirs : dict, list, number or other JSON value
        Compared item by item; a key of only one side is a difference. Keys that start with ``only_`` are shown but not
        compared.
    rtol, atol : float
        Numbers may differ by ``atol + rtol * abs(ours)``.
    at : str
        Name of the place, for the description.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        items = [(ours[key], theirs[key], f"{at}.{key}") for key in ours if not key.startswith("only_")]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        items = [(a, b, f"{at}[{i}]") for i, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    elif isinstance(ours, int | float) and isinstance(theirs, int | float):
        close = ours == theirs or abs(ours - theirs) <= atol + rtol * abs(ours)  # a nan is never close
        return None if close else f"{at} is {theirs:.6g}, ours is {ours:.6g}"
    else:
        return None if ours == theirs else f"{at} is {theirs!r:.60}, ours is {ours!r:.60}"
    return next(filter(None, (differ(a, b, rtol, atol, place) for a, b, place in items)), None)


def main(bench: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run a benchmark from the command line.

    Parameters
    ----------
    bench : Benchmark
        Its declaration.
    argv : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        Exit status: 0; 1 if ours failed or a peer disagrees with it; 3 if there is nothing to do with ``--any``; 130
        after Ctrl-C.
    """
    options = _parse(bench, argv)
    if options.list:
        print("\n".join([f"case {case.name}" for case in bench.cases] + [f"peer {peer.name}" for peer in bench.peers]))
        return 0
    if not options.cases:
        return NOTHING
    limits = Limits(timeout=options.timeout, max_memory_gb=options.max_memory_gb)
    say(describe_machine(options.threads))
    rows: list[Row] = []
    status = 0
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        for case in options.cases:
            run = CaseRun(bench, case, options.peers, limits, options.threads, 1 if options.quick else _ATTEMPTS)
            try:
                run.measure(options.repeats)
            finally:
                run.close()
                rows += run.rows()
                if options.record:
                    record(options.record, run, options)
                if options.json:
                    for row in run.rows():
                        print(row.to_json(), flush=True)
            status = status if run.ok else 1
    except KeyboardInterrupt:
        say("interrupted; results so far:")
        status = 130
    finally:
        signal.signal(signal.SIGTERM, before)
    if not options.json:
        shown, absent = without_absent(rows)
        tiny = "tiny problems, " if options.quick else ""
        about = f"{tiny}best of {options.repeats}; ratio above 1: ours is faster"
        about = f"{_threads(options.threads)}, {about}"
        print(f"{bench.name}, {about}\n")
        print(format_table(shown))
        for n, (reason, peers) in enumerate(absent.items()):
            print("" if n else "\n", f"absent: {', '.join(peers)} ({reason})", sep="")
    return status


def record(path: Path, run: CaseRun, options: argparse.Namespace) -> None:
    """Write the rows of a case to the file of records: complete ones, in which both sides were measured or failed."""
    threads = ",".join(map(str, options.threads))
    command = f"python -m benchmarks {run.bench.name} --threads {threads} --repeats {options.repeats}"
    origin = Origin(command, describe_processor(), time.strftime("%Y-%m-%d", time.gmtime()))
    peers = {peer.name: peer for peer in run.peers}
    rows = [row for row in run.rows() if not {"skipped", "interrupted"} & row.extra.keys()]
    update(
        path, [entry(row, run.bench.ours, peers.get(row.peer or ""), run.ours.get(row.case), origin) for row in rows]
    )


def say(text: str) -> None:
    """Print a line of progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def describe_machine(threads: Sequence[int]) -> str:
    """Return one line with the processor, its cores, the system and the load."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{describe_processor()}, {_threads(threads)}, {platform.platform()}{load}"


def _threads(numbers: Sequence[int]) -> str:
    """Return '1 thread', '2 threads' or '1 and 2 threads'."""
    return f"{' and '.join(map(str, numbers))} thread{'s' if max(numbers) > 1 else ''}"


def describe_processor() -> str:
    """Return the name of the processor and the number of its cores."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {n_cores} cores"


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parse(bench: Benchmark, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Benchmark {bench.name}: ours against its peers.")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line instead of a table")
    parser.add_argument(
        "--threads", default="2", metavar="N[,N]", help="threads of each contender (default 2); 1,2 measures both"
    )
    parser.add_argument("--repeats", type=int, help="number of rounds; the best counts (default 5, with --quick 1)")
    parser.add_argument(
        "--quick", action="store_true", help="run only the tiny problems, to check that everything works"
    )
    parser.add_argument(
        "--any", action="store_true", help="exit with status 3 if there are none of the chosen cases or peers"
    )
    parser.add_argument(
        "--cases", default="", metavar="TEXT[,TEXT]", help="run only cases whose name contains one of these"
    )
    parser.add_argument("--peers", metavar="NAME[,NAME]", help="compare only with these peers; an empty text for none")
    parser.add_argument("--timeout", type=float, default=300, help="time limit of a request in seconds (default 300)")
    parser.add_argument("--max-memory-gb", type=float, default=16, help="memory limit of a contender (default 16)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the rows to this file of records")
    parser.add_argument("--list", action="store_true", help="list cases and peers and exit")
    options = parser.parse_args(argv)
    if options.repeats is None:
        options.repeats = 1 if options.quick else 5
    options.threads = [int(text) if text.isdecimal() else 0 for text in options.threads.split(",")]
    if min(options.threads) < 1 or options.repeats < 1:
        parser.error("--threads and --repeats must be at least 1")
    if options.record and options.quick:
        parser.error("--record is for full measurements: leave out --quick")
    texts = options.cases.split(",")
    options.cases = [case for case in bench.cases if any(text in case.name for text in texts)]
    options.threads = list(dict.fromkeys(options.threads))
    if not options.cases and not options.any:
        parser.error(f"no case has any of {texts} in its name; cases: {', '.join(case.name for case in bench.cases)}")
    by_name = {peer.name: peer for peer in bench.peers}
    names = list(by_name) if options.peers is None else [name for name in options.peers.split(",") if name]
    if (unknown := set(names) - set(by_name)) and not options.any:
        parser.error(f"no peer is named {', '.join(sorted(unknown))}; peers: {', '.join(by_name)}")
    options.peers = [by_name[name] for name in names if name in by_name]
    if names and not options.peers:
        options.cases = []
    if options.quick:
        options.cases = tiny_cases(options.cases)
    return options


def tiny_cases(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with their tiny problems, without those that have none or that of an earlier case."""
    tiny: list[Case] = []
    for case in cases:
        if case.check is None or any(case.check == other.params for other in tiny):
            say(f"{case.name}: left out, it has no tiny problem of its own")
        else:
            tiny.append(replace(case, params=case.check, check=None, reference=None, variants=()))
    return tiny
