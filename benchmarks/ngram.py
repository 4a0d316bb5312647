"""Kneser-Ney 5-grams against KenLM: scores, loading, training. Needs TRELLISWORK_DATA.

Both score with the same model of the training parts of PTB and WikiText-2, which ours writes as an ARPA file. KenLM
runs through its Python module, which takes one sentence per call. Loading, the trie and training need its programs
``build_binary`` and ``lmplz`` on the PATH, which the Python package does not install. ``load large`` adds the texts of
``raw-text`` to those of training. Run with ``--threads 1``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.ngram"


def _case(name: str, task: str, text: str = "ptb-lm/ptb.test.txt", n: int = 40_000, raw: str = "") -> Case:
    params = {"task": task, "text": text, "n": n, "lines": 0, "raw": raw}
    return Case(name=name, params=params, check=params | {"n": 100, "lines": 2000}, show=task != "load")


BENCHMARK = Benchmark(
    name="ngram",
    ours=Contender(
        "trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba"), precision="float64"
    ),
    peers=(
        Contender("kenlm", f"{MODULE}:probing", packages=("kenlm",), precision="float32", one_thread=True),
        Contender("kenlm trie", f"{MODULE}:trie", packages=("kenlm",), precision="float32", one_thread=True),
    ),
    cases=(
        _case("strings ptb-test", "strings"),
        _case("strings wikitext-test", "strings", "wikitext-2/wiki.test.tokens"),
        _case("strings ptb-train", "strings", "ptb-lm/ptb.train.txt"),
        _case("lists ptb-test", "lists"),
        _case("one sentence per call", "single"),
        _case("one list per call", "single lists"),
        _case("load", "load", n=1),
        _case("load large", "load", n=1, raw="raw-text"),
        _case("train", "train", n=1),
    ),
    rtol=1e-4,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
