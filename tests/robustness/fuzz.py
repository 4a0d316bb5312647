"""Fuzzing of all readers and of saved models: an input ends in a result or in an error of this package.

A format has seeds, made from the bundled corpus, and a function that reads a mutated input and checks a law or two of
what it read. `run` works in a forked child with limits of memory and of time per input; `guided` is the same guided by
coverage.
"""

import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

import trelliswork as t
from tests.data.written import crfsuite_text, uai_text
from tests.models.fitted import BUILDERS, WORDS, fitted
from tests.robustness.mutation import mutated, mutated_arrays, mutated_json
from trelliswork import data
from trelliswork.data.columns import write_columns_with
from trelliswork.data.conllu import write_conllu_with
from trelliswork.data.ids import read_ids
from trelliswork.data.moments import Moments, count_moments
from trelliswork.data.reading import FileFormat, Layout, read_unlabeled
from trelliswork.data.writers import write_columns, write_conllu, write_text, write_trees
from trelliswork.errors import TrellisworkError
from trelliswork.features import TemplateExtractor, read_templates
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.models.tasks import LanguageModel, Tagger, TreeParser

MEMORY = 2 << 30  # bytes beyond those in use at the start
SECONDS = 20  # per input
QUICK_DISK = next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)  # in memory, on Linux
ALLOWED = (TrellisworkError, OSError)
UAI = b"MARKOV\n3\n2 2 3\n3\n1 0\n2 0 1\n2 1 2\n\n2\n 0.4 0.6\n4\n 0.1 0.9\n 0.5 0.5\n6\n 1 2 3\n 0 1e-3 .5\n"
TEMPLATES = b"# words\nU00:%x[-2,0]\nU01:%x[-1,0]/%x[0,0]\nU02:%x[1,1]\n\nB\nB01:%x[0,1]\n"
CRFSUITE = b"NN\tw=dog\tlen:3\tlen2:0.5\nVBZ\tw=runs\ta\\:b\\\\:1e-3\n\nO\tx\tx\tx:2\n\tempty\n"


@dataclass
class Format:
    """How to read inputs of one format: ``read(path)``; seeds are the files of inputs by name."""

    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...] = ()
    mutate: Callable[[random.Random, bytes], bytes] | None = None  # of the content; most inputs, if given


@dataclass
class Outcome:
    """Executions of one format: results, errors of this package, and what ended in anything else."""

    name: str
    n_results: int = 0
    n_errors: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def written(write: Callable[..., None]) -> list[bytes]:
    """Return two small files of sentences of the bundled corpus."""
    sentences, texts = t.bundled.load("dev"), []
    for part in (sentences[:1], sentences[1:4]):
        file = io.StringIO()
        write(part, file)
        texts.append(file.getvalue().encode())
    return texts


def read_columns(path: Path) -> None:
    corpus = t.read_columns(path, keep_lines=True)
    out = io.StringIO()
    write_columns_with(corpus, [["x"] * corpus.n_tokens], out)
    assert out.getvalue().count("\n") == corpus.raw.count(b"\n") + (not corpus.raw.endswith(b"\n"))
    t.read_columns(path, columns=[0, -1])
    t.read_columns(path, separator="\t")


def read_conllu(path: Path) -> None:
    corpus = t.read_conllu(path, columns=("form", "upos", "misc"), keep_lines=True)
    out = io.StringIO()
    write_conllu_with(corpus, {"upos": ["X"] * corpus.n_tokens}, out)
    assert out.getvalue().count("\n") == corpus.raw.count(b"\n") + (not corpus.raw.endswith(b"\n"))
    t.read_dependencies(path)


def read_crfsuite(path: Path) -> None:
    corpus = data.read_crfsuite(path)
    path.write_bytes(crfsuite_text(corpus).encode())
    again = data.read_crfsuite(path)
    assert (again.labels, again.names) == (corpus.labels, corpus.names)
    assert again.attributes.tolist() == corpus.attributes.tolist()


def read_trees(path: Path) -> None:
    for tree in t.read_trees(path):
        assert str(t.Tree.parse(str(tree))) == str(tree)
    t.read_trees(path, punctuation=False, functions=False, unary=False)


