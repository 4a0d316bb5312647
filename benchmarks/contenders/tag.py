"""Tagging of a column file: our command ``tag``, and a script with python-crfsuite, on the same file and attributes.

Each function takes ``{"task": ...}``: ``ewt`` or ``wikitext-2``, the text to tag, or ``load``, reading a model alone.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.contenders.crf import ROOT, TRAINED, data_folder, pos_attributes
from benchmarks.declarations import Params, Task

REPETITIONS = 24  # of the development and test part of EWT
MOST_TOKENS = 1_150_000  # of wikitext-2


def _folder() -> Path:
    """Return an empty folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="tag-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def read_upos(split: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return words (without spaces) and UPOS tags of each sentence of UD English EWT."""
    text = (data_folder() / "ud-en-ewt" / f"en_ewt-ud-{split}.conllu").read_text(encoding="utf-8")
    rows = [[line.split("\t") for line in block.splitlines()] for block in text.strip().split("\n\n")]
    rows = [[cells for cells in sentence if cells[0].isdigit()] for sentence in rows]
    words = [[cells[1].replace(" ", "_") for cells in sentence] for sentence in rows]
    return words, [[cells[3] for cells in sentence] for sentence in rows]


def write_text(task: str, path: Path) -> list[str]:
    """Write the column file of a task; return the correct label of each token, as far as they are known."""
    if task == "ewt":
        parts = [read_upos(split) for split in ("dev", "test")]
        sentences = [words for part, _ in parts for words in part]
        gold = [tag for _, part in parts for tags in part for tag in tags]
        path.write_text("".join("\n".join(words) + "\n\n" for words in sentences) * REPETITIONS, encoding="utf-8")
        return gold * REPETITIONS
    n = 0
    with path.open("w", encoding="utf-8") as file:
        for line in (data_folder() / "wikitext-2" / "wiki.train.tokens").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words and n < MOST_TOKENS:
                file.write("\n".join(words).replace("\n.\n", "\n.\n\n") + "\n\n")
                n += len(words)
    return []


def _run(command: list[str]) -> tuple[float, float]:
    """Run a program; return its CPU seconds and its peak memory in MB."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[:4]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**10


def _task(task: str, command: list[str]) -> Task:
    """Return the task of tagging a file; ``command`` gets the names of input and output."""
    folder = _folder()
    text, one, out = folder / "text", folder / "one", folder / "out"
    gold = write_text(task, text)
    one.write_text("Hello\nworld\n", encoding="utf-8")

    def digest(usage: tuple[float, float]) -> dict[str, Any]:
        tags = [line.split()[1] for line in out.read_text(encoding="utf-8").splitlines() if line]
        start = min(_run([*command, str(one), str(folder / "first")])[0] for _ in range(3))
        known = {"accuracy": sum(map(str.__eq__, tags, gold)) / len(gold)} if gold else {}
        return {
            "tokens": len(tags),
            "nouns": tags.count("NOUN") / len(tags),
            **known,
            "only_tokens_per_cpu_second": round(len(tags) / usage[0]),
            "only_start_and_load_cpu_seconds": start,
            "only_peak_mb": usage[1],
        }

    return Task(lambda: _run([*command, str(text), str(out)]), digest)


def trelliswork(params: Params) -> Task:
    """Our command ``tag``."""
    import warnings

    from trelliswork.models import CRF

    warnings.simplefilter("ignore")
    model = str(_folder() / "model")
    words, tags = read_upos("train")
    if params["task"] == "load":
        CRF("pos", max_iter=1, options={"feature_set": "all"}, min_count=2).fit(words, tags).save(model)
        megabytes = sum(file.stat().st_size for file in Path(model).iterdir()) / 1e6

        def load() -> float:
            before = time.process_time()
            CRF.load(model, mapped=True)
            return time.process_time() - before

        return Task(load, lambda seconds: {"only_megabytes": megabytes, "only_cpu_seconds": seconds})
    CRF("pos", max_iter=TRAINED).fit(words, tags).save(model)
    program = (
        "import sys; from trelliswork.cli import main\n"
        "sys.argv = ['trelliswork', 'tag', *sys.argv[1:3], '--out', sys.argv[3]]\n"
        "main()"
    )
    return _task(params["task"], [sys.executable, "-c", program, model])


def crfsuite(params: Params) -> Task:
    """A script with python-crfsuite, which has one thread; L-BFGS with c2 = 1."""
    import pycrfsuite

    model = str(_folder() / "model")
    trainer = pycrfsuite.Trainer(verbose=False)
    for words, tags in zip(*read_upos("train"), strict=True):
        trainer.append(pos_attributes(words), tags)
    trainer.set_params({"c1": 0.0, "c2": 1.0, "max_iterations": TRAINED})
    trainer.train(model)
    return _task(params["task"], [sys.executable, "-c", f"from {__name__} import tag_file; tag_file()", model])


def tag_file() -> None:
    """Tag a file as a user of python-crfsuite does; model, input and output are the arguments of the program."""
    import pycrfsuite

    model, source, target = sys.argv[1:4]
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    words: list[str] = []
    with Path(source).open(encoding="utf-8") as lines, Path(target).open("w", encoding="utf-8") as out:
        for line in chain(lines, ["\n"]):
            if line.strip():
                words.append(line.split()[0])
            elif words:
                tags = tagger.tag(pos_attributes(words))
                out.writelines(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True))
                out.write("\n")
                words = []
