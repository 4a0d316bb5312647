"""Large texts for benchmarks: the sentences of some files, repeated and perturbed, as many tokens as wanted.

Repeating a text adds neither words nor n-grams, unlike reading on. Here sentences come in random order, a share of
their words is replaced by other words of the files (as frequent there), and a small share by word forms that the files
lack, whose frequencies have a Zipf tail. So the numbers of words and of n-grams grow about as in a text of that size:
100 million tokens have about 800,000 different words.

The text of a seed is always the same; each shard has a generator of its own, and nothing is kept in memory.

    python -m benchmarks.text ../shared/data/wikitext-2 --tokens 100_000_000 --shards 8 --gzip --out /tmp/text
"""

import argparse
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trelliswork.data.ids import TextIds, read_ids

REPLACED = 0.25  # share of words that are replaced by other words
NEW = 0.02  # share of words that are replaced by new word forms
TAIL = 1.1  # exponent of their Zipf distribution
BATCH = 2000  # sentences


def batches(text: TextIds, n_tokens: int, seed: int, shard: int = 0) -> Iterator[str]:
    """Yield lines of text, one sentence each, ``n_tokens`` words in all."""
    rng = np.random.default_rng((seed, shard))
    words = np.array([*text.vocabulary, "\n"], object)
    lengths = np.diff(text.offsets)
    while n_tokens > 0:
        chosen = rng.integers(0, len(text), BATCH)
        ends = np.cumsum(lengths[chosen])
        chosen = chosen[: np.searchsorted(ends, n_tokens) + 1]
        ends = ends[: len(chosen)]
        at = np.arange(ends[-1]) + np.repeat(text.offsets[chosen + 1] - ends, lengths[chosen])
        ids = text.ids[at]
        random = rng.random(len(ids))
        replaced = np.flatnonzero(random < REPLACED)
        ids[replaced] = text.ids[rng.integers(0, len(text.ids), len(replaced))]
        ids, cut = ids[:n_tokens], ends[ends <= n_tokens]
        new = np.flatnonzero(random[: len(ids)] > 1 - NEW)
        tokens = words[ids]
        tokens[new] = [f"form{n}" for n in rng.zipf(TAIL, len(new)) % 10**12]
        n_tokens -= len(ids)
        lines = " ".join(np.insert(tokens, cut, words[-1]).tolist()).replace(" \n ", "\n").rstrip(" \n")
        yield lines + "\n"


def write(source: Any, out: Path, n_tokens: int, *, seed: int = 0, shards: int = 1, packed: bool = False) -> list[Path]:
    """Write the text of some files to shards in a directory, plain or gzip; return their paths."""
    text = read_ids(source)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for shard in range(shards):
        n = (shard + 1) * n_tokens // shards - shard * n_tokens // shards
        path = out / f"text-{shard:04d}.txt{'.gz' if packed else ''}"
        with gzip.GzipFile(path, "wb", 1, mtime=0) if packed else path.open("wb") as file:
            for lines in batches(text, n, seed, shard):
                file.write(lines.encode())
        paths.append(path)
    return paths


def main() -> None:
    """Write a text as the command line says."""
    parser = argparse.ArgumentParser(description="Write a large text, from the sentences of text files.")
    parser.add_argument("source", nargs="+", help="text files, one sentence per line, plain or gzip, or directories")
    parser.add_argument("--tokens", type=int, required=True, help="number of tokens")
    parser.add_argument("--out", type=Path, required=True, help="directory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1, help="number of files")
    parser.add_argument("--gzip", action="store_true", help="compress the files")
    options = parser.parse_args()
    paths = write(
        options.source, options.out, options.tokens, seed=options.seed, shards=options.shards, packed=options.gzip
    )
    size = sum(path.stat().st_size for path in paths)
    print(f"{options.tokens:,} tokens in {len(paths)} files, {size:,} bytes: {options.out}")


if __name__ == "__main__":
    main()