def read_uai(path: Path) -> None:
    graph = data.read_uai(path)
    path.write_text(uai_text(graph))
    again = data.read_uai(path)
    assert [scope.tolist() for scope in again.scopes] == [scope.tolist() for scope in graph.scopes]


def read_text(path: Path) -> None:
    corpus = t.read_text(path)
    ids = read_ids(str(path))
    words = [[ids.vocabulary[k] for k in sentence] for sentence in ids.sentences()]
    assert words == corpus.sentences()


def read_template(path: Path) -> None:
    templates = read_templates(path)
    corpus = t.Corpus.from_sentences([[("a", "b"), ("c", "d")], [("e", "f")]])
    TemplateExtractor(templates).fit(corpus.columns, corpus.offsets)


def read_known(path: Path) -> None:
    """Read a file with a column of known labels, as ``tag --known`` does."""
    read_unlabeled(str(path), Layout("columns", [0], -1), FileFormat.auto, known="1")
    read_unlabeled(str(path), Layout("conllu", ["form"], "upos"), FileFormat.columns, known="2")


def read_packed(path: Path) -> None:
    for read in (t.read_text, t.read_columns, partial(read_ids)):
        read(path)


def packed() -> list[bytes]:
    texts = written(write_columns) + written(write_text)
    return [*map(gzip.compress, texts), gzip.compress(texts[0]) + gzip.compress(texts[1]), gzip.compress(b"")]


def checkpoint(path: Path) -> Checkpoint:
    return Checkpoint(path, "a run")


def checkpoints() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        checkpoint(path).write({"n_iter": 3, "history": [0.5, 0.25]}, {"weights": np.arange(4.0)})
        return [path.read_bytes()]


FORMATS = {
    "columns": Format(read_columns, lambda: written(write_columns)),
    "conllu": Format(
        read_conllu,
        lambda: written(write_conllu),
        (b"1-2\t_\t_\t_\t_\t_\t_\t_\t_\t_\n", b"2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n", b"\t_\t_", b"# text = x\n"),
    ),
    "crfsuite": Format(read_crfsuite, lambda: [CRFSUITE, *written(write_columns)], (b"\t", b"@weight:2", b":1", b"\\")),
    "trees": Format(
        read_trees, lambda: written(write_trees), (b"(NP ", b"(-NONE- *)", b"-LRB-", b")", b"( (S (X y)))")
    ),
    "uai": Format(read_uai, lambda: [UAI, UAI.replace(b"MARKOV", b"BAYES")], (b"BAYES", b"0 ", b"1e-320", b"2 0 1 ")),
    "text": Format(read_text, lambda: written(write_text)),
    "templates": Format(read_template, lambda: [TEMPLATES], (b"%x[0,0]", b"U", b"B", b"[-1,", b"#")),
    "known labels": Format(read_known, lambda: written(write_columns) + written(write_conllu)),
    "gzip": Format(read_packed, packed),
    "checkpoint": Format(lambda path: checkpoint(path).read(), checkpoints, mutate=mutated_arrays),
}


def use(model: Any) -> None:
    """Ask a loaded model for an answer of its task."""
    words = WORDS[0][:5]
    if isinstance(model, Tagger):
        model.predict([words])
    elif isinstance(model, TreeParser):
        model.predict([[(w, "NN") for w in words] if model.family == "parser" else words])
    elif isinstance(model, LanguageModel):
        model.log_prob([words])


def load_and_use(path: Path) -> None:
    """Load a model and use it."""
    use(t.load(path, **unverified(t.load)))


def unverified(load: Callable[..., object]) -> dict[str, bool]:
    """Return the options of a function that leave checksums out, which would refuse most inputs at once."""
    return {"verify": False} if "verify" in signature(load).parameters else {}


@cache
def saved(name: str) -> Path:
    """Return the directory of a small saved model, or of saved counts."""
    folder = Path(tempfile.mkdtemp(prefix="trelliswork-fuzz-")) / "model"
    if name == "Moments":
        count_moments([["a", "b", "a"], ["b"]], 2).save(folder)
    else:
        fitted(name).save(folder)
    return folder


MODELS = (*BUILDERS, "Moments")


def loader(name: str) -> Callable[[Path], object]:
    return (lambda path: Moments.load(path, **unverified(Moments.load))) if name == "Moments" else load_and_use


