"""Models of CRFsuite (binary), CRF++ (text) and Wapiti (text): labels, patterns, attributes and weights."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import open_text, shorten, whole_number
from trelliswork.errors import DataError

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
CRFSUITE, WAPITI, CRFPP = b"lCRF", b"#mdl#", b"version:"  # first bytes of the files


@dataclass(frozen=True)
class Weights:
    """Weights (n,) of attributes with labels; ``labels`` are ids, or ``i * S + j`` of a pair of labels."""

    attributes: Ids
    labels: Ids
    weights: Floats


@dataclass(frozen=True)
class ForeignCRF:
    """A linear-chain CRF of another tool."""

    tool: str
    labels: list[str]
    names: list[str]  # of attributes of tokens
    state: Weights
    transitions: Floats  # (S, S), from, to
    patterns: list[str] = field(default_factory=list)  # lines of the model file; none: the attributes are ready
    edge_names: list[str] = field(default_factory=list)  # of attributes of pairs of labels
    edges: Weights | None = None
    n_columns: int = 0


def read_crfsuite_model(path: str | Path) -> ForeignCRF:
    """Read a binary model of CRFsuite (``.crfsuite``), in its published layout.

    A header with offsets; ``FEAT``, the features (type, from, to, weight); and two ``CQDB`` of strings, labels and
    attributes. DataError if the file is damaged or of another version.
    """
    data = Path(path).read_bytes()
    damaged = DataError(f"{path}: expected a model of CRFsuite, but the file is damaged or incomplete.")
    if data[:4] != CRFSUITE or len(data) < 48:
        raise damaged
    _, kind, version, n_features, n_labels, n_attributes, at, at_labels, at_attributes = struct.unpack_from(
        "<I4s7I", data, 4
    )
    if kind != b"FOMC" or version != 100:
        raise DataError(
            f"{path}: expected a first-order CRF of version 100, got type {kind!r}, version {version}. Train again "
            "with CRFsuite 0.12."
        )
    try:
        head, _, n = struct.unpack_from("<4sII", data, at)
        kind_of = np.dtype([("type", "<u4"), ("from", "<u4"), ("to", "<u4"), ("weight", "<f8")])
        features = np.frombuffer(data, kind_of, n, at + 12)
        labels, names = _strings(data, at_labels, n_labels), _strings(data, at_attributes, n_attributes)
    except (struct.error, ValueError, IndexError):
        raise damaged from None
    is_state, source, to = features["type"] == 0, features["from"].astype(np.int64), features["to"].astype(np.int64)
    bounds = np.where(is_state, n_attributes, n_labels)
    fits = head == b"FEAT" and n <= max(n_features, n) and (features["type"] <= 1).all() and (source < bounds).all()
    if not fits or (to >= n_labels).any() or not np.isfinite(features["weight"]).all():
        raise damaged
    transitions = np.zeros((n_labels, n_labels))
    transitions[source[~is_state], to[~is_state]] = features["weight"][~is_state]
    state = Weights(source[is_state], to[is_state], features["weight"][is_state].copy())
    return ForeignCRF("CRFsuite", labels, names, state, transitions)


def _strings(data: bytes, at: int, n: int) -> list[str]:
    """Return the n strings of a constant database that starts at a byte."""
    head, size, _, order, n_listed, listed = struct.unpack_from("<4s5I", data, at)
    if head != b"CQDB" or order != 0x62445371 or n_listed < n or at + size > len(data):
        raise ValueError("not a database of strings")
    found = []
    for place in struct.unpack_from(f"<{n}I", data, at + listed):
        (length,) = struct.unpack_from("<I", data, at + place + 4)
        start = at + place + 8
        if not place or not length or start + length > len(data):
            raise ValueError("not a string")
        found.append(data[start : start + length - 1].decode("utf-8"))
    return found


def read_crfpp_model(path: str | Path) -> ForeignCRF:
    """Read a text model of CRF++ (``crf_learn -t`` writes ``MODEL.txt``); its templates are part of it."""
    with open_text(path) as opened:
        lines = list(opened)
    numbered = iter(enumerate(lines, start=1))

    def block() -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for number, line in numbered:
            if not line.strip():
                if found:
                    break
                continue
            found.append((number, line))
        return found

    header = dict(line.split(": ", 1) for _, line in block() if ": " in line)
    labels, patterns = [line for _, line in block()], [line for _, line in block()]
    maxid, xsize = (whole_number(header.get(key, "").strip()) for key in ("maxid", "xsize"))
    factor = _number(header.get("cost-factor", "1"), f"{path}: cost-factor")
    if maxid is None or xsize is None or not labels or not patterns:
        raise DataError(f"{path}: expected a text model of CRF++ (crf_learn -t) with labels and templates.")
    S, listed, weights = len(labels), block(), [line for _, line in block()]
    if not weights and listed and " " not in listed[0][1]:
        listed, weights = [], [line for _, line in listed]
    if len(weights) != maxid:
        raise DataError(f"{path}: expected {maxid} weights, as maxid says, got {len(weights)}. Is the file complete?")
    values = np.array([_number(w, f"{path}: weight {n}") for n, w in enumerate(weights)]) * factor
    builder = _Builder(S)
    for number, line in listed:
        first, _, name = line.partition(" ")
        at, size = whole_number(first), S * S if name.startswith("B") else S
        if at is None or not name or at + size > maxid:
            raise DataError(f"{path}:{number}: expected an id below {maxid} and an attribute, got {shorten(line)}.")
        own = values[at : at + size]
        if name.startswith("B"):
            builder.edge(name, own)
        else:
            builder.state(name, own)
    return builder.model("CRF++", labels, patterns, xsize)


def read_wapiti_model(path: str | Path) -> ForeignCRF:
    """Read a text model of Wapiti; its patterns are part of it. Only linear-chain CRFs with patterns."""
    data, name = Path(path).read_bytes(), str(path)
    reader = _Netstrings(data, name)
    kind, _, n_active = reader.line().removeprefix(WAPITI).rpartition(b"#")
    if kind not in (b"", b"2"):
        raise DataError(f"{name}: expected a CRF of Wapiti, got a maximum entropy model (type {shorten(kind[:9])}).")
    counts = reader.line().removeprefix(b"#rdr#").split(b"/")
    patterns = [reader.string() for _ in range(reader.number(counts[0]))]
    if not patterns:
        raise DataError(f"{name}: expected a model with patterns: those without read ready attributes.")
    labels = [reader.string() for _ in range(reader.number(reader.line().removeprefix(b"#qrk#")))]
    names = [reader.string() for _ in range(reader.number(reader.line().removeprefix(b"#qrk#")))]
    S, first, total = len(labels), [], 0
    for attribute in names:
        if attribute[:1] not in ("u", "b", "*"):
            raise DataError(f"{name}: expected attributes that start with u, b or *, got {shorten(attribute)}.")
        first.append(total)
        total += (S if attribute[0] in "u*" else 0) + (S * S if attribute[0] in "b*" else 0)
    values = np.zeros(total)
    for _ in range(reader.number(n_active)):
        at, _, weight = reader.line().partition(b"=")
        place = reader.number(at)
        if place >= total:
            raise DataError(f"{name}: expected weights 0 to {total - 1}, got {place}.")
        values[place] = _number(weight.decode("ascii", "replace"), f"{name}: weight {place}", float.fromhex)
    builder = _Builder(S)
    for attribute, start in zip(names, first, strict=True):
        if attribute[0] in "u*":
            builder.state(attribute, values[start : start + S])
        if attribute[0] in "b*":
            at_edges = start + (S if attribute[0] == "*" else 0)
            builder.edge(attribute, values[at_edges : at_edges + S * S])
    return builder.model("Wapiti", labels, patterns, 0)


class _Netstrings:
    """Lines and netstrings (``5:label,``) of a file of Wapiti."""

    def __init__(self, data: bytes, source: str) -> None:
        self._data, self._at, self._source = data, 0, source

    def line(self) -> bytes:
        """Return the next line."""
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise DataError(f"{self._source}: expected a model of Wapiti, but the file is incomplete.")
        found, self._at = self._data[self._at : end], end + 1
        return found.rstrip(b"\r")

    def string(self) -> str:
        """Return the next netstring; bytes that are not UTF-8 become escapes."""
        colon = self._data.find(b":", self._at, self._at + 20)
        length = self.number(self._data[self._at : max(colon, self._at)].strip())
        start = colon + 1
        if self._data[start + length : start + length + 1] != b",":
            raise DataError(f"{self._source}: expected {length} bytes and a comma, but the file is damaged.")
        self._at = start + length + 1
        if self._data[self._at : self._at + 1] == b"\n":
            self._at += 1
        return self._data[start : start + length].decode("utf-8", "backslashreplace")

    def number(self, digits: bytes) -> int:
        """Return a number."""
        found = whole_number(digits.decode("ascii", "replace").strip())
        if found is None:
            raise DataError(f"{self._source}: expected a number, got {shorten(digits[:60])}: not a model of Wapiti.")
        return found


class _Builder:
    """Attributes and weights that differ from 0, in the order of the file."""

    def __init__(self, n_labels: int) -> None:
        self._S = n_labels
        self._names: tuple[list[str], list[str]] = ([], [])
        self._parts: tuple[list[Weights], list[Weights]] = ([], [])
        self._transitions = np.zeros((n_labels, n_labels))

    def state(self, name: str, weights: Floats) -> None:
        """Add the weights (S,) of an attribute of a token."""
        self._add(0, name, weights)

    def edge(self, name: str, weights: Floats) -> None:
        """Add the weights (S * S,) of an attribute of a pair of labels."""
        self._add(1, name, weights)

    def _add(self, where: int, name: str, weights: Floats) -> None:
        labels = np.flatnonzero(weights)
        attribute = np.full(len(labels), len(self._names[where]))
        self._names[where].append(name)
        self._parts[where].append(Weights(attribute, labels, weights[labels]))

    def model(self, tool: str, labels: list[str], patterns: list[str], n_columns: int) -> ForeignCRF:
        """Return the model."""
        state, edges = map(_joined, self._parts)
        names, edge_names = self._names
        return ForeignCRF(tool, labels, names, state, self._transitions, patterns, edge_names, edges, n_columns)


def _joined(parts: Sequence[Weights]) -> Weights:
    if not parts:
        return Weights(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    attributes, labels = (np.concatenate([getattr(p, k) for p in parts]) for k in ("attributes", "labels"))
    return Weights(attributes, labels, np.concatenate([p.weights for p in parts]))


def _number(text: str, what: str, read: Callable[[str], float] = float) -> float:
    try:
        value = read(text)
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{what}: expected a finite number, got {shorten(text)}.")
    return value
