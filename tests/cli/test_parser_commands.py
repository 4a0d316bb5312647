"""train parser, parse, evaluate, inspect: files and pipes, evidence, checkpoints, interrupts, invalid input."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.commands import run
from tests.models.directories import weights_of
from tests.models.parser.corpus import freely_ordered
from trelliswork import load
from trelliswork.cli import app

FAST = ("--hash-bits", "16", "--batch-size", "8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("parser")
    for split, limit in (("train", "200"), ("test", "40")):
        text = run("data", "bundled", "--split", split, "--limit", limit).stdout
        (folder / f"{split}.conllu").write_text(text)
    return folder


@pytest.fixture(scope="module")
def parser(folder) -> Path:
    done = run("train", "parser", str(folder / "train.conllu"), "-o", str(folder / "parser"), *FAST, "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["kind"] == "parser"
    assert outcome["sentences"] == 200
    assert outcome["iterations"] == 10
    assert not outcome["converged"]  # all epochs were done
    assert outcome["dev"] is None
    return folder / "parser"


@pytest.fixture(scope="module")
def with_tagger(folder) -> Path:
    train, out = str(folder / "train.conllu"), str(folder / "hmm")
    done = run("train", "parser", train, "-o", out, "--tagger", "hmm", "--order", "1", *FAST)
    assert done.returncode == 0, done.stderr
    assert "200 sentences" in done.stdout
    assert "first order: 3 epochs; labels: 4 epochs" in done.stdout
    return folder / "hmm"


def ask(*command: str, input: str | None = None):
    """Run a command in this process, which is faster."""
    return CliRunner().invoke(app, list(command), input=input)


def words(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines() if line and line[0] != "#"]


def test_parse_and_evaluate_agree(folder, parser):
    file = str(folder / "test.conllu")
    report = json.loads(run("evaluate", str(parser), file, "--json").stdout)
    assert report["uas"] > 0.75
    assert report["las"] > 0.65
    assert report["confidence"]["bins"]
    parsed = run("parse", str(parser), file, "--with", "marginals").stdout
    gold = words((folder / "test.conllu").read_text())
    predicted = words(parsed)
    correct = [a[6] == b[6] for a, b in zip(gold, predicted, strict=True)]
    assert sum(correct) / len(correct) == pytest.approx(report["uas"])
    both = [a[6:8] == b[6:8] for a, b in zip(gold, predicted, strict=True)]
    assert sum(both) / len(both) == pytest.approx(report["las"])
    assert all(0 < float(row[9].removeprefix("ArcProb=")) <= 1 for row in predicted)
    assert parsed.count("# text") == 40
    text = run("evaluate", str(parser), "--bundled").stdout
    assert "500 sentences" in text
    assert "calibration error" in text


def test_k_best_trees_and_known_heads(folder, parser):
    file = folder / "one.conllu"
    file.write_text("# a comment\n1\tIt\t_\tPRON\tPRP\t_\t_\t_\t_\tX=y\n2\trains\t_\tVERB\tVBZ\t_\t_\t_\t_\t_\n")
    several = ask("parse", str(parser), str(file), "--with", "topk=5")
    assert several.stdout.count("# a comment") == 2  # all trees of two words with one root
    probabilities = [float(line.split("=")[1]) for line in several.stdout.splitlines() if "tree_prob" in line]
    assert sum(probabilities) == pytest.approx(1, abs=1e-4)
    file.write_text(file.read_text().replace("\tVBZ\t_\t_", "\tVBZ\t_\t1"))
    given = words(ask("parse", str(parser), str(file), "--known-heads", "--with", "marginals").stdout)
    assert [row[6] for row in given] == ["0", "1"]
    assert given[0][9] == "X=y|ArcProb=1.0000"
    marked = words(ask("parse", str(parser), str(file), "--with", "topk=2,marginals").stdout)
    first, second = (float(row[9].removeprefix("X=y|ArcProb=")) for row in (marked[0], marked[2]))
    assert first + second == pytest.approx(1, abs=2e-4)  # the two heads that the first word can have
    (best,) = [
        float(line.split("=")[1])
        for line in ask("parse", str(parser), str(file), "--with", "topk=1").stdout.splitlines()
        if "tree_prob" in line
    ]
    assert best == max(probabilities)


def test_ways_to_choose_a_tree(folder, parser):
    file = str(folder / "test.conllu")
    trees = {name: run("parse", str(parser), file, "--decoding", name).stdout for name in ("mbr", "mbr-las")}
    assert trees["mbr"] == run("parse", str(parser), file).stdout
    assert len(words(trees["mbr-las"])) == len(words(trees["mbr"]))
    best = [row[6] for row in words(run("parse", str(parser), file, "--with", "topk=1").stdout)]
    assert [row[6] for row in words(run("parse", str(parser), file, "--decoding", "viterbi").stdout)] == best
    failed = ask("parse", str(parser), file, "--decoding", "viterbi", "--with", "topk=2")
    assert failed.exit_code == 2
    assert "leave --decoding out" in " ".join(failed.stderr.replace("│", "").split())


def test_feats_replace_an_empty_xpos_column(folder, tmp_path):
    rows = [line.split("\t") for line in (folder / "train.conllu").read_text().splitlines()]
    file = tmp_path / "feats.conllu"
    cells = ["\t".join([*row[:4], "_", f"F={row[4]}", *row[6:]]) if len(row) > 1 else row[0] for row in rows]
    file.write_text("\n".join(cells) + "\n")
    out = str(tmp_path / "model")
    done = ask("train", "parser", str(file), "--order", "1", *FAST, "--max-iter", "1", "-o", out)
    assert done.exit_code == 0, done.stderr
    assert "not used" not in done.stderr
    assert load(out).input_["columns"] == ["form", "upos", "feats"]
    assert ask("evaluate", out, str(file)).exit_code == 0


def test_parsing_the_output_of_parse(folder, parser):
    """Additions of an earlier parse are dropped, sentence ids remain unique, and comments stay in place."""
    text = "# newdoc\n\n# sent_id = a1\n1\tIt\t_\tPRON\tPRP\t_\t_\t_\t_\tX=y\n2\trains\t_\tVERB\tVBZ\t_\t_\t_\t_\t_\n\n"
    several = ask("parse", str(parser), "--with", "topk=2", input=text).stdout
    assert several.startswith("# newdoc\n\n# tree_prob")
    assert [line for line in several.splitlines() if "sent_id" in line] == ["# sent_id = a1", "# sent_id = a1-tree2"]
    marked = ask("parse", str(parser), "--with", "marginals", input=several).stdout
    assert "tree_prob" not in marked
    assert marked.count("ArcProb") == 4
    plain = ask("parse", str(parser), input=marked).stdout
    assert "ArcProb" not in plain
    assert [row[9] for row in words(plain)] == ["X=y", "_"] * 2
    again = ask("parse", str(parser), input=text).stdout
    assert again.replace("a1", "") == text.replace("a1", "").replace(
        "\t_\t_\t_\tX=y", "\t" + "\t".join(words(again)[0][6:9]) + "\tX=y"
    ).replace("VBZ\t_\t_\t_\t_\t_", "VBZ\t_\t" + "\t".join(words(again)[1][6:]))
    assert ask("parse", str(parser), input=text + "# the end\n").stdout.endswith("\n\n# the end\n")


def test_json(folder, parser, with_tagger):
    file = str(folder / "test.conllu")
    rows = [
        json.loads(line)
        for line in ask("parse", str(parser), file, "--with", "marginals", "--output", "jsonl").stdout.splitlines()
    ]
    cells = words(ask("parse", str(parser), file).stdout)
    assert [w for row in rows for w in row["words"]] == [row[1] for row in cells]
    assert [h for row in rows for h in row["heads"]] == [int(row[6]) for row in cells]
    assert [name for row in rows for name in row["labels"]] == [row[7] for row in cells]
    assert all(0 < p <= 1 for row in rows for p in row["probabilities"])
    text = folder / "some.txt"
    text.write_text("The dog runs .\n")
    (best,) = ask("parse", str(with_tagger), str(text), "--with", "topk=2", "--output", "jsonl").stdout.splitlines()
    trees = json.loads(best)["trees"]
    assert len(trees) == 2
    assert trees[0]["probability"] > trees[1]["probability"]
    assert len(trees[0]["heads"]) == len(trees[0]["labels"]) == 4
    array = json.loads(ask("parse", str(parser), file, "--with", "marginals", "--output", "json").stdout)
    assert array == rows
    simple = [json.loads(line) for line in ask("parse", str(parser), file, "--output", "jsonl").stdout.splitlines()]
    assert simple[0].keys() == {"words", "heads", "labels"}
    table = ask("parse", str(parser), file, "--output", "columns", "--with", "marginals").stdout
    lines = [line.split("\t") for line in table.splitlines() if line]
    assert [line[:3] for line in lines] == [[row[1], row[6], row[7]] for row in cells]
    assert [float(line[3]) for line in lines] == pytest.approx(
        [p for row in rows for p in row["probabilities"]], abs=1e-4
    )


def test_plain_text_with_a_tagger(folder, parser, with_tagger):
    parsed = words(run("parse", str(with_tagger), "--format", "text", input="The dog runs .\nGo !\n").stdout)
    assert [row[0] for row in parsed] == ["1", "2", "3", "4", "1", "2"]
    assert parsed[0][3:5] == ["DET", "DT"]
    assert [row[6] for row in parsed].count("0") == 2
    again = words(run("parse", str(with_tagger), str(folder / "test.conllu")).stdout)
    assert sum(row[4] != "_" for row in again) == len(again)
    failed = run("parse", str(parser), "--format", "text", input="The dog runs .\n")
    assert failed.returncode == 1
    assert "this parser has no tagger" in failed.stderr


def test_inspect(parser, with_tagger):
    shown = json.loads(ask("inspect", str(parser), "--json").stdout)
    assert shown["order"] == 2
    assert "root" in shown["labels"]
    assert shown["dropped_heads"] > 0
    text = ask("inspect", str(with_tagger)).stdout
    assert "parser of order 1;" in text
    assert "hashed and have no names" in text
    assert "tagger: hmm" in text
    assert ask("inspect", str(parser), "--label", "x").exit_code == 2


def test_development_data_and_the_bundled_corpus(folder):
    train, dev, out = str(folder / "train.conllu"), str(folder / "test.conllu"), str(folder / "dev")
    done = ask("train", "parser", train, "--dev", dev, "--columns", "form,xpos", "--no-projective", "-o", out, *FAST)
    assert done.exit_code == 0, done.stderr
    assert "kept epoch" in done.stdout
    assert "UAS" in ask("evaluate", out, dev).stdout
    settings = {"max_iter": 1, "learning_rate": 0.04, "patience": 1}
    more = [part for name, value in settings.items() for part in ("--" + name.replace("_", "-"), str(value))]
    more += ["--force", "--json"]
    done = ask("train", "parser", train, "--dev", dev, "-o", out, *more, *FAST)
    outcome = json.loads(done.stdout)
    assert outcome["dev_metric"] == "LAS"
    assert f"with LAS {outcome['dev']:.4f}" in outcome["reason"].split("; ")[-1]
    assert json.loads(ask("evaluate", out, dev, "--json").stdout)["las"] == outcome["dev"]
    shown = json.loads(ask("inspect", out, "--json").stdout)["parameters"]
    assert {name: shown[name] for name in settings} == settings


def test_training_resumes_from_a_checkpoint(folder, tmp_path):
    """The time limit ends the first run after one epoch, and the second after another."""
    checkpoint, train = tmp_path / "checkpoint", str(folder / "train.conllu")
    command = ("train", "parser", train, "--hash-bits", "12", "--columns", "form,xpos", "--json")
    resumed = tmp_path / "resumed"
    for n_epochs in (1, 2):
        options = ("--checkpoint", str(checkpoint), "--max-minutes", "1e-9", "-o", str(resumed))
        outcome = json.loads(ask(*command, *options).stdout)
        assert outcome["reason"].startswith("first order: time limit of 1e-09 minutes")
        assert outcome["iterations"] == n_epochs + 1  # and one of labels
        assert checkpoint.is_file()
    done = ask(*command, "--checkpoint", str(checkpoint), "-o", str(resumed))
    assert done.exit_code == 0, done.stderr
    assert not checkpoint.exists()
    whole = json.loads(ask(*command, "-o", str(tmp_path / "whole")).stdout)
    outcome = json.loads(done.stdout)
    assert {k: v for k, v in outcome.items() if k not in ("seconds", "model")} == {
        k: v for k, v in whole.items() if k not in ("seconds", "model")
    }
    files = [weights_of(tmp_path / name).read_bytes() for name in ("resumed", "whole")]
    assert files[0] == files[1]
    ask(*command, "--checkpoint", str(checkpoint), "--max-minutes", "1e-9", "-o", str(resumed), "--force")
    failed = ask(*command, "--checkpoint", str(checkpoint), "--seed", "1", "-o", str(resumed))
    assert failed.exit_code == 1
    assert "a checkpoint of other data or settings" in " ".join(failed.stderr.split())


@pytest.mark.parametrize("options", [(), ("--tagger", "hmm")], ids=["tags given", "with a tagger"])
def test_empty_columns_of_tags_are_left_out(options, folder, tmp_path):
    rows = [line.split("\t") for line in (folder / "train.conllu").read_text().splitlines()]
    bare = tmp_path / "bare.conllu"
    bare.write_text("\n".join("\t".join([*row[:4], "_", *row[5:]]) if len(row) > 1 else row[0] for row in rows) + "\n")
    common = ("--order", "1", *FAST, *options, "--max-iter", "1", "--json", "-o")
    done = ask("train", "parser", str(bare), "--dev", str(bare), *common, str(tmp_path / "bare"))
    assert done.exit_code == 0, done.stderr
    assert "bare.conllu: xpos is empty (_) throughout and not used: the parser learns from form, upos" in done.stderr
    named = ask("train", "parser", str(bare), "--columns", "form,upos", *common, str(tmp_path / "named"))
    assert "warning" not in named.stderr
    weights = [[file.name for file in (tmp_path / name).glob("weights-*")] for name in ("bare", "named")]
    assert weights[0] == weights[1]  # names have the checksum of the content
    assert len(weights[0]) == 1
    assert ask("evaluate", str(tmp_path / "bare"), str(bare)).exit_code == 0
    assert ask("parse", str(tmp_path / "bare"), str(bare)).exit_code == 0


def test_the_outcome_of_training_names_the_order_that_is_kept(tmp_path):
    for name, (X, Y) in (("train", freely_ordered(100, 1)), ("dev", freely_ordered(150, 2))):
        rows = [
            "".join(f"{n}\t{w}\t_\t{t}\t_\t_\t{h}\t{r}\t_\t_\n" for n, ((w, t), (h, r)) in enumerate(s, start=1))
            for s in (zip(*pair, strict=True) for pair in zip(X, Y, strict=True))
        ]
        (tmp_path / f"{name}.conllu").write_text("\n".join(rows) + "\n")
    model, page = str(tmp_path / "model"), tmp_path / "page.html"
    files = str(tmp_path / "train.conllu"), "--dev", str(tmp_path / "dev.conllu")
    done = ask("train", "parser", *files, "--min-count", "1", *FAST, "-o", model, "--report", str(page))
    kept = "kept the first order, since the second order lowers UAS on the development data from 0."
    for text in (done.stdout, page.read_text(), ask("inspect", model).stdout):
        assert kept in " ".join(text.split())
    assert "order: 1" in ask("inspect", model).stdout


def test_error_messages(folder, parser, tmp_path):
    broken = tmp_path / "broken.conllu"
    broken.write_text("1\ta\t_\tN\tNN\t_\t7\tx\t_\t_\n")
    unlabeled = tmp_path / "open.conllu"
    unlabeled.write_text("1\ta\t_\tN\tNN\t_\t_\t_\t_\t_\n")
    half = tmp_path / "half.conllu"  # a label is missing, heads of the second sentence cross
    half.write_text(
        "1\ta\t_\tN\tNN\t_\t2\tx\t_\t_\n2\tb\t_\tN\tNN\t_\t0\t_\t_\t_\n\n"
        + "".join(f"{i}\tw\t_\tN\tNN\t_\t{h}\tx\t_\t_\n" for i, h in enumerate((3, 4, 0, 3), start=1))
    )
    bare = tmp_path / "bare.conllu"
    bare.write_text("1\ta\t_\tN\t_\t_\t0\tx\t_\t_\n")
    untagged = tmp_path / "untagged.conllu"
    untagged.write_text("1\ta\t_\t_\t_\t_\t0\tx\t_\t_\n")
    out, train = ("-o", str(tmp_path / "x")), ("train", "parser", str(folder / "train.conllu"))
    cases = (
        (("evaluate", str(parser), str(half)), 1, "half.conllu:2: the word has no label"),
        (("evaluate", str(parser), str(unlabeled)), 1, "open.conllu:1: the word has no head"),
        (("evaluate", str(parser), str(bare)), 1, "bare.conllu: no tags: the column xpos"),
        (("parse", str(parser), str(bare)), 1, "bare.conllu: no tags: the column xpos"),
        (("parse", str(parser), str(half), "--known-heads"), 1, "half.conllu:4: no tree of this parser's kind"),
        (
            ("train", "parser", str(untagged), *out),
            1,
            "untagged.conllu: no tags to learn from: upos and xpos are empty",
        ),
        (("train", "parser", str(bare), "--columns", "form,xpos", *out), 1, "by --columns (upos, feats)"),
        (("train", "parser", str(unlabeled), *out), 1, "open.conllu: no word has a head"),
        ((*train, "--columns", "form,head", *out), 2, "then one or two of the tags"),
        ((*train, "--columns", "upos,xpos", *out), 2, "must name words (form or lemma)"),
        ((*train, "--columns", "form,upos,upos", *out), 2, "must name words"),
        ((*train, "--patience", "2", *out), 2, "give --dev too"),
        ((*train, "--learning-rate", "0", *out), 1, "learning_rate must be greater than 0"),
        ((*train, "--order", "3", *out), 2, "--order': 3 is not in the range 1<=x<=2"),
        (("train", "parser", str(broken), *out), 1, "broken.conllu:1: the head must be"),
        (
            ("train", "parser", str(folder / "train.conllu"), "--columns", "form", *out),
            2,
            "then one or two of the tags",
        ),
        (("evaluate", str(parser), str(unlabeled)), 1, "evaluation needs complete trees"),
        (("evaluate", str(parser), str(unlabeled), "--label", "upos"), 2, "is compared with trees"),
        (("tag", str(parser), str(unlabeled)), 1, "use trelliswork parse"),
        (("parse", str(parser), str(tmp_path / "none.conllu")), 1, "no such file"),
        (("parse", str(parser), str(folder / "x.tsv")), 1, "CoNLL-U or text file"),
        (("parse", str(parser), str(folder / "x.txt")), 1, "this parser has no tagger"),
    )
    for command, code, message in cases:
        done = ask(*command)
        assert done.exit_code == code, (command, done.stderr)
        assert message in " ".join(done.stderr.replace("│", " ").split()), done.stderr


def interrupted(command, shown):
    """Run a command on a terminal, and interrupt it when the progress bar shows a text."""
    main, side = pty.openpty()
    child = subprocess.Popen([sys.executable, "-m", "trelliswork", *command], stdout=subprocess.PIPE, stderr=side)
    os.close(side)
    seen = b""
    try:
        while shown not in seen:
            seen += os.read(main, 10_000)
    except OSError:  # the program has ended
        child.communicate(timeout=120)
        raise AssertionError(f"{shown!r} was not shown: {seen!r}") from None
    child.send_signal(signal.SIGINT)
    printed, _ = child.communicate(timeout=120)
    os.close(main)
    return child.returncode, printed


def test_interrupt_finishes_the_epoch_and_saves_the_parser(folder):
    out = str(folder / "stopped")
    command = ("train", "parser", str(folder / "train.conllu"), "-o", out, "--force", *FAST, "--max-iter", "100000")
    code, printed = interrupted(command, b"objective")
    assert code == 0
    assert b"stopped by the caller" in printed
    report = json.loads(run("evaluate", out, str(folder / "test.conllu"), "--json").stdout)
    assert report["uas"] > 0.5


def test_interrupt_before_the_first_epoch_ends_the_command(folder):
    out, larger = folder / "nothing", folder / "larger.conllu"
    larger.write_text(10 * (folder / "train.conllu").read_text(encoding="utf-8"), encoding="utf-8")  # takes longer
    command = ("train", "parser", str(larger), "-o", str(out), "--tagger", "crf", *FAST)
    assert interrupted(command, b" of 5")[0] == 130
    assert not out.exists()
