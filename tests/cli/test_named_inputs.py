"""Commands read what the user names, and replace nothing that an earlier run has saved without ``--force``."""

import json
import os
import pty
import subprocess

import pytest

from tests.commands import COMMAND, run
from trelliswork import HMM, KneserNey, bundled
from trelliswork.cli.train import COMMANDS
from trelliswork.data.reading.inputs import PARTS
from trelliswork.integrations.convert.arpa import write_arpa

COLUMNS = "the DT B-NP\ndog NN I-NP\nruns VBZ B-VP\n\n"


def said(done) -> str:
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    sentences = bundled.load("train")[:50]
    path = tmp_path_factory.mktemp("named") / "tagger"
    HMM().fit([s.words for s in sentences], [s.tags for s in sentences]).save(path)
    return path


def test_the_parts_are_those_of_the_bundled_corpus():
    assert set(PARTS) == set(bundled.SPLITS)


def test_a_tagger_of_the_bundled_corpus_reads_columns_with_tabs(tmp_path):
    done = run("train", "hmm", "bundled:dev", "--quiet", "--out", "tagger", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tagged = [
        run("tag", "tagger", cwd=tmp_path, input=text).stdout for text in ("the\tx\ndog\tx\n\n", "the x\ndog x\n\n")
    ]
    assert tagged == ["the\tx\tDT\ndog\tx\tNN\n\n", "the x DT\ndog x NN\n\n"]


@pytest.mark.parametrize("name", [name for name, *_ in COMMANDS])
def test_training_without_a_file_names_what_to_give(name, tmp_path):
    done = run("train", name, cwd=tmp_path)
    assert done.returncode == 2
    assert "name a file, - for standard input, or --bundled for the bundled corpus" in said(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["evaluate", "calibrate"])
def test_gold_answers_are_named(command, tagger, tmp_path):
    done = run(command, tagger, cwd=tmp_path)
    assert done.returncode == 2
    assert "--bundled" in said(done)
    assert "give files or --bundled" in said(run(command, tagger, "a.txt", "--bundled"))


def test_a_file_named_like_a_part_is_a_file(tagger, tmp_path):
    (tmp_path / "test").write_text(COLUMNS)
    report = json.loads(run("evaluate", tagger, "test", "--json", cwd=tmp_path).stdout)
    assert report["n_tokens"] == 3
    everything = json.loads(run("evaluate", tagger, "--bundled", "--json", cwd=tmp_path).stdout)
    assert everything["n_tokens"] == sum(len(s.words) for s in bundled.load("test"))
    assert json.loads(run("evaluate", tagger, "bundled:test", "--json", cwd=tmp_path).stdout) == everything
    done = run("evaluate", tagger, "dev", cwd=tmp_path)
    assert done.returncode == 2
    assert "dev: no such file" in said(done)
    assert "bundled:dev" in said(done)


def test_parts_of_the_bundled_corpus_are_checked(tagger, tmp_path):
    (tmp_path / "a.txt").write_text(COLUMNS)
    for files, message in (
        (["bundled:all"], "bundled:train, bundled:dev, bundled:test"),
        (["bundled:dev", "a.txt"], "cannot be combined with files"),
        (["a.txt", "-"], "cannot be combined with files"),
    ):
        done = run("evaluate", tagger, *files, cwd=tmp_path)
        assert done.returncode == 2
        assert message in said(done)
    done = run("train", "crf", "a.txt", "--dev", "dev", cwd=tmp_path)
    assert (done.returncode, "bundled:dev" in said(done)) == (2, True)
    done = run("train", "kneser-ney", "a.txt", "--dev", "dev", "-o", "m", cwd=tmp_path)
    assert (done.returncode, "bundled:dev" in said(done)) == (2, True)
    done = run("train", "mrf-lm", "--counts", "counts", "--bundled", cwd=tmp_path)
    assert (done.returncode, "not both" in said(done)) == (2, True)


def test_parts_of_the_bundled_corpus_are_files_of_every_command(tagger, tmp_path):
    for words in (
        ("score", tagger, "bundled:dev"),
        ("tag", tagger, "bundled:dev"),
        ("tag", tagger, "--bundled", "--format", "conllu", "--with", "marginals", "--output", "jsonl"),
        ("tag", tagger, "--bundled", "--tokenize"),
        ("select", tagger, "bundled:dev", "-n", 2),
        ("data", "count", "bundled:dev", "--quiet", "--out", "counts"),
        ("cluster", "bundled:dev", "--n-clusters", 2, "--max-iter", 1, "--quiet", "--tokenize"),
    ):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    done = run("tag", tagger, "--bundled", "--format", "crfsuite")
    assert (done.returncode, "no ready attributes" in done.stderr) == (1, True)


@pytest.mark.programs
@pytest.mark.parametrize(
    ("options", "told", "typed"),
    [(["--format", "text"], "one sentence per line", b"They saw .\n"), ([], "one token per line", b"They\n\n")],
)
def test_a_person_at_a_terminal_is_told_what_is_read(tagger, options, told, typed):
    """The answer to what was typed comes before the next sentence; Ctrl-D ends the command."""
    main, side = pty.openpty()
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, "tag", str(tagger), *options], stdin=side, stdout=pipe, stderr=pipe) as child:
        os.close(side)
        line = child.stderr.readline().decode()
        assert line.startswith("reading standard input: ")
        assert told in line
        os.write(main, typed)
        assert child.stdout.readline().startswith(b"They")
        os.write(main, b"\x04")
        child.communicate(timeout=60)
    os.close(main)
    assert child.returncode == 0


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text(COLUMNS * 3)
    (tmp_path / "text").write_text("a b\nb a\n")
    return tmp_path


