"""CRF taggers: ours and python-crfsuite on the same attributes of the same files.

Each function takes ``{"task": ..., "target": ...}``; the data is CoNLL-2000. Tasks: ``train`` (prepared attributes to
the optimum: CRFsuite to its stopping rule, ours until it is within 1e-4 of ``target``, CRFsuite's final objective),
``ingest`` (lists of attribute strings to trainer-ready), ``tag strings`` (from lists of attribute strings),
``tag columns`` (from words and part-of-speech tags; CRFsuite's users build strings in Python). The task ``train ewt``
is UD English EWT with XPOS labels and the attributes of our preset ``pos``, prepared attributes to ``EWT_ITERATIONS``
iterations; its digest is accuracy on the test part, on all words and on those not in training.

``train np`` is CoNLL-2000 with the labels B-NP, I-NP and O; ``train upos`` is EWT with UPOS labels and the preset
``pos``. Without ``target`` ours stops by its own rule as well. ``command upos`` is the same from the file to the saved
model, each as a new process: our command ``train crf``, and for CRFsuite this module, run as a program.
``command sequoia`` is the same on a small treebank, UD French Sequoia.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.declarations import Params, Task

Sentences = list[list[list[str]]]
ROOT = Path(__file__).resolve().parents[2]
TRAINED = 30  # iterations of the models that tag
EWT_ITERATIONS = 100


def data_folder() -> Path:
    """Return the folder of the data: ``TRELLISWORK_DATA``, or one next to the repository."""
    folder = Path(os.environ.get("TRELLISWORK_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        raise NotImplementedError("the data is missing (set TRELLISWORK_DATA)")
    return folder


def ewt_file(split: str) -> Path:
    """Return a file of UD English EWT."""
    return data_folder() / "ud-en-ewt" / f"en_ewt-ud-{split}.conllu"


def read_ewt(split: str, column: int = 4) -> tuple[list[list[str]], list[list[str]]]:
    """Return words and tags (column 3: UPOS, 4: XPOS) of each sentence of UD English EWT."""
    return read_conllu(ewt_file(split), column)


def training_file(task: str) -> Path:
    """Return the treebank of a task."""
    if "sequoia" in task:
        return data_folder() / "ud-french-sequoia" / "fr_sequoia-ud-train.conllu"
    return ewt_file("train")


def read_conllu(path: Path, column: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return words and tags of each sentence of a CoNLL-U file."""
    text = path.read_text(encoding="utf-8")
    rows = [
        [line.split("\t") for line in block.splitlines() if line[0].isdigit()] for block in text.strip().split("\n\n")
    ]
    rows = [[cells for cells in sentence if cells[0].isdigit()] for sentence in rows]
    return [[cells[1] for cells in s] for s in rows], [[cells[column] for cells in s] for s in rows]


def pos_attributes(words: list[str]) -> list[list[str]]:
    """Return the attributes of the preset ``pos`` as strings, one list per token."""
    n, lower = len(words), [w.lower() for w in words]
    kinds = [
        "".join("X" if c.isupper() else "x" if c.islower() else "9" if c.isdigit() else c for c in w) for w in words
    ]
    shape = [re.sub(r"(.)\1\1+", r"\1\1", kind) for kind in kinds]
    tokens = []
    for t in range(n):
        token = [f"lower[{k}]={lower[t + k]}" for k in range(-2, 3) if 0 <= t + k < n]
        token += [f"lower[{k}]|lower[{k + 1}]={lower[t + k]}|{lower[t + k + 1]}" for k in (-1, 0) if 0 <= t + k < n - 1]
        token.append(f"word={words[t]}")
        token += [f"shape[{k}]={shape[t + k]}" for k in (-1, 0, 1) if 0 <= t + k < n]
        token += [f"prefix{k}={words[t][:k].lower()}" for k in range(1, 5)]
        token += [f"suffix{k}={words[t][-k:].lower()}" for k in range(1, 5)]
        token += [f"suffix3[{k}]={words[t + k][-3:].lower()}" for k in (-1, 1) if 0 <= t + k < n]
        token += ["__BOS__"] * (t == 0) + ["__EOS__"] * (t == n - 1)
        tokens.append(token)
    return tokens


