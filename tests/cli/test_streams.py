"""``tag`` and ``parse`` write while they read: the same output in parts of any size, pipes, errors on the way."""

import gzip
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.commands import COMMAND, run
from tests.estimators import made
from trelliswork import CRF, HMM, PCFG, DependencyParser, FactorialCRF, bundled

SENTENCES = bundled.load("train")[:80]
WORDS = [list(s.words) for s in SENTENCES]
RAW = "".join(" ".join(s.words[:-1]) + s.words[-1] + ("\n\n" if k % 5 == 4 else "\n") for k, s in enumerate(SENTENCES))


X = [list(zip(s.words, s.tags, strict=True)) for s in SENTENCES]
SMALL = {"order": 1, "max_iter": 1, "hash_bits": 12, "projective": False}
MODELS = {
    "hmm": lambda: HMM().fit(WORDS, [s.tags for s in SENTENCES]),
    "chunker": lambda: CRF("pos", max_iter=5).fit(WORDS, [s.chunks for s in SENTENCES]),
    "layers": lambda: FactorialCRF(["pos", "chunk"], max_iter=3).fit(
        WORDS, [list(zip(s.tags, s.chunks, strict=True)) for s in SENTENCES]
    ),
    "ready": lambda: CRF(None, max_iter=5).fit([[{"w": w} for w in s] for s in WORDS], [s.tags for s in SENTENCES]),
    "grammar": lambda: PCFG(3, n_preterminals=4, rank=4, max_iter=2, max_length=8).fit(WORDS),
    "parser": lambda: made(DependencyParser, **SMALL).fit(X, TREES),
    "with_tagger": lambda: made(DependencyParser, **SMALL, tagger="hmm").fit(X, TREES),
}
TREES = [list(zip(s.heads, s.relations, strict=True)) for s in SENTENCES]
INPUTS = {
    "ready": {"format": "crfsuite", "columns": [], "label": None},
    "parser": {"columns": ["form", "xpos"]},
    "with_tagger": {"columns": ["form", "xpos"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    for format, ending in (("columns", "columns"), ("conllu", "conllu"), ("text", "txt"), ("trees", "mrg")):
        text = run("data", "bundled", "--limit", 80, "--format", format).stdout
        (folder / f"all.{ending}").write_text(text)
    (folder / "raw.txt").write_text(RAW)
    rows = [f"{tag}\tw={word}\n" for s in SENTENCES for word, tag in (*zip(s.words, s.tags, strict=True), ("", ""))]
    ready = "".join("\n" if row == "\tw=\n" else row.replace(":", "\\:") for row in rows)
    (folder / "all.crfsuite").write_text(ready)
    comments = (folder / "all.conllu").read_text().replace("\n\n", "\n\n\n", 3)
    (folder / "odd.conllu").write_text("# nothing\n\n" + comments.removesuffix("\n") + "# end\n")
    odd = (folder / "all.columns").read_text().replace("\n\n", "\n \t\n\n-DOCSTART- -X- O\n\n", 4)
    (folder / "odd.columns").write_text("\n" + odd.replace(" ", "\t", 2) + "\n\n")  # new columns after a tab
    return folder


def save(folder, name):
    if not (folder / name).exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few iterations
            fitted = MODELS[name]()
        if name in INPUTS:
            fitted.input_ = INPUTS[name]
        fitted.save(folder / name)
    return folder / name


CASES = [
    ("tag", "chunker", "odd.columns", ["--with", "spans,marginals"]),
    ("tag", "hmm", "all.columns", ["--with", "topk=3"]),
    ("tag", "hmm", "all.columns", ["--known", "1", "--with", "marginals", "--output", "jsonl"]),
    ("tag", "hmm", "odd.conllu", ["--format", "conllu"]),
    ("tag", "hmm", "all.txt", ["--format", "text", "--with", "marginals"]),
    ("tag", "chunker", "raw.txt", ["--tokenize", "--with", "marginals,spans", "--output", "jsonl"]),
    ("tag", "chunker", "raw.txt", ["--tokenize", "--with", "spans", "--output", "conllu"]),
    ("tag", "hmm", "all.columns", ["--output", "json"]),
    ("tag", "hmm", "odd.conllu", ["--format", "conllu", "--output", "columns", "--with", "marginals"]),
    ("parse", "with_tagger", "raw.txt", ["--tokenize", "--output", "columns", "--with", "subtrees,marginals"]),
    ("parse", "grammar", "all.txt", ["--output", "json"]),
    ("tag", "hmm", "raw.txt", ["--tokenize"]),
    ("tag", "layers", "all.columns", ["--with", "marginals", "--output", "jsonl"]),
    ("tag", "ready", "all.crfsuite", ["--with", "marginals"]),
    ("parse", "parser", "odd.conllu", ["--with", "marginals"]),
    ("parse", "parser", "all.conllu", ["--known-heads", "--with", "marginals", "--output", "jsonl"]),
    ("parse", "parser", "odd.conllu", ["--with", "topk=2"]),
    ("parse", "with_tagger", "all.txt", ["--with", "subtrees"]),
    ("parse", "with_tagger", "raw.txt", ["--tokenize"]),
    ("parse", "grammar", "all.txt", []),
    ("parse", "grammar", "all.conllu", []),
]


def sizes(monkeypatch, tokens):
    for name in ("FIRST", "MOST"):
        monkeypatch.setattr(f"trelliswork.data.reading.shares.{name}", tokens)


@pytest.mark.parametrize(("command", "name", "file", "options"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_parts_do_not_change_the_output(folder, monkeypatch, command, name, file, options):
    words = [command, save(folder, name), folder / file, *options]
    outputs = []
    for tokens in (10**9, 1, 100):
        sizes(monkeypatch, tokens)
        done = run(*words)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0].count("\n") > 50
    assert outputs == outputs[:1] * 3


def test_several_files_gzip_and_output_files(folder, monkeypatch, tmp_path):
    tagger, text = save(folder, "hmm"), (folder / "all.columns").read_text()
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text.encode()))
    expected = run("tag", tagger, tmp_path / "a.txt").stdout
    sizes(monkeypatch, 1)
    files = [tmp_path / "a.txt", tmp_path / "b.txt.gz"]
    assert run("tag", tagger, *files).stdout == 2 * expected
    assert run("tag", tagger, *files, "--out", tmp_path / "out").returncode == 0
    assert {p.name: p.read_text() for p in (tmp_path / "out").iterdir()} == {"a.txt": expected, "b.txt": expected}
    assert run("tag", tagger, input=text).stdout == expected


def test_an_error_on_the_way(folder, monkeypatch, tmp_path):
    """What was written stays; the message has the line in the whole file; a file is written completely or not."""
    sizes(monkeypatch, 1)
    tagger = save(folder, "hmm")
    lines = (folder / "all.columns").read_text().splitlines()
    lines[500] = "only"
    bad = tmp_path / "bad.txt"
    bad.write_text("\n".join(lines) + "\n")
    done = run("tag", tagger, bad)
    assert done.returncode == 1
    assert f"{bad}:501: expected 3 columns, as in line 1, got 1" in done.stderr
    whole = run("tag", tagger, folder / "all.columns").stdout
    assert 300 < done.stdout.count("\n") < 501
    assert whole.startswith(done.stdout)
    assert run("tag", tagger, bad, "--out", tmp_path / "out.txt").returncode == 1
    assert not (tmp_path / "out.txt").exists()
    known = (folder / "all.columns").read_text().splitlines()
    known = [line.rsplit(" ", 1)[0] + " _" if line else "" for line in known]
    at = next(k for k in range(600, 700) if known[k] and not known[k - 1])
    known[at] = "a b NONE"
    done = run("tag", tagger, "--known", 2, input="\n".join(known))
    number = sum(not line for line in known[:at])
    assert f"<stdin>:{at + 1}: sentence {number}, token 0: 'NONE' is given" in done.stderr


def test_input_without_sentences(folder, monkeypatch):
    sizes(monkeypatch, 1)
    done = run("tag", save(folder, "hmm"), input="\n\n\n")
    assert (done.returncode, "at least one sentence (one token per line" in done.stderr) == (1, True)


def test_tags_may_be_missing_at_first(folder, monkeypatch):
    sizes(monkeypatch, 1)
    parser = save(folder, "parser")
    blocks = (folder / "all.conllu").read_text().split("\n\n")
    for k in range(3):
        rows = [line.split("\t") for line in blocks[k].splitlines()]
        blocks[k] = "\n".join("\t".join([*row[:4], "_", *row[5:]]) if len(row) > 1 else row[0] for row in rows)
    done = run("parse", parser, input="\n\n".join(blocks))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("# text") == 80
    done = run("parse", parser, input="\n\n".join(blocks[:3]))
    assert (done.returncode, done.stdout) == (1, "")
    assert "no tags: the column xpos" in done.stderr


def test_a_grammar_is_recognized(folder):
    grammar = save(folder, "grammar")
    text = "".join(f"{s}\n" for s in SENTENCES[:5])
    trees = run("parse", grammar, "--format", "text", input=text).stdout
    assert trees == run("parse", grammar, "--format", "text", input=text).stdout
    rows = [
        json.loads(line)
        for line in run(
            "parse", grammar, "--format", "text", "--with", "marginals", "--output", "jsonl", input=text
        ).stdout.splitlines()
    ]
    assert [row["tree"] for row in rows] == trees.splitlines()
    assert [row["words"] for row in rows] == WORDS[:5]
    for row in rows:
        assert row["spans"][0]["tokens"] == [0, len(row["words"])]
        assert row["spans"][0]["probability"] == pytest.approx(1)
        assert len(row["spans"]) == len(row["words"]) - 1
        assert all(0 < span["probability"] <= 1 for span in row["spans"])
    marked = run("parse", grammar, "--format", "text", "--with", "marginals", input=text).stdout.splitlines()
    assert [line.split("\t")[0] for line in marked] == trees.splitlines()
    assert marked[0].split("\t")[1].split()[0] == f"0:{len(WORDS[0])}:1.000000"
    raw = run("parse", grammar, "--tokenize", input=RAW)
    assert raw.stdout.count("\n") == 80
    assert run("parse", grammar, "--decoding", "viterbi", "--format", "text", input=text).stdout.count("\n") == 5
    assert run("parse", grammar, "--with", "topk=2", input=text).returncode == 2
    assert run("parse", grammar, "--bundled", "--with", "marginals", "--output", "jsonl").stdout.count("\n") == 500
    done = run("parse", save(folder, "hmm"), input=text)
    assert (done.returncode, "expected a parser" in done.stderr) == (1, True)


def started(*words, stdin, **options):
    command = [*COMMAND, "--threads", "1", *map(str, words)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.programs
def test_a_pipe_gets_answers_before_it_asks_again(folder):
    """One sentence in, one out: the next is written when the answer to the one before was read."""
    words = ["tag", save(folder, "hmm"), "--format", "text", "--with", "marginals", "--output", "jsonl"]
    with started(*words, stdin=subprocess.PIPE, text=True, bufsize=1) as child:
        for words in WORDS[:5]:
            child.stdin.write(" ".join(words) + "\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["words"] == words
        assert child.communicate(timeout=60)[0] == ""
    assert child.returncode == 0


FEED = "import sys\nwhile True:\n    sys.stdout.write('They saw her duck .\\n' * 1000)"


def resident(child):
    """Return the megabytes that a process has in memory; 0 where the system does not tell."""
    status = Path(f"/proc/{child.pid}/status")
    return int(status.read_text().split("VmRSS:")[1].split()[0]) >> 10 if status.exists() else 0


@pytest.mark.programs
@pytest.mark.parametrize("options", [["--format", "text"], ["--tokenize"]])
def test_endless_input(folder, options):
    """As ``yes "They saw her duck ." | trelliswork tag MODEL --format text | head -1000``; then more: flat memory."""
    feeding = subprocess.Popen([sys.executable, "-c", FEED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with feeding as feed, started("tag", save(folder, "hmm"), *options, stdin=feed.stdout) as child:
        feed.stdout.close()
        seen = [child.stdout.readline().split(b"\t")[0] for _ in range(1000)]
        assert seen[:6] == [b"They", b"saw", b"her", b"duck", b".", b"\n"]
        used = []
        for _ in range(2):
            for _ in range(60_000):
                child.stdout.readline()
            used.append(resident(child))
        child.stdout.close()  # as head does
        assert child.wait(timeout=60) == 0
        assert child.stderr.read() == b""
    assert used[1] < used[0] + 20
    assert used[1] < 400
    assert feed.returncode != 0


def test_every_form_has_the_same_labels(folder):
    tagger, labels = save(folder, "layers"), {}
    done = run("tag", tagger, folder / "all.columns", "--output", "conllu")
    assert done.returncode == 1
    assert "have no CoNLL-U columns" in done.stderr
    tagger = save(folder, "hmm")
    for file, *options in (("all.columns",), ("all.conllu", "--format", "conllu"), ("all.txt", "--format", "text")):
        for form in ("columns", "conllu", "jsonl", "json"):
            text = run("tag", tagger, folder / file, *options, "--output", form).stdout
            if form == "jsonl":
                found = [label for line in text.splitlines() for label in json.loads(line)["labels"]]
            elif form == "json":
                found = [label for row in json.loads(text) for label in row["labels"]]
            else:
                rows = [line.split() for line in text.splitlines() if line and line[0] != "#"]
                found = [row[3] if form == "conllu" else row[-1] for row in rows]
            labels[file, form] = found
    assert len(set(map(tuple, labels.values()))) == 1
    assert labels["all.txt", "json"]
    ready = run("tag", save(folder, "ready"), folder / "all.crfsuite", "--output", "conllu")
    assert ready.returncode == 2
    assert "needs words" in ready.stderr


def test_an_array_without_sentences_is_empty(folder, tmp_path):
    (tmp_path / "a.txt").write_text("\n")
    (tmp_path / "b.txt").write_text("They saw her .\n")
    out = tmp_path / "out"
    words = ("tag", save(folder, "hmm"), tmp_path / "a.txt", tmp_path / "b.txt", "--format", "text", "--output", "json")
    assert run(*words, "--out", out).returncode == 0
    assert json.loads((out / "a.txt").read_text()) == []
    assert len(json.loads((out / "b.txt").read_text())) == 1