SAVED = (
    ("train", "hmm", "a.txt", "--quiet", "--out", "out"),
    ("data", "count", "text", "--quiet", "--out", "out"),
    ("cluster", "text", "--n-clusters", "2", "--quiet", "--out", "out"),
    ("convert", "ngrams.arpa", "--out", "out"),
    ("convert", "ngrams", "--out", "out.arpa"),
)


@pytest.mark.parametrize("command", SAVED, ids=lambda command: " ".join(command[:2]))
def test_out_is_replaced_with_force_only(command, folder):
    def content():
        place = folder / command[-1]
        return place.read_bytes() if place.is_file() else {p.name: p.stat().st_mtime_ns for p in place.iterdir()}

    model = KneserNey(order=2).fit([["a", "b"], ["b", "a"]])
    model.save(folder / "ngrams")
    write_arpa(model, folder / "ngrams.arpa")
    assert run(*command, cwd=folder).returncode == 0
    before = content()
    done = run(*command, cwd=folder)
    assert done.returncode == 2
    assert "replace it with --force" in said(done)
    assert content() == before
    assert run(*command, "--force", cwd=folder).returncode == 0


def test_the_model_is_safe_before_anything_is_read(folder):
    assert run("train", "hmm", "a.txt", "--out", "m", "-q", cwd=folder).returncode == 0
    done = run("train", "crf", "nothing.txt", "--out", "m", cwd=folder)
    assert (done.returncode, "m has a model already" in said(done)) == (2, True)


def test_what_another_run_has_saved_meanwhile_is_not_replaced(folder, monkeypatch):
    monkeypatch.setattr("trelliswork.cli.train.command.check_out", lambda *args, **options: None)
    assert run("train", "hmm", "a.txt", "--out", "m", "-q", cwd=folder).returncode == 0
    done = run("train", "hmm", "a.txt", "--out", "m", "-q", cwd=folder)
    assert done.returncode == 1
    assert said(done).endswith("m-1 instead.")
    assert run("inspect", "m-1", cwd=folder).returncode == 0


def test_a_run_that_goes_on_replaces_its_model(folder):
    options = ["--unlabeled", "--n-states", 2, "--tol", 0, "--checkpoint", "state", "--out", "m", "--json"]
    stopped = run("train", "hmm", "a.txt", *options, "--max-minutes", 1e-9, cwd=folder)
    assert stopped.returncode == 0, stopped.stderr
    resumed = run("train", "hmm", "a.txt", *options, "--max-iter", 3, cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["iterations"] == 3
    assert run("train", "hmm", "a.txt", *options, cwd=folder).returncode == 2  # a finished run has no checkpoint


def test_calibration_in_place_needs_no_force(folder):
    assert run("train", "hmm", "a.txt", "--label", 1, "--out", "m", "-q", cwd=folder).returncode == 0
    for out in ((), ("--out", "./m"), ("--out", "other")):
        done = run("calibrate", "m", "a.txt", *out, cwd=folder)
        assert done.returncode == 0, done.stderr
    assert run("calibrate", "m", "a.txt", "--out", "other", cwd=folder).returncode == 2
    assert run("calibrate", "m", "a.txt", "--out", "other", "--force", cwd=folder).returncode == 0


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("They saw her duck.\n", True),
        ("They saw her duck.\n\nThe old man left!\n", True),
        ("They saw her duck.\nThe old man left!\n", True),
        ("They PRP B-NP O\nsaw VBD B-VP O\n", False),  # more columns than the model reads
        ("They PRP\n", False),
        ("They\n", False),
    ],
)
def test_running_text_in_place_of_columns_is_noticed(text, warned, tmp_path):
    (tmp_path / "train.txt").write_text("They PRP\nsaw VBD\n\nThe DT\nman NN\n", encoding="utf-8")
    assert run("train", "crf", "train.txt", "--out", "tagger", cwd=tmp_path).returncode == 0
    done = run("tag", "tagger", input=text, cwd=tmp_path)
    assert done.returncode == 0
    assert ("--tokenize" in done.stderr) == warned