class Attack:
    """Mutated inputs of one format, one after the other, in a folder of their own."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        self.name, self.rng, self.folder = name, random.Random(f"{name} {seed}"), folder
        self.model = name in MODELS
        if self.model:
            self.path, self.read = folder / "model", loader(name)
            shutil.copytree(saved(name), self.path, symlinks=True)
            self.files = [p for p in sorted(self.path.rglob("*")) if p.is_file() and not p.is_symlink()]
            self.whole = {p: p.read_bytes() for p in self.files}
        else:
            self.path, self.format = folder / "input", FORMATS[name]
            self.read, self.seeds = self.format.read, self.format.seeds()

    def next(self) -> None:
        """Write the next input."""
        rng = self.rng
        if not self.model:
            data, own = rng.choice(self.seeds), self.format.mutate
            if own is not None and rng.random() < 0.8:
                data = own(rng, data)
            else:
                data = mutated(rng, data, self.seeds, self.format.words)
            self.path.write_bytes(gzip.compress(data, 1) if rng.random() < 0.02 else data)
            return
        for path, data in self.whole.items():  # the damage of the last input
            if not path.is_file() or path.read_bytes() != data:
                path.write_bytes(data)
        path = rng.choice(self.files)
        data = self.whole[path]
        if rng.random() < 0.02:
            path.unlink()
        elif rng.random() < 0.2:
            path.write_bytes(mutated(rng, data, list(self.whole.values())))
        elif path.suffix == ".safetensors":
            path.write_bytes(mutated_arrays(rng, data))
        else:
            path.write_bytes(mutated_json(rng, data))

    def try_once(self, outcome: Outcome) -> None:
        """Read the present input; anything but a result or an error of this package is a failure."""
        try:
            self.read(self.path)
            outcome.n_results += 1
        except ALLOWED:
            outcome.n_errors += 1
        except Exception as error:
            place = _place(error)
            outcome.failures.append(f"{type(error).__name__}: {str(error)[:200]} ({place})")


def _place(error: BaseException) -> str:
    """Return the deepest line of this package in a traceback."""
    place, at = "", error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if "trelliswork" in code.co_filename:
            place = f"{Path(code.co_filename).name}:{at.tb_lineno} {code.co_name}"
        at = at.tb_next
    return place


def run(name: str, n: int, seed: int = 0, keep: Path | None = None) -> Outcome:
    """Try n mutated inputs of a format in a child with limits; inputs that fail are copied to ``keep``."""
    with tempfile.TemporaryDirectory(dir=QUICK_DISK) as temporary:
        folder = Path(temporary)
        if name in MODELS:
            saved(name)  # once, for all children
        report = folder / "report.json"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of threads, none of which is in our way
            child = os.fork()
        if child == 0:
            _child(name, n, seed, folder, report, keep)  # does not return
        _, status = os.waitpid(child, 0)
        outcome = Outcome(**json.loads(report.read_text())) if report.exists() else Outcome(name)
        if status:
            code = os.waitstatus_to_exitcode(status)
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            outcome.failures.append(f"the process ended with {how} (an input has {SECONDS} seconds)")
            _keep(folder / ("model" if name in MODELS else "input"), keep, f"{name}-{seed}-{how}")
        return outcome


def _child(name: str, n: int, seed: int, folder: Path, report: Path, keep: Path | None) -> None:
    code = 1
    try:
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, also within compiled code
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # OpenMP does not survive a fork
        _limit_memory()
        attack, outcome, started = Attack(name, seed, folder), Outcome(name), time.perf_counter()
        warnings.simplefilter("ignore")
        for k in range(n):
            attack.next()
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            before = len(outcome.failures)
            attack.try_once(outcome)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if len(outcome.failures) > before:
                _keep(attack.path, keep, f"{name}-{seed}-{k}")
            if k % 1000 == 0 or k == n - 1:
                outcome.seconds = time.perf_counter() - started
                report.write_text(json.dumps(vars(outcome)))
        code = 0
    finally:
        os._exit(code)


def _limit_memory() -> None:
    """Limit the address space of this process (on Linux; macOS has no such limit)."""
    usage = Path("/proc/self/statm")
    if usage.exists():
        limit = int(usage.read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _keep(path: Path, folder: Path | None, name: str) -> None:
    if folder is not None and path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / name.replace(" ", "-")
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy(path, target)
