"""train hmm, tag, evaluate, score, sample, inspect: labeled, unlabeled and partly labeled files."""

import json
import math
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands import WITH_CHECKPOINTS, run


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hmm")
    for split in ("train", "test"):
        for name, extension in (("columns", "txt"), ("conllu", "conllu"), ("text", "raw")):
            text = run("data", "bundled", "--split", split, "--format", name).stdout
            (folder / f"{split}.{extension}").write_text(text)
    return folder


def trained(*arguments: str) -> dict:
    done = run("train", "hmm", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def figures(*arguments: str) -> dict:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def tagger(files) -> str:
    out = str(files / "tagger")
    outcome = trained(str(files / "train.conllu"), "--label", "xpos", "--order", "2", "-o", out)
    assert (outcome["sentences"], outcome["induced"], outcome["reason"]) == (3000, False, "counted")
    return out


@pytest.fixture(scope="module")
def induced(files) -> str:
    out = str(files / "induced")
    arguments = ["--n-states", "12", "--max-iter", "15", "--n-restarts", "2", "--probe", "3", "-o", out]
    outcome = trained(str(files / "train.raw"), "--format", "text", *arguments)
    assert (outcome["labels"], outcome["induced"], outcome["iterations"], outcome["restarts"]) == (12, True, 15, 2)
    return out


def test_tagger_from_labels(files, tagger):
    report = figures("evaluate", tagger, str(files / "test.conllu"))
    assert report["accuracy"] > 0.95
    assert report["unknown_accuracy"] > 0.85
    tagged = run("tag", tagger, str(files / "test.conllu")).stdout
    rows = [line.split("\t") for line in tagged.splitlines() if line[:1].isdigit()]
    gold = [line.split("\t") for line in (files / "test.conllu").read_text().splitlines() if line[:1].isdigit()]
    assert sum(a[4] == b[4] for a, b in zip(rows, gold, strict=True)) / len(gold) == pytest.approx(report["accuracy"])


def test_marginals_k_best_and_known_tags(tagger):
    text = "We\n\n"
    lines = run("tag", tagger, "--format", "text", "--with", "marginals", input="The dog runs .\n").stdout.splitlines()
    assert all(0 < float(line.split("\t")[2]) <= 1 for line in lines if line)
    best = run("tag", tagger, "--format", "text", "--with", "topk=3", input="The dog runs .\n").stdout.splitlines()[0]
    odds = [float(p) for p in best.split("\t")[4].split(",")]
    assert odds == sorted(odds, reverse=True)
    assert best.split("\t")[1] == lines[0].split("\t")[1]
    given = run("tag", tagger, "--format", "columns", "--known", "1", input="dog VB\nruns _\n\n")
    assert given.stdout.splitlines()[0].split()[-1] == "VB"
    both = run("tag", tagger, "--format", "text", "--with", "topk=2,marginals", input=text).stdout.splitlines()[0]
    assert len(both.split("\t")) == 1 + 2 + 1 + 1  # word, label and its probability, another label, probabilities


def test_induced_states_are_evaluated_by_induction_measures(files, induced):
    report = figures("evaluate", induced, str(files / "test.conllu"), "--format", "conllu", "--label", "xpos")
    assert report["n_induced"] <= 12
    assert 0.3 < report["many_to_one"] <= 1
    assert 0 < report["v_measure"] <= 1
    text = run("evaluate", induced, str(files / "test.conllu"), "--format", "conllu", "--label", "xpos").stdout
    assert "V-measure" in text
    failed = run("evaluate", induced, str(files / "test.conllu"))
    assert failed.returncode == 1
    assert "--label" in failed.stderr


def test_partly_labeled_files(files):
    lines = (files / "train.txt").read_text().split("\n")[:4000]
    lines = [line.rsplit(" ", 1)[0].rsplit(" ", 1)[0] + (" ?" if n % 2 else f" {line.split()[1]}") if line else line
              for n, line in enumerate(lines)]  # fmt: skip
    (files / "half.txt").write_text("\n".join(lines))
    out = str(files / "half")
    outcome = trained(str(files / "half.txt"), "--unknown-label", "?", "--max-iter", "10", "-o", out)
    assert not outcome["induced"]
    assert outcome["iterations"] > 1
    report = figures("evaluate", out, str(files / "test.txt"), "--format", "columns", "--label", "1")
    assert report["accuracy"] > 0.7


def test_score(files, tagger, induced):
    for model in (tagger, induced):
        scores = figures("score", model, str(files / "test.raw"), "--format", "text", "--per-sentence")
        assert scores["log_prob"] == pytest.approx(sum(scores["log_prob_of_sentences"]))
        assert 10 < scores["perplexity"] < 10_000
    assert "perplexity" in run("score", tagger, "--format", "text", input="The dog runs .\n").stdout
    line = run("score", tagger, "--format", "text", "--per-sentence", input="The dog runs .\n").stdout
    assert line.endswith("\tThe dog runs .\n")
    assert float(line.split("\t")[0]) < 0


def test_sample(tagger):
    first, again = (run("sample", tagger, "-n", "4", "--seed", "3").stdout for _ in range(2))
    assert first == again
    assert len(first.splitlines()) == 4
    assert run("sample", tagger, "-n", "4", "--seed", "4").stdout != first
    assert "/" in run("sample", tagger, "--states").stdout
    row = json.loads(run("sample", tagger, "-n", "1", "--json").stdout)
    assert len(row["words"]) == len(row["states"])


def test_inspect(tagger, induced):
    shown = run("inspect", tagger, "-n", "5", "--label", "DT").stdout
    assert "the" in shown
    content = figures("inspect", induced, "-n", "3")
    assert len(content["states"]) == 12
    assert all(len(words) == 3 and len(following) == 5 for _, words, following in content["states"])


def test_invalid_input(files):
    for arguments, message in (
        ([str(files / "train.raw"), "--format", "text"], "number of states must be given"),
        ([str(files / "train.raw"), "--format", "text", "--n-states", "3", "--order", "2"], "order=2"),
        ([str(files / "train.raw"), "--format", "text", "--label", "1"], "--label"),
        ([str(files / "nothing.txt")], "no such file"),
    ):
        failed = run("train", "hmm", *arguments)
        assert failed.returncode != 0
        assert message in failed.stderr
    (files / "empty.txt").write_text("\n\n")
    assert run("train", "hmm", str(files / "empty.txt")).returncode == 1
    crf = str(files / "crf")
    assert run("train", "crf", "--bundled", "--max-iter", "2", "-o", crf).returncode == 0
    failed = run("score", crf, "--bundled")
    assert failed.returncode == 1
    assert "'crf'" in failed.stderr


def test_ctrl_c_saves_the_model(files):
    out, state = files / "stopped", files / "stopped.state"
    options = ["--n-states", "60", "--max-iter", "100000", "--tol", "0", "-o", str(out), "--checkpoint", str(state)]
    command = [*WITH_CHECKPOINTS, "train", "hmm", str(files / "train.raw"), "--format", "text", *options]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen = set()
    while len(seen) < 2:  # the first checkpoint is written before the model can be saved, the second after that
        assert child.poll() is None, child.communicate()
        with suppress(FileNotFoundError):
            seen.add(state.stat().st_mtime_ns)
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out_text, err_text = child.communicate(timeout=60)
    assert child.returncode == 0, err_text
    assert "stopped by the caller" in out_text
    assert "stopping after this iteration" in err_text
    assert figures("score", str(out), str(files / "test.raw"), "--format", "text")["log_prob"] < 0


def test_development_file_and_checkpoint(files):
    out, checkpoint = str(files / "watched"), files / "state"
    arguments = [str(files / "train.raw"), "--n-states", "6", "--tol", "0", "--checkpoint", str(checkpoint), "-o", out]
    stopped = trained(*arguments, "--dev", str(files / "test.raw"), "--max-minutes", "1e-6")
    assert (stopped["iterations"], stopped["dev_metric"]) == (1, "log-probability per token")
    assert checkpoint.exists()
    outcome = trained(*arguments, "--dev", str(files / "test.raw"), "--max-iter", "4")
    assert outcome["iterations"] == 4
    assert outcome["dev"] >= stopped["dev"]
    assert not checkpoint.exists()
    scores = figures("score", out, str(files / "test.raw"), "--format", "text")
    assert math.log(scores["perplexity"]) == pytest.approx(-outcome["dev"])
    train, dev = str(files / "train.conllu"), str(files / "test.conllu")
    labeled = trained(train, "--label", "xpos", "--dev", dev, "-o", out, "--force")
    accuracy = figures("evaluate", out, str(files / "test.conllu"))["accuracy"]
    assert (labeled["dev"], labeled["dev_metric"]) == (pytest.approx(accuracy), "accuracy")


def test_outcome_of_counting(files):
    """No objective is printed, and it is null in JSON."""
    outcome = trained(str(files / "train.conllu"), "-o", str(files / "counted"))
    assert outcome["objective"] is None
    text = run("train", "hmm", str(files / "train.conllu"), "-o", str(files / "counted"), "--force").stdout
    assert "counted" in text
    assert "nan" not in text
    assert "NaN" not in (files / "counted" / "model.json").read_text()
