"""The same work in groups of different sizes: what a second process, a second thread, or four processes bring.

Each function takes ``{"task": ..., sizes}``. A group of processes starts once and is ready before anything is timed.

- ``crf``: CRF training on the first n sentences of CoNLL-2000, repeated, from strings to weights;
- ``hmm``: iterations of EM in float32 on n sentences of WikiText-2;
- ``moments``: counts of the words and word pairs of WikiText-2 and PTB, n times;
- ``mrf``: value and gradient of the lifted MRF language model of C words, at several parameters;
- ``tag``: the command ``tag`` on n copies of the test part of CoNLL-2000;
- ``pcfg``: iterations of EM on n short sentences of PTB;
"""

import os
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.declarations import Params, Task

MODULE = "benchmarks.contenders.scale"


LATENCY, BANDWIDTH = 1e-3, 1e9 / 8  # of the slow network: seconds per step, bytes per second


def _task(size: int, threads: int, params: Params, slow: bool = False) -> Task:
    from tests.processes import on_ranks

    folder = _folder(params)
    os.environ["STRICT"] = "0"
    on_ranks(size, f"{MODULE}:prepare", folder, params, slow, threads=threads)
    return Task(
        lambda: on_ranks(size, f"{MODULE}:work", folder, params, threads=threads)[0],
        lambda result: {"result": result["result"]},
    )


def two_processes(params: Params) -> Task:
    """Two processes with one thread each."""
    return _task(2, 1, params)


def one_process(params: Params) -> Task:
    """One process with one thread."""
    return _task(1, 1, params)


def two_threads(params: Params) -> Task:
    """One process with two threads."""
    return _task(1, 2, params)


def four_processes(params: Params) -> Task:
    """Four processes with one thread each, on two cores: for the cost model."""
    return _task(4, 1, params)


def slow_network(params: Params) -> Task:
    """Two processes whose messages take as long as over a slow network, by waiting: for the cost model."""
    return _task(2, 1, params, slow=True)


def _data() -> Path:
    if "TRELLISWORK_DATA" not in os.environ:
        raise NotImplementedError("needs TRELLISWORK_DATA, the directory of the data sets")
    return Path(os.environ["TRELLISWORK_DATA"])


@cache
def _temporary() -> Any:
    return tempfile.TemporaryDirectory(prefix="scale-")


def _folder(params: Params) -> str:
    """Return a folder with the files that a task needs, removed when this process ends."""
    _data()
    return str(_temporary().name)


def _slow_down(group: Any) -> None:
    """Let every message of a group wait for the latency of its steps, and for its bytes."""
    send = group._call

    def call(operation: Any, n_bytes: int, sent: int, kind: str) -> None:
        send(operation, n_bytes, sent, kind)
        time.sleep(2 * (group.size - 1) * LATENCY + sent / BANDWIDTH)

    group._call = call


def prepare(group: Any, folder: str, params: Params, slow: bool) -> None:
    """Read what is not timed, on each rank; rank 0 writes the files."""
    if slow and "_call" not in vars(group):
        _slow_down(group)
    _STATE.clear()
    _STATE.update(globals()[f"_prepare_{_name(params)}"](group, Path(folder), params))


def work(group: Any, folder: str, params: Params) -> dict[str, Any]:
    """Run the task once."""
    return {"result": globals()[f"_{_name(params)}"](group, Path(folder), params)}


_STATE: dict[str, Any] = {}


def _name(params: Params) -> str:
    return str(params["task"]).replace("-", "_")


def _prepare_crf(group: Any, folder: Path, params: Params) -> dict[str, Any]:
    from trelliswork.data import read_columns

    corpus = read_columns(_data() / "conll2000" / "train.txt")
    rows = [list(zip(*columns, strict=True)) for columns in zip(corpus.sentences(0), corpus.sentences(1), strict=True)]
    X, y = rows[: params["n"]] * params["repeat"], corpus.sentences(2)[: params["n"]] * params["repeat"]
    start, stop = group.share(len(X))
    return {"X": X[start:stop], "y": y[start:stop]}


def _crf(group: Any, folder: Path, params: Params) -> list[float]:
    import warnings

    from trelliswork import CRF

    warnings.simplefilter("ignore")
    crf = CRF("chunking", max_iter=params["max_iter"], tol=0.0).fit(_STATE["X"], _STATE["y"])
    # Later values differ until convergence: each step of L-BFGS enlarges the differences of the one before.
    return [len(crf._learned.weights), crf.report_.history[0].value]


