"""Groups of processes, on one machine or many: `torch.distributed` under `torchrun`.

``torchrun`` starts the processes and tells each its rank by environment variables. `group` joins them; inside of it,
`trelliswork.compute.sharing.current` is the group, and estimators add up their sums over all ranks. Communication is
by gloo. Plain data travel as JSON, never as pickles.

A rank that fails says so in the store of the group, so that the others end without a word; a rank that disappears (it
was killed, its machine is down) is found out by the others when they wait for it.
"""

import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.sharing import A, Group, current, sharing
from trelliswork.errors import ProcessError, extras_for

TIMEOUT = timedelta(minutes=30)  # for a rank that does not come
ANSWER = 3.0  # seconds in which ranks that are alive answer after a failure
SMALL = 1 << 16  # bytes; before a larger message all ranks wait for each other, so that waiting is not communication


def launched() -> int:
    """Return the number of processes that ``torchrun`` has started; 1 without it."""
    size = os.environ.get("WORLD_SIZE", "1")
    return int(size) if size.isdecimal() and len(size) < 7 and "RANK" in os.environ else 1


def is_first() -> bool:
    """Return whether this is rank 0, or the only process; also before the group has started."""
    return launched() == 1 or os.environ["RANK"] == "0"


@dataclass
class Usage:
    """What a rank has spent in a group: seconds, and bytes that it has sent."""

    computation: float = 0.0
    communication: float = 0.0
    waiting: float = 0.0
    bytes_sent: int = 0
    messages: int = 0


