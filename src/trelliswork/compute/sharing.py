"""The processes that share one piece of work: this one alone, unless `learning.distributed` has started a group.

Each process (rank) holds a part of the sentences; the parts in order of rank are the whole. Code that sums over
sentences, or that numbers what occurs in them, asks ``current()`` for the group and calls its methods, on every rank
in the same order. With one process they return their arguments.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

A = TypeVar("A", bound=NDArray[Any])
Keys = NDArray[np.int64]
PIECE = 1 << 20  # items of a long array that a rank sends at a time


class Group:
    """One process. A group of several overrides the methods."""

    rank = 0
    size = 1

    def share(self, n: int) -> tuple[int, int]:
        """Return the range of ``n`` items that belongs to this rank: contiguous, in order of rank, of equal size."""
        return self.rank * n // self.size, (self.rank + 1) * n // self.size

    def place(self, n: int) -> tuple[int, int]:
        """Return where the ``n`` items of this rank begin among those of all ranks, and the number of all."""
        sizes = self.gather(n)
        return sum(sizes[: self.rank]), sum(sizes)

    def sum(self, array: A) -> A:
        """Return the sum of an array over all ranks; the array may be changed. Bit for bit the same on all ranks."""
        return array

    def sums(self, *arrays: A) -> list[A]:
        """Return the sums of several arrays of one type over all ranks, sent as one message."""
        if self.size == 1:
            return list(arrays)
        flat = self.sum(np.concatenate([array.reshape(-1) for array in arrays]))
        parts = np.split(flat, np.cumsum([array.size for array in arrays])[:-1])
        return [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]  # type: ignore[misc]

    def maximum(self, array: A) -> A:
        """Return the largest values over all ranks; the array may be changed."""
        return array

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the data of each rank, in order of rank."""
        return [data]

    def first(self, make: Callable[[], Any]) -> Any:
        """Return plain data (JSON) that only rank 0 makes."""
        return make()

    def first_arrays(self, make: Callable[[], dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Return arrays that only rank 0 makes."""
        return make()

    def exchange(self, parts: Sequence[A]) -> list[A]:
        """Send ``parts[r]`` to rank r, for all r; return what each rank sent to this one. One axis, one type."""
        return list(parts)

    def barrier(self) -> None:
        """Wait until all ranks have come here."""

    def fail(self) -> bool:
        """Tell the others that this rank has failed; return whether it was the first."""
        return True

    def usage(self) -> dict[str, Any]:
        """Return what the ranks have spent so far, for a report: ``processes``, a dict for each; empty for one."""
        return {}

    def total(self, value: float) -> float:
        """Return the sum of a number over all ranks."""
        return value if self.size == 1 else float(self.sum(np.array([value], np.float64))[0])

    def ratio(self, part: float, whole: float) -> float:
        """Return the ratio of two numbers that are summed over all ranks; 0 if there is nothing."""
        if self.size > 1:
            part, whole = self.sum(np.array([part, whole], np.float64)).tolist()
        return part / whole if whole else 0.0

    def any(self, value: bool) -> bool:
        """Return whether a condition holds on any rank."""
        return value if self.size == 1 else self.total(value) > 0

    def gather(self, plain: Any) -> list[Any]:
        """Return plain data (JSON) of each rank, in order of rank."""
        if self.size == 1:
            return [plain]
        return [json.loads(data) for data in self.gather_bytes(json.dumps(plain).encode())]

    def gather_arrays(self, array: A) -> list[A]:
        """Return the array (one axis, any length) of each rank, in order of rank."""
        if self.size == 1:
            return [array]
        return [np.frombuffer(data, array.dtype) for data in self.gather_bytes(array.tobytes())]  # type: ignore[misc]

    def pieces(self, n: int, read: Callable[[int, int], A]) -> Iterator[tuple[int, A]]:
        """Yield arrays (one axis) of all ranks, one after another, in pieces: the place of each, and its values.

        The array of this rank has ``n`` items; ``read`` returns those of a range, as they are needed.
        """
        if self.size == 1:
            yield 0, read(0, n)
            return
        lengths = np.array(self.gather(n), np.int64)
        starts = np.cumsum(lengths) - lengths
        for k in range(0, int(lengths.max()), PIECE):
            own = read(min(k, n), min(k + PIECE, n))
            for start, piece in zip(starts.tolist(), self.gather_arrays(own), strict=True):
                if len(piece):
                    yield start + k, piece

    def concatenated(self, array: A) -> A:
        """Return the arrays (one axis) of all ranks, one after another."""
        if self.size == 1:
            return array
        out = np.empty(sum(self.gather(len(array))), array.dtype)
        for at, piece in self.pieces(len(array), lambda a, b: array[a:b]):
            out[at : at + len(piece)] = piece
        return out  # type: ignore[return-value]

    def merge(self, names: Iterable[str]) -> list[str]:
        """Return the distinct strings of all ranks, in order of appearance."""
        return list(self.count_names(dict.fromkeys(names, 1)))

    def count_names(self, counts: Mapping[str, int], least: int = 1) -> dict[str, int]:
        """Return the counts of the strings that occur at least ``least`` times on all ranks, in order of appearance.

        ``counts`` are those of this rank, in order of appearance. Each rank receives the strings of all.
        """
        if self.size == 1:
            return {name: n for name, n in counts.items() if n >= least}
        total: dict[str, int] = {}
        for data in self.gather_bytes(json.dumps({name: int(n) for name, n in counts.items()}).encode()):
            for name, n in json.loads(data).items():
                total[name] = total.get(name, 0) + n
        return {name: n for name, n in total.items() if n >= least}

    def union(self, keys: Keys) -> Keys:
        """Return the distinct keys of all ranks in ascending order; those of this rank are ascending and distinct."""
        return keys if self.size == 1 else np.unique(np.concatenate(self.gather_arrays(keys)))

    def count(self, keys: Keys, counts: Keys, least: int = 1) -> tuple[Keys, Keys]:
        """Return the keys that occur at least ``least`` times on all ranks together, in order of appearance.

        ``keys`` are distinct and in order of appearance on this rank. Each key has one owner, by hash, which adds up
        its counts and keeps its first place; only frequent keys are then sent to all. Returns keys and counts.
        """
        if self.size > 1:
            owner = _owner(keys, self.size)
            by_owner = [np.flatnonzero(owner == rank) for rank in range(self.size)]
            sent = [np.stack([keys[at], counts[at], at]).reshape(-1) for at in by_owner]
            received = [part.reshape(3, -1) for part in self.exchange(sent)]
            table = np.concatenate(received, axis=1)
            ranks = np.repeat(np.arange(self.size), [part.shape[1] for part in received])
            listed, first, inverse = np.unique(table[0], return_index=True, return_inverse=True)
            summed = np.bincount(inverse, table[1], len(listed)).astype(np.int64)
            frequent = summed >= least
            rows = np.stack([listed, summed, ranks[first], table[2, first]])[:, frequent]
            every = [part.reshape(4, -1) for part in self.gather_arrays(rows.reshape(-1))]
            table = np.concatenate(every, axis=1)
            order = np.lexsort((table[3], table[2]))
            return table[0, order], table[1, order]
        frequent = counts >= least
        return (keys, counts) if frequent.all() else (keys[frequent], counts[frequent])


def _owner(keys: Keys, n: int) -> NDArray[np.int64]:
    """Return the owner of each key, from 0 to n - 1, by a multiplicative hash."""
    mixed = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(n)).astype(np.int64)


ALONE = Group()  # for work that is not shared although there is a group
_groups: list[Group] = [ALONE]


def current() -> Group:
    """Return the group of processes that this process works in."""
    return _groups[-1]


@contextmanager
def sharing(group: Group) -> Iterator[Group]:
    """Work in a group inside a ``with`` block."""
    _groups.append(group)
    try:
        yield group
    finally:
        _groups.remove(group)