def read(split: str) -> tuple[Sentences, list[list[str]]]:
    """Return words with part-of-speech tags, and chunk labels, of each sentence of CoNLL-2000."""
    blocks = (data_folder() / "conll2000" / f"{split}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    rows = [[line.split() for line in block.splitlines()] for block in blocks]
    return [[cells[:2] for cells in sentence] for sentence in rows], [[cells[2] for cells in s] for s in rows]


def chunking_attributes(sentence: list[list[str]]) -> list[list[str]]:
    """Return the attributes of CRFsuite's chunking example as strings, one list per token."""
    n = len(sentence)
    tokens = []
    for t in range(n):
        token = []
        for column, name in ((0, "w"), (1, "pos")):
            token += [f"{name}[{k}]={sentence[t + k][column]}" for k in range(-2, 3) if 0 <= t + k < n]
        for column, name, rows in (
            (0, "w", ((-1, 0), (0, 1))),
            (1, "pos", ((-2, -1), (-1, 0), (0, 1), (1, 2), (-2, -1, 0), (-1, 0, 1), (0, 1, 2))),
        ):
            for group in rows:
                if t + group[0] >= 0 and t + group[-1] < n:
                    where = "|".join(f"{name}[{k}]" for k in group)
                    token.append(where + "=" + "|".join(sentence[t + k][column] for k in group))
        token += ["__BOS__"] * (t == 0) + ["__EOS__"] * (t == n - 1)
        tokens.append(token)
    return tokens


def attributes(split: str) -> tuple[Sentences, list[list[str]]]:
    """Return attribute strings and labels."""
    X, y = read(split)
    return [chunking_attributes(sentence) for sentence in X], y


def noun_phrases(y: list[list[str]]) -> list[list[str]]:
    """Return chunk labels reduced to B-NP, I-NP and O."""
    return [[label if label.endswith("-NP") else "O" for label in sentence] for sentence in y]


def _final(text: str) -> dict[str, float]:
    """Return the digest of a command: its last line is the final objective."""
    return {"objective": float(text.split()[-1])}


def trelliswork(params: Params) -> Task:
    """Ours, in one process with several threads."""
    import warnings

    import numpy as np

    from trelliswork.data import Corpus, Vocabulary
    from trelliswork.features.feature_map import FeatureMap
    from trelliswork.features.ready import ReadyExtractor
    from trelliswork.learning.lbfgs import lbfgs
    from trelliswork.models import CRF
    from trelliswork.models.crf.data import prepare
    from trelliswork.models.crf.layout import FeatureLayout
    from trelliswork.models.crf.objective import ChainObjective
    from trelliswork.models.crf.problem import Labeling, Problem, Tokens
    from trelliswork.models.crf.weights import ScoredTokens

    warnings.simplefilter("ignore")
    task = params["task"]
    if task.startswith("command"):
        model = Path(tempfile.mkdtemp()) / "model"
        command = [sys.executable, "-m", "trelliswork", "train", "crf", str(training_file(task)), "--columns", "form"]
        command += ["--label", "upos", "--features", "pos", "--out", str(model), "--force", "--json"]
        command += ["--threads", os.environ.get("TRELLISWORK_THREADS", "1")]

        def run() -> str:
            text = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)
            return str(json.loads(text)["objective"])

        return Task(run, _final)
    if task == "train ewt":
        words, tags = read_ewt("train")
        test_words, gold_tags = read_ewt("test")
        crf = CRF("pos", max_iter=EWT_ITERATIONS, tol=0, scheme=None)
        attributes_of = FeatureMap("pos").fit(words)
        named = Vocabulary.from_sequences(tags)
        problem = prepare(attributes_of, tags, named)

        def train_ewt() -> float:
            objective = ChainObjective(problem, l2=1.0)
            return lbfgs(objective, np.zeros(problem.layout.n_features), max_iter=EWT_ITERATIONS, tol=0)[1].value

        def evaluate(value: float) -> dict[str, float]:
            return _by_knowledge(words, test_words, gold_tags, crf.fit(words, tags).predict(test_words))

        return Task(train_ewt, evaluate)
    if task == "train upos":
        words, y = read_ewt("train", 3)
        X = [pos_attributes(sentence) for sentence in words]
    else:
        X, y = attributes("train")
    if task == "train np":
        y = noun_phrases(y)
    if task in ("train", "train np", "train upos", "ingest"):
        labels = Vocabulary.from_sequences(y)
        gold = Labeling(np.array([i for sentence in y for i in labels.ids(sentence)], np.int32))

        def ready() -> tuple[Tokens, FeatureLayout]:
            extracted = ReadyExtractor().fit(X)
            tokens = Tokens(extracted.offsets, extracted.token_ptr, extracted.ids)
            return tokens, FeatureLayout.observed(tokens, gold, extracted.n_attributes, len(labels))

        if task == "ingest":
            return Task(lambda: ScoredTokens(*ready()), lambda result: {"sentences": len(result.offsets) - 1})
        prepared, layout = ready()
        target = params.get("target")

        def train() -> float:
            objective = ChainObjective(Problem(prepared, gold, layout), l2=1.0)
            enough = (lambda step, w: step.value <= target * (1 + 1e-4)) if target else None
            _, report = lbfgs(objective, np.zeros(layout.n_features), max_iter=1000, callback=enough)
            return report.value

        return Task(train, lambda value: {"objective": value})
    if task == "tag strings":
        test, gold_test = attributes("test")
        model = CRF(None, max_iter=TRAINED, scheme=None).fit(X, y)
        return Task(lambda: model.predict(test), lambda tags: _accuracy(tags, gold_test))
    rows, _ = read("train")
    test, gold_test = read("test")
    model = CRF("chunking", max_iter=TRAINED, scheme=None).fit(rows, y)
    return Task(lambda: model.predict(Corpus.from_sentences(test)), lambda tags: _accuracy(tags, gold_test))


