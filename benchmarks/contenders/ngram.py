"""N-gram models: ours and KenLM, on the same model.

Each function takes ``{"task": ..., "text": ..., "n": ..., "lines": ...}``: the first n sentences of a text, and the
lines of each training text (0: all). Tasks: ``strings`` (sentences as strings to log-probabilities); ``lists`` (the
same from lists of words, which are joined within the time for KenLM, since it takes strings only); ``single`` and
``single lists`` (the same, one sentence per call); ``load`` (the model from disk, and the score of one sentence);
``train`` (text to the model on disk, the trie for KenLM). With ``raw``, the files of that folder are added to the
training text.
"""

import atexit
import gzip
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.declarations import Params, Task

TRAIN = ("ptb-lm/ptb.train.txt", "wikitext-2/wiki.train.tokens")
_WRITE = """
import sys
from trelliswork.integrations.convert.arpa import write_arpa
from trelliswork.models import KneserNey
write_arpa(KneserNey(5).fit(sys.argv[1]), sys.argv[2])
"""


def _lines(name: str) -> list[str]:
    if "TRELLISWORK_DATA" not in os.environ:
        raise NotImplementedError("needs TRELLISWORK_DATA, the directory of the data sets")
    file = Path(os.environ["TRELLISWORK_DATA"]) / name
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as stream:
        text = stream.read()
    # Lines with invisible characters are left out: an ARPA file cannot have them.
    return [" ".join(words) for line in text.split("\n") if (words := line.split()) and line.strip().isprintable()]


def _raw(params: Params) -> list[str]:
    folder = Path(os.environ.get("TRELLISWORK_DATA", ""))
    return (
        [str(file.relative_to(folder)) for file in sorted((folder / params["raw"]).glob("*.gz"))]
        if params["raw"]
        else []
    )


def _prepared(params: Params) -> tuple[Path, list[str]]:
    """Return a folder with the training text, removed when this process ends, and the sentences to score."""
    folder = Path(tempfile.mkdtemp(prefix="ngram-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    lines = [line for name in (*TRAIN, *_raw(params)) for line in _lines(name)[: params["lines"] or None]]
    (folder / "train.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder, _lines(params["text"])[: params["n"]]


def _digest(scores: Any) -> dict[str, Any]:
    return {"sum": float(sum(scores)), "first": [float(score) for score in scores[:5]]}


def trelliswork(params: Params) -> Task:
    """Our package."""
    from trelliswork.data import Lines
    from trelliswork.models import KneserNey, load

    folder, text = _prepared(params)
    path = folder / "model"
    if params["task"] == "train":
        return Task(lambda: KneserNey(5).fit(folder / "train.txt").save(path))
    KneserNey(5).fit(folder / "train.txt").save(path)
    model = load(path, mapped=True)
    split = [line.split() for line in text]
    calls: dict[str, Callable[[], Any]] = {
        "strings": lambda: model.log_prob(Lines(text)),
        "lists": lambda: model.log_prob(split),
        "single": lambda: [model.log_prob(Lines([line]))[0] for line in text],
        "single lists": lambda: [model.log_prob([words])[0] for words in split],
        "load": lambda: [load(path, mapped=True).log_prob(split[:1])[0]],
    }
    return Task(calls[params["task"]], _digest)


def probing(params: Params) -> Task:
    """KenLM with its hash tables."""
    return _kenlm(params, "probing")


def trie(params: Params) -> Task:
    """KenLM with its trie."""
    return _kenlm(params, "trie")


def _kenlm(params: Params, kind: str) -> Task:
    import kenlm

    folder, text = _prepared(params)
    arpa, binary = folder / "model.arpa", folder / "model.bin"
    programs = {name: shutil.which(name) for name in ("lmplz", "build_binary")}

    def run(name: str, *arguments: object) -> None:
        if programs[name] is None:
            raise NotImplementedError(f"KenLM's program {name} is not on the PATH")
        subprocess.run([programs[name], *map(str, arguments)], check=True, capture_output=True)

    def train() -> None:
        files = ["--text", folder / "train.txt", "--arpa", arpa, "-T", folder]
        run("lmplz", "-o", 5, "-S", "1G", "--skip_symbols", *files)
        run("build_binary", kind, arpa, binary)

    if params["task"] == "train":
        return Task(train)
    from benchmarks.workers import find_python

    subprocess.run([str(find_python("")), "-c", _WRITE, str(folder / "train.txt"), str(arpa)], check=True)
    if kind == "probing" and params["task"] != "load" and programs["build_binary"] is None:
        binary = arpa  # the module builds the hash tables
    else:
        run("build_binary", kind, arpa, binary)
    model = kenlm.Model(str(binary))
    unit = math.log(10.0)
    calls: dict[str, Callable[[], Any]] = {
        "load": lambda: [kenlm.Model(str(binary)).score(text[0])],
    }
    if "lists" in params["task"]:
        split = [line.split() for line in text]
        calls[params["task"]] = lambda: [model.score(" ".join(words)) for words in split]
    call = calls.get(params["task"], lambda: [model.score(line) for line in text])
    return Task(call, lambda scores: _digest([unit * score for score in scores]))
