"""Word vectors: readers of the formats of word2vec, GloVe and fastText, and vectors of our own models."""

import gzip
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.kernel_cache import cache_directory
from trelliswork.compute.limits import check_cost
from trelliswork.data.files import GZIP, shorten
from trelliswork.errors import DataError, ShapeError

if TYPE_CHECKING:  # importing them takes longer than tagging a sentence
    from scipy import sparse

    from trelliswork.data.moments import Moments

RARE = 30.0  # added to square-root counts; otherwise rare pairs of words have the largest singular values
_HEADER = re.compile(rb"(\d{1,9}) (\d{1,6})\r?\n")
_PEEK = 1 << 16
_BLOCK = 1 << 22


class WordVectors:
    """Vectors of words.

    Parameters
    ----------
    words : sequence of str
        Distinct words.
    table : ndarray (n_words, D)
        The vector of each word.

    Examples
    --------
    >>> vectors = WordVectors(["cat", "dog"], [[1.0, 0.0], [0.0, 1.0]])
    >>> vectors["Dog"].tolist(), "horse" in vectors
    ([0.0, 1.0], False)
    """

    def __init__(self, words: Sequence[str], table: Any) -> None:
        self.words = list(words)
        self.table: NDArray[np.float32] = table if isinstance(table, np.memmap) else np.asarray(table, np.float32)
        if self.table.ndim != 2 or len(self.table) != len(self.words) or not self.table.shape[1]:
            raise ShapeError(
                f"table must have shape (n_words, D) with n_words={len(self.words)}, got {self.table.shape}."
            )
        self._ids = {word: k for k, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            raise DataError("the words of vectors must be distinct: remove the repeated ones.")

    @property
    def n_dims(self) -> int:
        """D, the length of a vector."""
        return self.table.shape[1]

    def id(self, word: str) -> int:
        """Return the row of a word, else that of the word in lower case, else -1."""
        number = self._ids.get(word)
        return self._ids.get(word.lower(), -1) if number is None else number

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.id(word) >= 0

    def __getitem__(self, word: str) -> NDArray[np.float32]:
        if word not in self:
            raise KeyError(word)
        return self.table[self.id(word)]

    def __repr__(self) -> str:
        return f"WordVectors({len(self)} words, {self.n_dims} dimensions)"

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file of word2vec (text or binary), GloVe or fastText (``.vec``), plain or gzip.

        The format is recognized by its content. The file is converted once, to a table in the cache directory
        (``TRELLISWORK_CACHE_DIR``) that is mapped into memory from then on; it is made again when the file changes.
        """
        path = Path(path)
        try:
            about = path.stat()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None
        mark = f"{path.resolve()} {about.st_size} {about.st_mtime_ns}"
        folder = cache_directory().parent / "vectors" / hashlib.sha256(mark.encode()).hexdigest()[:32]
        if not folder.is_dir():
            _convert(path, folder)
        words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
        return cls(words, np.load(folder / "table.npy", mmap_mode="r"))

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """Return the vectors of a fitted language model.

        Those of `MRFLanguageModel` and `LogBilinear` are its embeddings; that of a word in `HMMLanguageModel` has the
        square roots of the posterior of states, p(state | word), so that dot products are similarities of
        distributions.
        """
        words = list(model.vocabulary_)
        if callable(getattr(model, "vectors", None)):
            table = np.asarray(model.vectors(), np.float32)
        elif hasattr(model, "_state_frequencies"):
            emission, blocks = (np.asarray(x)[: len(words)] for x in model._computed()[2:])
            k, frequencies = emission.shape[1], model._state_frequencies()
            check_cost(f"vectors of {len(frequencies):,} states", n_bytes=4.0 * len(words) * len(frequencies))
            states = blocks[:, None] * k + np.arange(k)
            joint = np.exp(emission) * frequencies[states]
            table = np.zeros((len(words), len(frequencies)), np.float32)
            shares = np.sqrt(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300))
            np.put_along_axis(table, states, shares.astype(np.float32), axis=1)
        else:
            raise DataError(f"a model of kind {model.family} has no vectors of words.")
        kept = [k for k, word in enumerate(words) if word not in ("<s>", "</s>", "<unk>")]
        return cls([words[k] for k in kept], table[kept])

    @classmethod
    def from_counts(cls, counts: "Moments", n_dims: int = 100, *, seed: int = 0) -> Self:
        """Return vectors of the neighbors of each word in a text, from counts of adjacent words (`count_moments`).

        Half of the dimensions describe the words that follow a word, half those that precede it: singular vectors of
        scaled counts (see `context_vectors`). Seconds for tens of thousands of words, whatever the length of the text.
        """
        vocabulary = counts.vocabulary
        before, after = context_vectors(counts.pairs[0].astype(np.float32), (n_dims + 1) // 2, seed)
        table = np.concatenate([before, after], axis=1)[:, :n_dims]
        kept = [k for k, word in enumerate(vocabulary) if k > 0 and word != vocabulary.unknown_word]
        return cls([vocabulary[k] for k in kept], table[kept])

    def rows(self, words: Iterable[str]) -> "tuple[WordVectors, NDArray[np.int32]]":
        """Return the vectors of the known ones of some words, of length 1, and the row of each word, -1 if unknown."""
        ids = np.array([self.id(word) for word in words], np.int64)
        used, rows = np.unique(ids, return_inverse=True)
        first = int(len(used) > 0 and used[0] < 0)
        table = np.asarray(self.table[used[first:]], np.float32)
        return WordVectors([self.words[k] for k in used[first:]], _unit(table)), (rows - first).astype(np.int32)


def context_vectors(
    bigrams: "sparse.csr_matrix", n_dims: int, seed: int = 0, n_iter: int = 6
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return two unit vectors for each word (V, D): by the words that follow it, and by those that precede it.

    These are singular vectors of sqrt(c_ij) / sqrt((r_i + RARE) (s_j + RARE)), where r and s are row and column sums,
    without the first one, which is the frequency of words. They are computed by subspace iteration.
    """
    from scipy import sparse

    V = bigrams.shape[0]
    matrix = bigrams.sqrt()
    by = [sparse.diags(1 / np.sqrt(np.asarray(matrix.sum(axis=axis)).ravel() + RARE)) for axis in (1, 0)]
    matrix = (by[0] @ matrix @ by[1]).tocsr().astype(np.float32)
    other = matrix.T.tocsr()
    n = min(n_dims + 1, V)
    basis = np.random.default_rng(seed).standard_normal((V, min(n + 20, V)), np.float32)
    for _ in range(n_iter):
        basis = np.linalg.qr(other @ np.linalg.qr(matrix @ basis)[0])[0]
    left, values, right = np.linalg.svd(matrix @ basis, full_matrices=False)
    chosen = slice(min(1, n - 1), n)
    return _unit(left[:, chosen] * values[chosen]), _unit((basis @ right.T)[:, chosen] * values[chosen])


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def _convert(path: Path, folder: Path) -> None:
    """Write words and table to a new directory, complete or not at all."""
    words, table = _parse(path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        (fresh / "words.txt").write_text("\n".join(words), encoding="utf-8", newline="\n")
        np.save(fresh / "table.npy", table)
        fresh.replace(folder)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if not folder.is_dir():  # else another process was faster
            raise DataError(f"{folder}: cannot be written: {error.strerror or error}.") from None


def _parse(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            return _parse_file(file, str(path))  # type: ignore[arg-type]
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {error}.") from None


def _parse_file(file: IO[bytes], name: str) -> tuple[list[str], NDArray[np.float32]]:
    start = file.read(_PEEK)
    header = _HEADER.match(start)
    if header is not None:
        rest = start[header.end() :]
        n, D = int(header[1]), int(header[2])
        if not D or not n:
            raise DataError(
                f"{name}:1: expected the numbers of words and dimensions, got {shorten(header[0].decode())}."
            )
        if not _is_text(rest, D):
            return _binary(file, rest, n, D, name)
        return _text(file, rest, D, n, name, 2)
    fields = start.split(b"\n", 1)[0].split()
    if len(fields) < 2:
        raise DataError(
            f"{name}:1: expected a word and its vector, got {shorten(start[:60].decode(errors='replace'))}."
        )
    return _text(file, start, len(fields) - 1, None, name, 1)


def _is_text(rest: bytes, D: int) -> bool:
    """Return whether a line of a word and D numbers follows."""
    try:
        fields = rest.split(b"\n", 1)[0].decode().split()
        return len(fields) > D and all(np.isfinite(float(x)) for x in fields[-D:])
    except ValueError:
        return False


def _text(
    file: IO[bytes], start: bytes, D: int, limit: int | None, name: str, line: int
) -> tuple[list[str], NDArray[np.float32]]:
    """Read lines of a word and D numbers; words may contain spaces. Words that occur again are left out."""
    words: dict[str, None] = {}
    rows: list[NDArray[np.float32]] = []
    rest = start
    while rest and (limit is None or len(words) < limit):
        block = file.read(_BLOCK)
        lines = (rest + block).split(b"\n")
        rest = lines.pop() if block else b""
        for text in lines:
            if limit is not None and len(words) >= limit:
                break
            fields = text.strip().rsplit(b" ", D)
            if text.strip():
                try:
                    word, vector = fields[0].decode(), np.array(fields[1:], np.float32)
                    if len(vector) != D or not np.isfinite(vector).all():
                        raise ValueError
                except ValueError:
                    shown = shorten(text[:60].decode(errors="replace"))
                    raise DataError(f"{name}:{line}: expected a word and {D} finite numbers, got {shown}.") from None
                if word not in words:
                    words[word] = None
                    rows.append(vector)
            line += 1
    if not rows:
        raise DataError(f"{name}: expected word vectors, got none.")
    return list(words), np.stack(rows)


def _binary(file: IO[bytes], rest: bytes, n: int, D: int, name: str) -> tuple[list[str], NDArray[np.float32]]:
    """Read words, each followed by a space and D floats of 4 bytes."""
    words: dict[str, None] = {}
    rows = []
    for k in range(n):
        end = rest.find(b" ")
        while end < 0 or len(rest) < end + 1 + 4 * D:
            block = file.read(_BLOCK)
            if not block:
                raise DataError(f"{name}: ends in word {k + 1} of {n}: the file is incomplete or not one of vectors.")
            rest += block
            end = rest.find(b" ")
        vector = np.frombuffer(rest, "<f4", D, end + 1)
        try:
            word = rest[:end].lstrip(b"\n").decode()
        except UnicodeDecodeError:
            word = ""
        if not np.isfinite(vector).all():
            raise DataError(f"{name}: word {k + 1} has a vector that is not finite: the file is not one of vectors.")
        rest = rest[end + 1 + 4 * D :]
        if word and word not in words:  # some public files have a few damaged words
            words[word] = None
            rows.append(vector.astype(np.float32))
    if not rows:
        raise DataError(f"{name}: expected word vectors, got none.")
    return list(words), np.stack(rows)