def crfsuite(params: Params) -> Task:
    """python-crfsuite, which has one thread; L-BFGS with c2 = 1."""
    import pycrfsuite

    task = params["task"]
    if task.startswith("command"):
        program = [sys.executable, "-m", "benchmarks.contenders.crf", task]
        return Task(lambda: subprocess.check_output(program, text=True, cwd=ROOT), _final)
    if task in ("train ewt", "train upos", "train sequoia"):
        words, y = read_conllu(training_file(task), 4 if task == "train ewt" else 3)
        X = [pos_attributes(sentence) for sentence in words]
    else:
        X, y = attributes("train")
    if task == "train np":
        y = noun_phrases(y)
    path = str(Path(tempfile.mkdtemp()) / "model")

    def append() -> Any:
        trainer = pycrfsuite.Trainer(verbose=False)
        for x, labels in zip(X, y, strict=True):
            trainer.append(x, labels)
        return trainer

    if task == "ingest":
        return Task(append, lambda trainer: {"sentences": len(X)})
    trainer = append()
    trainer.select("lbfgs")
    to_the_end = task in ("train", "train np", "train upos", "train sequoia")
    iterations = 1000 if to_the_end else EWT_ITERATIONS if task == "train ewt" else TRAINED
    trainer.set_params({"c1": 0.0, "c2": 1.0, "max_iterations": iterations})

    def train() -> float:
        trainer.train(path)
        return float(trainer.logparser.last_iteration["loss"])

    if to_the_end:
        return Task(train, lambda value: {"objective": value})
    tagger = pycrfsuite.Tagger()
    if task == "train ewt":
        test_words, gold_tags = read_ewt("test")

        def evaluate(value: float) -> dict[str, float]:
            tagger.open(path)
            return _by_knowledge(words, test_words, gold_tags, [tagger.tag(pos_attributes(x)) for x in test_words])

        return Task(train, evaluate)
    train()
    tagger.open(path)
    test, gold = attributes("test") if task == "tag strings" else read("test")

    def tag() -> list[list[str]]:
        if task == "tag strings":
            return [tagger.tag(x) for x in test]
        return [tagger.tag(chunking_attributes(x)) for x in test]

    return Task(tag, lambda tags: _accuracy(tags, gold))


def _by_knowledge(
    words: list[list[str]], test: list[list[str]], gold: list[list[str]], predicted: list[list[str]]
) -> dict[str, float]:
    """Return the accuracy on all tokens of the test part, and on words that are not in training."""
    known = {w for sentence in words for w in sentence}
    rows = [
        (w in known, p == g)
        for ws, ps, gs in zip(test, predicted, gold, strict=True)
        for w, p, g in zip(ws, ps, gs, strict=True)
    ]
    unseen = [right for seen, right in rows if not seen]
    return {"accuracy": sum(right for _, right in rows) / len(rows), "unknown": sum(unseen) / len(unseen)}


def _accuracy(predicted: list[list[str]], gold: list[list[str]]) -> dict[str, float]:
    pairs = [(a, b) for p, g in zip(predicted, gold, strict=True) for a, b in zip(p, g, strict=True)]
    return {"accuracy": sum(a == b for a, b in pairs) / len(pairs)}


if __name__ == "__main__":
    print(crfsuite({"task": sys.argv[1].replace("command", "train")}).call())