class Processes(Group):
    """The processes of ``torchrun``; made by `group`. If ``strict``, small messages are compared like large ones."""

    strict = False

    def __init__(self) -> None:
        import torch.distributed as dist

        self._dist = dist
        if not dist.is_initialized():
            _use_loopback()
            store, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))
            store = dist.PrefixStore(_meet(store, rank, size), store)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._store = dist.PrefixStore("trelliswork", dist.distributed_c10d._get_default_store())
        self._began, self._usage = time.perf_counter(), Usage()
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if "TRELLISWORK_THREADS" not in os.environ and not threads.is_set():
            threads.set_num_threads(max(1, threads.available() // local))

    def usage(self) -> dict[str, Any]:
        """Return what the ranks have spent so far: ``processes``, a dict for each."""
        spent = self._usage
        spent.computation = time.perf_counter() - self._began - spent.communication - spent.waiting
        return {"processes": self.gather(asdict(spent))}

    def sum(self, array: A) -> A:
        """Return the sum of an array over all ranks; the array may be changed."""
        return self._reduce(array, self._dist.ReduceOp.SUM)

    def maximum(self, array: A) -> A:
        """Return the largest values over all ranks; the array may be changed."""
        return self._reduce(array, self._dist.ReduceOp.MAX)

    def _reduce(self, array: A, operation: Any) -> A:
        import torch

        flat = np.ascontiguousarray(array)
        tensor = torch.from_numpy(flat.reshape(-1))
        n, sent = flat.nbytes, flat.nbytes * 2 * (self.size - 1) // self.size
        self._call(lambda: self._dist.all_reduce(tensor, operation), n, sent, f"{tensor.dtype} {tensor.numel()}")
        return flat  # type: ignore[return-value]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the data of each rank, in order of rank."""
        import torch

        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = len(data)
        sizes = self.sum(sizes)
        longest = int(sizes.max())
        if not longest:
            return [b""] * self.size
        own = torch.zeros(longest, dtype=torch.uint8)
        own[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else own[:0]
        every = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        self._call(lambda: self._dist.all_gather(every, own), longest, longest * (self.size - 1), "gather")
        return [part.numpy()[:n].tobytes() for part, n in zip(every, sizes.tolist(), strict=True)]

    def exchange(self, parts: Sequence[A]) -> list[A]:
        """Send ``parts[r]`` to rank r, for all r; return what each rank sent to this one."""
        import torch

        sizes = np.zeros((self.size, self.size), np.int64)
        sizes[self.rank] = [len(part) for part in parts]
        sizes = self.sum(sizes)
        sent, received = sizes[self.rank].tolist(), sizes[:, self.rank].tolist()
        given = torch.from_numpy(np.concatenate(parts).copy())
        taken = torch.empty(sum(received), dtype=given.dtype)
        n, own = int(sizes.sum()) * given.element_size(), given.numel() * given.element_size()
        self._call(lambda: self._dist.all_to_all_single(taken, given, received, sent), n, own, f"to all {given.dtype}")
        ends = np.cumsum(received)[:-1]
        return np.split(taken.numpy(), ends)  # type: ignore[return-value]

    def first(self, make: Callable[[], Any]) -> Any:
        """Return plain data (JSON) that only rank 0 makes."""
        return json.loads(self._broadcast(json.dumps(make()).encode() if self.rank == 0 else b""))

    def first_arrays(self, make: Callable[[], dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Return arrays that only rank 0 makes."""
        from safetensors.numpy import load, save

        arrays = make() if self.rank == 0 else {}
        data = self._broadcast(save({k: np.ascontiguousarray(v) for k, v in arrays.items()}))
        return {name: np.array(array) for name, array in load(data).items()}

    def _broadcast(self, data: bytes) -> bytes:
        import torch

        size = int(self.sum(np.array([len(data) if self.rank == 0 else 0]))[0])
        tensor = torch.empty(size, dtype=torch.uint8)
        if self.rank == 0:
            tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else tensor
        self._call(lambda: self._dist.broadcast(tensor, 0), size, size if self.rank == 0 else 0, "broadcast")
        return tensor.numpy().tobytes()

    def barrier(self) -> None:
        """Wait until all ranks have come here."""
        self._timed("waiting", self._dist.barrier)

    def _call(self, operation: Callable[[], Any], n_bytes: int, sent: int, kind: str) -> None:
        """Run a collective operation whose message has ``n_bytes``, of which this rank sends ``sent``.

        Before a large message all ranks wait for each other, and compare its ``kind``: gloo would add up numbers of
        different types without a word.
        """
        if n_bytes > SMALL or self.strict:
            self._agree(kind)
        self._usage.bytes_sent += sent
        self._usage.messages += 1
        self._timed("communication" if n_bytes > SMALL else "waiting", operation)

    def _agree(self, kind: str) -> None:
        """Wait for the other ranks; raise if they are about to send messages of another kind."""
        import torch

        code = crc32(kind.encode())
        codes = torch.tensor([code, -code])
        self._timed("waiting", lambda: self._dist.all_reduce(codes, self._dist.ReduceOp.MAX))
        if codes[0] != -codes[1]:
            raise ProcessError(
                f"the ranks do not send the same kind of message, here {kind}. Do they run the same version, with the "
                "same options, on the same kind of data? If so, please report this."
            )

    def _timed(self, kind: str, operation: Callable[[], Any]) -> None:
        started = time.perf_counter()
        try:
            operation()
        except RuntimeError as error:
            self._explain(error)
        finally:
            setattr(self._usage, kind, getattr(self._usage, kind) + time.perf_counter() - started)

    def _explain(self, error: RuntimeError) -> None:
        """Raise the error for a collective operation that failed: which ranks are gone, and whether they said why."""
        missing, told = self._missing()
        if told:
            raise OtherRankError("another rank failed, and has said why.") from None
        if missing:
            names = ", ".join(map(str, sorted(missing)))
            raise ProcessError(
                f"rank {names} of {self.size} ended or does not answer. Start again: training resumes from its "
                "checkpoint; torchrun --max-restarts does so by itself."
            ) from None
        raise ProcessError(f"the processes lost each other: {' '.join(str(error).split())[:300]}.") from None

    def _missing(self) -> tuple[set[int], bool]:
        """Return the ranks that do not answer, and whether a rank has said that it failed."""
        missing, until = set(range(self.size)), time.monotonic() + ANSWER
        try:
            self._store.set(f"alive/{self.rank}", "1")
            while missing and time.monotonic() < until:
                if self._store.check(["failed"]):
                    return missing, True
                missing -= {rank for rank in missing if self._store.check([f"alive/{rank}"])}
                time.sleep(0.05)
        except RuntimeError:  # the store was in a process that ended: in that of rank 0 without torchrun
            return {0}, False
        return missing, False

    def fail(self) -> bool:
        """Tell the others that this rank has failed; return whether it was the first."""
        with suppress(RuntimeError):
            first: bool = self._store.add("errors", 1) == 1
            self._store.set("failed", str(self.rank))
            return first
        return True

    def leave(self) -> None:
        """Leave the group, in which all work is done."""
        self._dist.destroy_process_group()


class OtherRankError(ProcessError):
    """Raised on a rank that ends because another one failed, which has told the user why."""

    silent = True


def _meet(store: Any, rank: int, size: int) -> str:
    """Return a name for this start of the group, the same on all ranks.

    The store of ``torchrun`` outlives the processes: a restarted group would find the addresses of the one before. So
    each rank leaves a random mark, and rank 0 lists the marks until every rank has found its own in that list.
    """
    mark, until = secrets.token_hex(8), time.monotonic() + TIMEOUT.total_seconds()
    store.set(f"mark/{rank}", mark)
    while time.monotonic() < until:
        if rank == 0:
            names = [f"mark/{r}" for r in range(size)]
            marks = [store.get(name).decode() if store.check([name]) else "" for name in names]
            store.set("marks", " ".join(marks))
            if all(store.check([f"seen/{mark}/{other}"]) for other in marks[1:]):
                store.set(f"complete/{mark}", "1")
                return mark
        elif store.check(["marks"]):
            marks = store.get("marks").decode().split(" ")
            if len(marks) == size and marks[rank] == mark:
                store.set(f"seen/{marks[0]}/{mark}", "1")
                if store.check([f"complete/{marks[0]}"]):
                    return str(marks[0])
        time.sleep(0.02)
    raise ProcessError(f"rank {rank} of {size} has waited {TIMEOUT} for the others in vain. Are all of them started?")


def _use_loopback() -> None:
    """Let gloo talk over the loopback device if all processes are on this machine and no device is given."""
    alone = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    if alone or os.environ.get("MASTER_ADDR") in ("localhost", "127.0.0.1", "::1"):
        names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
        for name in names:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


@contextmanager
def group() -> Iterator[Group]:
    """Join the processes that ``torchrun`` has started, and share work with them inside a ``with`` block.

    Without ``torchrun`` the group is this process alone. Every rank must run the same code: ``fit`` gets the rank's
    own sentences, in order of rank. Afterwards all ranks hold the same model; ``save`` writes it once, on rank 0.
    """
    if launched() == 1 or current().size > 1:
        yield current()
        return
    with extras_for("a group of processes"):
        processes = Processes()
    with sharing(processes):
        yield processes
        processes.barrier()  # nobody ends before rank 0 has saved
    processes.leave()


def one_process(work: str) -> None:
    """Raise an error in a group of processes: each step of training ``work`` is too small to be shared."""
    if current().size > 1:
        raise OneProcessError(
            f"training {work} takes small steps, after each of which processes would wait for each other: one process "
            "with threads is faster. Start it without torchrun, and set --threads."
        )


class OneProcessError(ProcessError):
    """Raised where the work of a command is not shared: a wrong use of ``torchrun``."""

    exit_code = 2


def silence() -> TextIO:
    """Let only rank 0 write to the standard streams; return the stream for an error of this rank."""
    real = sys.stderr
    if not is_first():
        sys.stdout = sys.stderr = nowhere()
    return real


def nowhere() -> TextIO:
    """Return a stream that drops what is written to it."""
    return Path(os.devnull).open("w", encoding="utf-8")
