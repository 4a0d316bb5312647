"""train crf, tag, evaluate, inspect: files, pipes, invalid input, interrupts."""

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import WITH_CHECKPOINTS, run
from tests.models.directories import weights_of


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("crf")
    for split in ("train", "test"):
        for name, extension in (("columns", "txt"), ("conllu", "conllu"), ("text", "raw")):
            text = run("data", "bundled", "--split", split, "--format", name).stdout
            (folder / f"{split}.{extension}").write_text(text)
    return folder


@pytest.fixture(scope="module")
def chunker(files) -> Path:
    done = run("train", "crf", str(files / "train.txt"), "--out", str(files / "chunker"), "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["converged"]
    assert outcome["sentences"] == 3000
    return files / "chunker"


@pytest.fixture(scope="module")
def tagger(files) -> Path:
    done = run("train", "crf", str(files / "train.conllu"), "--label", "xpos", "-o", str(files / "tagger"))
    assert done.returncode == 0, done.stderr
    assert "Saved in" in done.stdout
    return files / "tagger"


def test_columns_that_a_preset_ignores_are_named(tmp_path):
    for n, text in ((2, "the DT O\ndog NN B\n"), (3, "the DT x O\ndog NN y B\n")):
        (tmp_path / f"{n}.txt").write_text(text)
    two, three, out = str(tmp_path / "2.txt"), str(tmp_path / "3.txt"), ("-q", "--force", "-o", str(tmp_path / "m"))
    for command, message in (
        (("crf", two, "--features", "ner"), "the features 'ner' use column 0 and ignore 1."),
        (("crf", three), "the features 'pos' use column 0 and ignore 1, 2."),
        (("crf", three, "--features", "chunking"), "the features 'chunking' use column 0 and 1 and ignore 2."),
        (("factorial-crf", three, "--layers", "a,b"), "the features 'pos' use column 0 and ignore 1."),
    ):
        assert f"warning: {message} Use templates" in run("train", *command, *out).stderr
    for command in (
        ("crf", two),
        ("crf", three, "--columns", "0"),
        ("crf", two, "--features", "pos", "--columns", "0"),
    ):
        assert "ignore" not in run("train", *command, *out).stderr


def test_evaluate_and_tag_agree(files, chunker):
    report = json.loads(run("evaluate", str(chunker), str(files / "test.txt"), "--json").stdout)
    assert report["accuracy"] > 0.99
    assert report["chunks"]["f1"] > 0.98
    tagged = run("tag", str(chunker), str(files / "test.txt"), "--with", "marginals").stdout
    rows = [line.split() for line in tagged.splitlines() if line]
    assert sum(row[2] == row[3] for row in rows) / len(rows) == pytest.approx(report["accuracy"])
    assert all(0 < float(row[4]) <= 1 for row in rows)
    assert [line.split()[:3] for line in (files / "test.txt").read_text().splitlines()] == [
        line.split()[:3] for line in tagged.splitlines()
    ]


def test_gold_in_another_scheme_is_converted(files, chunker, tmp_path):
    rows, before = [], "O"
    for line in (files / "test.txt").read_text().splitlines():
        *row, label = line.split() or [""]
        other = "I" + label[1:] if label[:1] == "B" and before[1:] != label[1:] else label
        rows, before = [*rows, " ".join([*row, other])], label
    (tmp_path / "iob1.txt").write_text("\n".join(rows) + "\n")
    bio, iob1 = (run("evaluate", chunker, path, "--json") for path in (files / "test.txt", tmp_path / "iob1.txt"))
    assert iob1.stdout == bio.stdout
    assert "the predictions have BIO labels, and gold has IOB1, which was converted to BIO" in iob1.stderr
    assert "warning" not in bio.stderr


def test_training_on_iob1_converts_the_labels_and_says_so(tmp_path):
    rows = ["The I-NP", "dog I-NP", "barks I-VP", "", "He I-NP", "cats B-NP", "yes O", ""] * 3
    (tmp_path / "iob1.txt").write_text("\n".join(rows))
    done = run("train", "crf", tmp_path / "iob1.txt", "--features", "pos", "--out", tmp_path / "model", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "iob1.txt: the labels are in IOB1 and were converted to BIO (IOB2)" in " ".join(done.stderr.split())
    labels = json.loads(run("inspect", tmp_path / "model", "--json").stdout)["labels"]
    assert set(labels) == {"B-NP", "I-NP", "B-VP", "O"}
    (tmp_path / "bilou.txt").write_text("The B-NP\ndog L-NP\n\nbarks U-VP\n\nso O\n")
    done = run("train", "crf", tmp_path / "bilou.txt", "--features", "pos", "--out", tmp_path / "bilou", "-q")
    assert "the labels are in BILOU and were converted" in " ".join(done.stderr.split())
    assert set(json.loads(run("inspect", tmp_path / "bilou", "--json").stdout)["labels"]) == {
        "B-NP",
        "E-NP",
        "S-VP",
        "O",
    }


def test_labels_that_break_their_scheme_are_counted_and_shown(tmp_path):
    """A few of them do not hide the scheme; --scheme names another one, and --strict refuses them."""
    rows = ["The I-NP", "dog I-NP", "barks I-VP", "", "He I-NP", "cats B-NP", "yes O", ""] * 30
    for line in (8, 16, 24, 32):
        rows[line] = "The B-NP"
    (tmp_path / "train.txt").write_text("\n".join(rows))
    common = ("train", "crf", tmp_path / "train.txt", "--features", "pos", "--quiet", "--force", "--max-iter", 9)
    about = "4 labels break IOB1, read as conlleval does"
    done = run(*common, "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    assert "train.txt: the labels are in IOB1 and were converted to BIO" in done.stderr
    places = [f"{tmp_path / 'train.txt'}:{n}" for n in (9, 17, 25)]
    assert f"{about} ({', '.join(places)}, ...)" in done.stderr
    judged = run("evaluate", tmp_path / "model", tmp_path / "train.txt", "--json")
    assert about in judged.stderr
    assert json.loads(judged.stdout)["chunks"]["f1"] == 1
    for command in (common, ("evaluate", tmp_path / "model", tmp_path / "train.txt")):
        failed = run(*command, "--strict")
        assert failed.returncode == 1
        assert f"{about} ({places[0]}" in failed.stderr
    assert "BIO (IOB2), read as conlleval does" in run(*common, "--scheme", "bio", "--out", tmp_path / "bio").stderr
    plain = run(*common, "--scheme", "none", "--out", tmp_path / "plain")
    assert "labels" not in plain.stderr
    labels = json.loads(run("inspect", tmp_path / "plain", "--json").stdout)["labels"]
    assert set(labels) == {"I-NP", "I-VP", "B-NP", "O"}


def test_tagging_conllu_replaces_the_label(files, tagger):
    tagged = run("tag", str(tagger), str(files / "test.conllu")).stdout.splitlines()
    gold = (files / "test.conllu").read_text().splitlines()
    assert len(tagged) == len(gold)
    hits = total = 0
    for line, expected in zip(tagged, gold, strict=True):
        a, b = line.split("\t"), expected.split("\t")
        assert a[:4] + a[5:] == b[:4] + b[5:]
        if len(a) == 10:
            total, hits = total + 1, hits + (a[4] == b[4])
    assert hits / total > 0.98


def test_text_from_a_pipe_and_gzip(files, tagger):
    piped = run("tag", str(tagger), "--format", "text", input="The dog sleeps .\n\nShe laughs .\n")
    assert [len(block.splitlines()) for block in piped.stdout.strip().split("\n\n")] == [4, 3]
    packed = files / "test.conllu.gz"
    packed.write_bytes(gzip.compress((files / "test.conllu").read_bytes()))
    assert run("tag", str(tagger), str(packed)).stdout == run("tag", str(tagger), str(files / "test.conllu")).stdout


def test_topk_columns_are_distinct_and_sorted(files, chunker):
    text = "\n".join((files / "test.txt").read_text().split("\n\n")[0].splitlines()) + "\n"
    tagged = run("tag", str(chunker), "--with", "topk=3", input=text)
    assert tagged.returncode == 0, tagged.stderr
    rows = [line.split()[3:] for line in tagged.stdout.splitlines() if line]
    labelings = list(zip(*rows, strict=True))[:3]
    assert len(set(labelings)) == 3
    probabilities = [float(p) for p in rows[0][3].split(",")]
    assert probabilities == sorted(probabilities, reverse=True)


def test_inspect(chunker):
    shown = json.loads(run("inspect", str(chunker), "--n", "5", "--json").stdout)
    assert len(shown["top_features"]) == 5
    assert shown["scheme"] == "bio"
    only = json.loads(run("inspect", str(chunker), "--label", "B-NP", "--json").stdout)
    assert {label for _, label, _ in only["top_features"]} == {"B-NP"}
    assert "B-NP" in run("inspect", str(chunker)).stdout
    assert run("inspect", str(chunker), "--label", "XX").returncode == 2


def test_crfsuite_files(files):
    lines = "".join(f"{y}\tw={w}\tbias:0.5\n" for w, y in (("a", "A"), ("b", "B"), ("a", "A"))) + "\n"
    path = files / "ready.crfsuite"
    path.write_text(lines * 3)
    made = run("train", "crf", str(path), "--format", "crfsuite", "-o", str(files / "ready"))
    assert made.returncode == 0, made.stderr
    assert run("tag", str(files / "ready"), str(path)).stdout.split() == ["A", "B", "A"] * 3
    assert json.loads(run("evaluate", str(files / "ready"), str(path), "--json").stdout)["accuracy"] == 1
    assert run("train", "crf", str(path), "--format", "crfsuite", "--features", "pos").returncode == 2


def test_template_file(files):
    (files / "templates").write_text("# words\nU00:%x[0,0]\nU01:%x[-1,1]/%x[0,1]\n\nB\n")
    made = run(
        "train", "crf", str(files / "train.txt"), "--features", str(files / "templates"), "-o", str(files / "own")
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(run("evaluate", str(files / "own"), str(files / "test.txt"), "--json").stdout)["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "crf", "missing.txt"], "missing.txt"),
        (["train", "crf", "broken.txt"], "broken.txt:2: expected 3 columns"),
        (["train", "crf", "empty.txt"], "empty.txt"),
        (["train", "crf", "good.txt", "--features", "nonsense"], "chunking, pos, ner, letters"),
        (["train", "crf", "good.txt", "--columns", "0,x"], "numbers separated by commas"),
        (["train", "crf", "good.txt", "--label", "9"], "no column 9: the file has 3, counted from 0."),
        (["train", "crf", "bad-bio.txt", "--scheme", "bio", "--strict"], "1 label breaks BIO (IOB2)"),
        (["train", "hmm", "bad-bio.txt", "--strict"], "(bad-bio.txt:2)"),
        (["tag", "no-such-model", "good.txt"], "not a model"),
        (["evaluate", "no-such-model", "good.txt"], "not a model"),
    ],
)
def test_invalid_input_gives_a_one_line_error(words, message, tmp_path):
    (tmp_path / "good.txt").write_text("a D O\nb N B-NP\n")
    (tmp_path / "broken.txt").write_text("a D O\nb N\n")
    (tmp_path / "bad-bio.txt").write_text("a D O\nb N I-NP\n\na D B-NP\n")
    (tmp_path / "empty.txt").write_text("")
    before = sorted(p.name for p in tmp_path.iterdir())
    failed = run(*words, cwd=tmp_path)
    assert failed.returncode == 1
    assert message in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_other_directories_are_not_overwritten(files, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("keep me")
    failed = run("train", "crf", str(files / "train.txt"), "-o", str(tmp_path / "precious"), "--max-iter", "1")
    assert failed.returncode == 1
    assert "not a model" in failed.stderr
    assert (tmp_path / "precious" / "file").read_text() == "keep me"


def test_ctrl_c_saves_the_model(tmp_path):
    """Interrupt when the progress bar, shown only on a terminal, has an objective."""
    command = [sys.executable, "-m", "trelliswork", "train", "crf", "--bundled", "-o", str(tmp_path / "model")]
    command += ["--tol", "1e-12"]
    main, side = pty.openpty()
    child = subprocess.Popen(
        command, stderr=side, stdout=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "150"}
    )
    os.close(side)
    seen, deadline = "", time.monotonic() + 120
    while "objective" not in seen and time.monotonic() < deadline:
        seen += os.read(main, 4096).decode(errors="replace")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    os.close(main)
    assert "objective" in seen
    assert child.returncode == 0
    assert "stopped by the caller" in out
    assert run("inspect", str(tmp_path / "model")).returncode == 0


def small(files: Path, n: int = 60) -> Path:
    """Write the first sentences of the training file, and return the path."""
    path = files / f"small{n}.txt"
    path.write_text("\n\n".join((files / "train.txt").read_text().split("\n\n")[:n]) + "\n")
    return path


def trained(*arguments: str) -> dict:
    done = run("train", "crf", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_development_file_stops_training_early(files):
    outcome = trained(str(small(files)), "--dev", str(files / "test.txt"), "--patience", "3", "-o", str(files / "dev"))
    assert "no better F1 on the development data for 3 iterations; kept iteration" in outcome["reason"]
    report = json.loads(run("evaluate", str(files / "dev"), str(files / "test.txt"), "--json").stdout)
    assert report["chunks"]["f1"] == pytest.approx(outcome["dev"])


@pytest.mark.parametrize("algorithm", ["sgd", "perceptron"])
def test_other_algorithms_from_the_command_line(files, algorithm):
    out = str(files / algorithm)
    trained(str(small(files)), "--algorithm", algorithm, "--max-iter", "5", "--hash-bits", "18", "-o", out)
    assert json.loads(run("evaluate", out, str(files / "test.txt"), "--json").stdout)["accuracy"] > 0.9


def test_start_and_checkpoint_from_the_command_line(files, chunker):
    outcome = trained(str(files / "train.txt"), "--start", str(chunker), "-o", str(files / "warm"))
    assert outcome["iterations"] <= 15
    whole = trained(str(small(files)), "-o", str(files / "whole"))
    again = trained(str(small(files)), "-o", str(files / "resumed"), "--checkpoint", str(files / "state"))
    assert again["objective"] == whole["objective"]
    assert not (files / "state").exists()


def test_killed_run_resumes_from_its_checkpoint(files):
    """After kill -9, the second run ends with the weights of an uninterrupted one."""
    out, state = files / "killed", files / "killed.state"
    command = [*WITH_CHECKPOINTS, "train", "crf", str(small(files, 400)), "--tol", "1e-9", "--max-iter", "60"]
    child = subprocess.Popen([*command, "-o", str(out), "--checkpoint", str(state)], stderr=subprocess.PIPE)
    while not state.exists():
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.005)
    child.kill()
    child.communicate()
    assert not out.exists()
    assert subprocess.run([*command, "-o", str(out), "--checkpoint", str(state)], capture_output=True).returncode == 0
    subprocess.run([*command, "-o", str(files / "uninterrupted")], check=True, capture_output=True)
    assert weights_of(out).read_bytes() == weights_of(files / "uninterrupted").read_bytes()


def test_an_empty_column_of_labels_is_an_error(tmp_path):
    (tmp_path / "a.conllu").write_text("1\tDogs\tdog\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    failed = run("train", "crf", tmp_path / "a.conllu", "--label", "xpos", "--out", tmp_path / "model")
    assert failed.returncode == 1
    assert "a.conllu: the column of labels is empty" in failed.stderr
    assert not (tmp_path / "model").exists()


def test_partial_labels_in_a_file(files):
    lines = small(files).read_text().split("\n")
    partial = [line.rsplit(" ", 1)[0] + " ?" if line and n % 4 == 0 else line for n, line in enumerate(lines)]
    partial = [line.replace("I-VP", "I-VP|B-VP") if n % 3 == 0 else line for n, line in enumerate(partial)]
    (files / "partial.txt").write_text("\n".join(partial))
    out = str(files / "partly")
    outcome = trained(str(files / "partial.txt"), "--unknown-label", "?", "--alternatives", "|", "-o", out)
    assert outcome["labels"] < 15
    assert json.loads(run("evaluate", out, str(files / "test.txt"), "--json").stdout)["accuracy"] > 0.9


def test_label_weights_from_the_command_line(files):
    trained(str(small(files)), "--label-weight", "O=100", "-o", str(files / "heavy"))
    tagged = run("tag", str(files / "heavy"), str(files / "test.txt")).stdout
    plain = trained(str(small(files)), "-o", str(files / "light"))
    light = run("tag", str(files / "light"), str(files / "test.txt")).stdout
    assert plain["labels"] > 3
    assert sum(line.endswith(" O") for line in tagged.splitlines()) > sum(
        line.endswith(" O") for line in light.splitlines()
    )
    failed = run("train", "crf", str(small(files)), "--label-weight", "O")
    assert failed.returncode != 0
    assert "NAME=NUMBER" in failed.stderr


def test_known_labels_at_tagging_time(files, chunker):
    text = "We PRP _\nsaw VBD B-NP\nit PRP _\n\n"
    done = run("tag", str(chunker), "--known", "2", input=text)
    assert done.returncode == 0, done.stderr
    assert [line.split()[3] for line in done.stdout.splitlines() if line][1] == "B-NP"
    failed = run("tag", str(chunker), "--known", "2", input=text.replace("B-NP", "B-ZZ"))
    assert failed.returncode != 0
    assert "sentence 0, token 1: 'B-ZZ'" in failed.stderr
    assert run("tag", str(chunker), "--format", "text", "--known", "2", input="We saw it").returncode != 0


def test_edge_templates_from_a_file(files):
    (files / "template").write_text("U0:%x[0,0]\nU1:%x[0,1]\nB\nB1:%x[-1,1]/%x[0,1]\n")
    out = str(files / "edges")
    trained(str(small(files)), "--features", str(files / "template"), "--max-iter", "30", "-o", out)
    shown = run("inspect", out).stdout
    assert "B1:" in shown
    assert json.loads(run("evaluate", out, str(files / "test.txt"), "--json").stdout)["accuracy"] > 0.9
