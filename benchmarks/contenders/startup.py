"""First answers of a new process: ours, python-crfsuite and spaCy.

Each function takes ``{"task": ..., "cold": ...}``. Tasks: ``import``; ``help`` (of the command line); ``tag`` (load a
small tagger and tag one sentence, ours by the command ``tag``); ``fit`` (train a tagger on 20 sentences for five
iterations, ours by the command ``train crf``); ``nothing`` (an interpreter that ends at once). With ``cold``, ours
starts without compiled kernels.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.declarations import Params, Task

WORDS = ["the", "dog", "sees", "a", "cat"]
SENTENCES = [(WORDS, ["D", "N", "V", "D", "N"]), (WORDS[:3], ["D", "N", "V"])] * 10


def _run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return done.stdout


def _task(commands: dict[str, list[str]], params: Params, **environment: str) -> Task:
    """Return the task of running a command in a new process; with ``cold``, in an empty cache of its own."""
    task = params["task"]
    commands = commands | {"nothing": [sys.executable, "-c", ""]}
    if task not in commands:
        raise NotImplementedError(f"has no {task}")

    def call() -> str:
        if not params["cold"]:
            return _run(*commands[task], **environment)
        with tempfile.TemporaryDirectory() as cache:
            return _run(*commands[task], TRELLISWORK_CACHE_DIR=cache, **environment)

    return Task(call)


def _folder() -> Path:
    """Return an empty folder that is removed when this process ends."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="startup-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def trelliswork(params: Params) -> Task:
    """Our command line and package."""
    import trelliswork as package

    folder = _folder()
    rows = ("".join(f"{w}\t{t}\n" for w, t in zip(words, tags, strict=True)) for words, tags in SENTENCES)
    (folder / "train.txt").write_text("\n".join(rows))
    (folder / "text.txt").write_text(" ".join(WORDS) + "\n")
    command = [sys.executable, "-m", package.__name__]
    fit = [
        *command,
        "train",
        "crf",
        str(folder / "train.txt"),
        "--max-iter",
        "5",
        "--force",
        "--out",
        str(folder / "model"),
    ]
    if params["task"] == "tag":
        _run(*fit)
    commands = {
        "import": [sys.executable, "-c", "import trelliswork"],
        "help": [*command, "--help"],
        "tag": [*command, "tag", str(folder / "model"), str(folder / "text.txt"), "--format", "text"],
        "fit": fit,
    }
    return _task(commands, params)


def crfsuite(params: Params) -> Task:
    """python-crfsuite, which has no command line; it has nothing to compile, so cold rows compare with warm ones."""
    import pycrfsuite  # noqa: F401

    model = str(_folder() / "model")
    features = "[[['w=' + w] for w in s] for s in X]"
    fit = (
        f"import pycrfsuite; X, Y = {[s for s, _ in SENTENCES]}, {[t for _, t in SENTENCES]}\n"
        "t = pycrfsuite.Trainer(verbose=False); t.set_params({'max_iterations': 5})\n"
        f"for x, y in zip({features}, Y): t.append(x, y)\n"
        f"t.train({model!r})"
    )
    tag = f"import pycrfsuite; t = pycrfsuite.Tagger(); t.open({model!r}); print(t.tag([['w=' + w] for w in {WORDS}]))"
    if params["task"] == "tag":
        _run(sys.executable, "-c", fit)
    commands = {"import": "import pycrfsuite", "tag": tag, "fit": fit}
    return _task({task: [sys.executable, "-c", code] for task, code in commands.items()}, params)


def spacy(params: Params) -> Task:
    """spaCy with a tagger of its default architecture, without pretrained vectors."""
    import spacy as package  # noqa: F401

    model = str(_folder() / "model")
    fit = (
        "import spacy; from spacy.tokens import Doc; from spacy.training import Example\n"
        f"X, Y = {[s for s, _ in SENTENCES]}, {[t for _, t in SENTENCES]}\n"
        "n = spacy.blank('en'); n.add_pipe('tagger')\n"
        "e = [Example.from_dict(Doc(n.vocab, words=x), {'tags': y}) for x, y in zip(X, Y)]\n"
        "n.initialize(lambda: e)\n"
        "for _ in range(5): n.update(e)\n"
        f"n.to_disk({model!r})"
    )
    tag = f"import spacy; n = spacy.load({model!r}); print([w.tag_ for w in n({' '.join(WORDS)!r})])"
    if params["task"] == "tag":
        _run(sys.executable, "-c", fit)
    commands = {"import": "import spacy", "tag": tag, "fit": fit}
    programs = {task: [sys.executable, "-c", code] for task, code in commands.items()}
    return _task(programs | {"help": [sys.executable, "-m", "spacy", "--help"]}, params)