def _prepare_hmm(group: Any, folder: Path, params: Params) -> dict[str, Any]:
    text = (_data() / "wikitext-2" / "wiki.train.tokens").read_text(encoding="utf-8").splitlines()
    sentences = [words for line in text if 3 < len(words := line.split()) < 100][: params["n"]]
    start, stop = group.share(len(sentences))
    return {"X": sentences[start:stop]}


def _hmm(group: Any, folder: Path, params: Params) -> float:
    from trelliswork import HMM

    options: Any = {"max_iter": params["max_iter"], "tol": 0.0, "unknown": "symbol", "min_count": 5}
    options["options"] = {"dtype": "float32"}
    return HMM(params["states"], **options).fit(_STATE["X"]).report_.value


def _prepare_moments(group: Any, folder: Path, params: Params) -> dict[str, Any]:
    from trelliswork.data.reading.shares import shares

    texts = [_data() / "wikitext-2" / "wiki.train.tokens", _data() / "ptb-lm" / "ptb.train.txt"]
    return {"files": shares(texts * params["n"], group.rank, group.size, blank_lines=False)}


def _moments(group: Any, folder: Path, params: Params) -> list[int]:
    from trelliswork.data.moments import count_moments

    counts = count_moments(_STATE["files"], 2, max_words=20_000)
    return [counts.n_tokens, counts.n_pairs]


def _prepare_mrf(group: Any, folder: Path, params: Params) -> dict[str, Any]:
    import numpy as np

    from trelliswork.compute.sharing import Group, sharing
    from trelliswork.data.moments import count_moments
    from trelliswork.models.mrf.objective import MomentObjective
    from trelliswork.models.mrf.shapes import Frequencies, LowRankShape
    from trelliswork.models.mrf.start import first_parameters

    with sharing(Group()):  # every rank has the moments of the whole text
        moments = count_moments(_data() / "ptb-lm" / "ptb.train.txt", 2, max_words=params["C"] - 2)
        frequencies = Frequencies.of(moments)
        shape = LowRankShape(len(moments.vocabulary), 2, params["rank"])
        first = first_parameters(shape, frequencies)
    objective = MomentObjective(shape, frequencies, np.full(2, 0.5), l2=5.0)
    return {"objective": objective, "first": first * objective.scale}


def _mrf(group: Any, folder: Path, params: Params) -> float:
    found = [_STATE["objective"](_STATE["first"] * (1 + 0.001 * k)) for k in range(params["steps"])]
    return float(sum(float(abs(one.gradient).sum()) for one in found))


def _prepare_tag(group: Any, folder: Path, params: Params) -> dict[str, Any]:
    from trelliswork import CRF
    from trelliswork.compute.sharing import Group, sharing
    from trelliswork.data import read_columns

    if group.rank == 0:
        corpus = read_columns(_data() / "conll2000" / "train.txt")
        pairs = zip(corpus.sentences(0)[:1000], corpus.sentences(1)[:1000], strict=True)
        with sharing(Group()):
            crf = CRF("chunking", max_iter=20, tol=1e-2)
            crf.fit([list(zip(*columns, strict=True)) for columns in pairs], corpus.sentences(2)[:1000])
            crf.input_ = {"format": "columns", "columns": [0, 1], "label": 2}
            crf.save(folder / "tagger")
        test = (_data() / "conll2000" / "test.txt").read_bytes() * 4
        for k in range(params["n"]):
            (folder / f"{k}.txt").write_bytes(test)
    group.barrier()
    return {"files": [str(folder / f"{k}.txt") for k in range(params["n"])]}


def _tag(group: Any, folder: Path, params: Params) -> int:
    from trelliswork.cli.use.tag import tag

    out = folder / "tagged"
    tag(str(folder / "tagger"), _STATE["files"], out=f"{out}/")
    group.barrier()
    return sum(path.stat().st_size for path in out.iterdir())


def _share(group: Any, X: list[Any]) -> list[Any]:
    return X[slice(*group.share(len(X)))]


def _lines(n: int, longest: int) -> list[list[str]]:
    text = (_data() / "ptb-lm" / "ptb.train.txt").read_text(encoding="utf-8").splitlines()
    return [words for line in text if 1 < len(words := line.split()) <= longest][:n]


def _prepare_pcfg(group: Any, folder: Path, params: Params) -> dict[str, Any]:
    return {"X": _share(group, _lines(params["n"], 20))}


def _pcfg(group: Any, folder: Path, params: Params) -> float:
    import warnings

    from trelliswork import PCFG

    warnings.simplefilter("ignore")
    return PCFG(10, n_preterminals=20, max_iter=params["max_iter"], tol=0.0).fit(_STATE["X"]).report_.value
