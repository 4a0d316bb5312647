"""Several input files, in one process and shared by the processes of a group: results as for one file."""

import gzip
import itertools
import json
from pathlib import Path

import pytest

from tests.commands import run
from tests.processes import on_ranks

HERE = "tests.cli.test_inputs"
COLUMNS = run("data", "bundled", "--limit", "60", "--format", "columns").stdout
CONLLU = run("data", "bundled", "--limit", "60").stdout
TEXT = run("data", "bundled", "--limit", "60", "--format", "text").stdout
TREES = run("data", "bundled", "--limit", "60", "--format", "trees").stdout


def cut(text, n_parts, separator="\n\n"):
    """Return a text in parts at ends of sentences."""
    sentences = text.removesuffix(separator).split(separator)
    ends = [k * len(sentences) // n_parts for k in range(n_parts + 1)]
    return [separator.join(sentences[a:b]) + separator for a, b in itertools.pairwise(ends)]


def done(*words, **options):
    result = run(*words, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a corpus in one file and in three, of which one is gzip, and trained models."""
    folder = tmp_path_factory.mktemp("several")
    for ending, text, separator in (
        ("txt", COLUMNS, "\n\n"), ("conllu", CONLLU, "\n\n"), ("text", TEXT, "\n"), ("mrg", TREES, "\n"),
    ):  # fmt: skip
        (folder / f"all.{ending}").write_text(text)
        first, second, third = cut(text, 3, separator)
        (folder / f"a.{ending}").write_text(first)
        (folder / f"b.{ending}.gz").write_bytes(gzip.compress(second.encode()))
        (folder / f"c.{ending}").write_text(third)
    (folder / "empty.txt").write_text("\n\n")
    for command, ending, options in (
        ("crf", "txt", ["--max-iter", 10]), ("hmm", "text", ["--n-states", 3, "--max-iter", 3]),
        ("parser", "conllu", ["--max-iter", 2]), ("hmm", "txt", []),
    ):  # fmt: skip
        name = "tagger" if options == [] else command
        done("train", command, folder / f"all.{ending}", "--out", folder / name, "--quiet", *options)
    return folder


def several(folder, ending):
    return [str(folder / name) for name in (f"a.{ending}", f"b.{ending}.gz", f"c.{ending}")]


TRAINED = [
    ("crf", "txt", ["--max-iter", "10"]),
    ("factorial-crf", "txt", ["--layers", "pos,chunk", "--max-iter", "3"]),
    ("hmm", "txt", []),
    ("hmm", "text", ["--n-states", "3", "--max-iter", "3"]),
    ("parser", "conllu", ["--max-iter", "2"]),
    ("pcfg", "mrg", ["--max-iter", "2", "--n-nonterminals", "3", "--n-preterminals", "4"]),
    ("kneser-ney", "text", ["--order", "2"]),
    ("mrf-tagger", "conllu", ["--label", "xpos", "--max-iter", "2"]),
]


@pytest.mark.parametrize(("command", "ending", "options"), TRAINED)
def test_training_on_several_files(folder, tmp_path, command, ending, options):
    outcomes = []
    for files in ([folder / f"all.{ending}"], several(folder, ending)):
        words = ["train", command, *files, *options, "--out", tmp_path / "model"]
        printed = done(*words, "--json", "--quiet", "--force")
        outcomes.append({k: v for k, v in json.loads(printed).items() if k not in ("seconds", "model")})
    if command == "crf":
        assert outcomes[0]["sentences"] == 60
    assert outcomes[0] == outcomes[1]


OUTPUTS = [
    (["tag", "crf"], "txt", []),
    (["tag", "crf", "--with", "marginals"], "txt", []),
    (["tag", "tagger", "--with", "marginals", "--output", "jsonl"], "text", ["--format", "text"]),
    (["tag", "hmm"], "text", []),
    (["parse", "parser"], "conllu", []),
]


@pytest.mark.parametrize(("words", "ending", "options"), OUTPUTS)
def test_outputs_of_several_files(folder, tmp_path, words, ending, options):
    command = [words[0], folder / words[1], *words[2:], *options]
    whole = done(*command, folder / f"all.{ending}")
    assert done(*command, *several(folder, ending)) == whole
    done(*command, *several(folder, ending), "--out", tmp_path / "new" / "tagged")
    names = [f"{name}.{ending}" for name in "abc"]
    written = [(tmp_path / "new" / "tagged" / name).read_text() for name in names]
    assert "".join(written) == whole
    assert sorted(p.name for p in (tmp_path / "new" / "tagged").iterdir()) == names


def test_outputs_are_kept_apart_and_inputs_safe(folder, tmp_path):
    command = ["tag", folder / "crf"]
    (tmp_path / "a.txt").write_text(COLUMNS)
    same = run(*command, folder / "a.txt", tmp_path / "a.txt", "--out", tmp_path / "out")
    assert same.returncode == 1
    assert "would be the output of" in same.stderr
    assert not (tmp_path / "out").exists()
    for out in (tmp_path, f"{tmp_path}/"):
        replaced = run(*command, tmp_path / "a.txt", folder / "c.txt", "--out", out)
        assert replaced.returncode == 1
        assert "would replace the input" in replaced.stderr
    assert "would replace the input" in run(*command, tmp_path / "a.txt", "--out", tmp_path / "a.txt").stderr
    assert (tmp_path / "a.txt").read_text() == COLUMNS
    done(*command, folder / "a.txt", "--out", f"{tmp_path}/one/")
    assert (tmp_path / "one" / "a.txt").read_text() == done(*command, folder / "a.txt")
    mixed = run(*command, "-", folder / "a.txt")
    assert mixed.returncode == 2
    assert "standard input" in mixed.stderr
    unnamed = run(*command, "-", "--out", f"{tmp_path}/one/", input="a b\n")
    assert unnamed.returncode == 2
    assert "no name" in unnamed.stderr


def test_files_without_sentences(folder, tmp_path):
    files = [folder / "a.txt", folder / "empty.txt"]
    done("tag", folder / "crf", *files, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "empty.txt").read_text() == "\n\n"
    for command in (["tag", folder / "crf"], ["evaluate", folder / "crf"], ["train", "crf", "--out", tmp_path / "m"]):
        failed = run(*command, folder / "empty.txt", folder / "empty.txt")
        assert failed.returncode == 1
        assert "at least one sentence, got none" in failed.stderr


def test_errors_name_the_file(folder, tmp_path):
    (tmp_path / "wide.txt").write_text("\na b c d\n")
    (tmp_path / "bad.txt").write_text("a A\n\nb\n")
    good = folder / "a.txt"
    for file, place in (("wide.txt", "wide.txt:2: expected 3 columns, as in"), ("bad.txt", "bad.txt:3: expected 2")):
        failed = run("train", "crf", good, tmp_path / file, "--out", tmp_path / "model")
        assert failed.returncode == 1
        assert f"{tmp_path}/{place}" in failed.stderr
    formats = run("train", "crf", good, folder / "a.conllu", "--out", tmp_path / "model")
    assert formats.returncode == 1
    assert "different formats" in formats.stderr
    done("train", "kneser-ney", folder / "all.text", "--unknown", "error", "--out", tmp_path / "ngrams")
    (tmp_path / "new.text").write_text("\n" + TEXT.splitlines()[0] + "\n\nnonesuch word\n")
    unknown = run("score", tmp_path / "ngrams", folder / "a.text", folder / "empty.txt", tmp_path / "new.text")
    assert f"error: {tmp_path}/new.text:4: " in unknown.stderr


@pytest.mark.parametrize("model", ["crf", "hmm", "parser"])
def test_figures_of_several_files(folder, model):
    ending = {"crf": "txt", "hmm": "text", "parser": "conllu"}[model]
    command = ["score" if model == "hmm" else "evaluate", folder / model]
    assert done(*command, *several(folder, ending)) == done(*command, folder / f"all.{ending}")


def command(group, words):
    result = run(*words)
    return [result.returncode, result.stdout, result.stderr]


def together(size, *words):
    """Return what a command prints if processes share its work: rank 0 alone prints."""
    results = on_ranks(size, f"{HERE}:command", list(map(str, words)))
    assert results[0][0] == 0, results[0][2]
    assert [result[1:] for result in results[1:]] == [["", ""]] * (size - 1)
    return results[0][1]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "ending", "options"), OUTPUTS)
def test_processes_write_the_output_of_one(folder, tmp_path, words, ending, options):
    command = [words[0], folder / words[1], *words[2:], *options]
    whole = done(*command, folder / f"all.{ending}")
    for size in (2, 3):
        out = tmp_path / f"out{size}"
        together(size, *command, *several(folder, ending), "--out", out)
        assert "".join((out / f"{name}.{ending}").read_text() for name in "abc") == whole
    for code, printed, error in on_ranks(2, f"{HERE}:command", [*map(str, command), str(folder / f"all.{ending}")]):
        assert (code, printed) == (2, "")
        assert not error or "give --out DIR/" in " ".join(error.replace("│", " ").split())


@pytest.mark.slow
def test_processes_with_nothing_to_do(folder, tmp_path):
    sentence = cut(COLUMNS, 60)[0]
    (tmp_path / "one.txt").write_text(sentence)
    (tmp_path / "none.txt").write_text("")
    files = [tmp_path / "none.txt", tmp_path / "one.txt"]
    expected = done("tag", folder / "crf", tmp_path / "one.txt")
    together(3, "tag", folder / "crf", *files, "--out", tmp_path / "out")
    assert [(tmp_path / "out" / file.name).read_text() for file in files] == ["", expected]
    assert together(3, "score", folder / "tagger", *files) == done("score", folder / "tagger", files[1])


@pytest.mark.slow
def test_processes_print_the_figures_of_one(folder):
    for words in (["score", folder / "hmm"], ["score", folder / "hmm", "--per-sentence"]):
        expected = done(*words, folder / "all.text")
        assert together(2, *words, folder / "all.text") == expected
        assert together(3, *words, *several(folder, "text")) == expected


def trained(printed):
    outcome = json.loads(printed)
    return {k: outcome[k] for k in ("sentences", "tokens", "labels", "iterations") if k in outcome}, outcome


@pytest.mark.slow
def test_processes_train_the_model_of_one(folder, tmp_path):
    options = ["--max-iter", "200", "--tol", "1e-9", "--dev", folder / "a.txt", "--quiet", "--json", "--out"]
    facts, alone = trained(done("train", "crf", folder / "all.txt", *options, tmp_path / "alone"))
    shared, outcome = trained(together(2, "train", "crf", *several(folder, "txt"), *options, tmp_path / "two"))
    facts.pop("iterations"), shared.pop("iterations")
    assert shared == facts
    assert outcome["objective"] == pytest.approx(alone["objective"], rel=1e-4)
    assert [set(process) for process in outcome["processes"]] == [
        {"computation", "communication", "waiting", "bytes_sent", "messages"}
    ] * 2
    printed = together(
        2, "train", "crf", folder / "all.txt", "--max-iter", 2, "-q", "--out", tmp_path / "two", "--force"
    )
    assert printed.startswith("60 sentences")
    assert "2 processes: " in printed
    assert " MB sent each" in printed


@pytest.mark.slow
@pytest.mark.parametrize(("command", "ending", "options"), [one for one in TRAINED[1:] if one[0] != "parser"])
def test_every_training_command_shares_its_files(folder, tmp_path, command, ending, options):
    words = ["train", command, *several(folder, ending), *options, "--json", "--quiet", "--out", tmp_path / "model"]
    words.append("--force")
    facts, alone = trained(done(*words))
    shared, outcome = trained(together(2, *words))
    facts.pop("iterations", None)
    shared.pop("iterations", None)
    assert shared == facts
    if alone.get("objective") is not None:
        assert outcome["objective"] == pytest.approx(alone["objective"], rel=0.02)


@pytest.mark.slow
def test_processes_agree_on_columns(folder, tmp_path):
    (tmp_path / "one.txt").write_text(cut(COLUMNS, 60)[0])
    for words in (["crf", "--max-iter", 2], ["hmm"]):
        words += ["--out", tmp_path / "model", "--force"]
        printed = together(3, "train", *words, tmp_path / "one.txt", "--quiet", "--json")
        assert json.loads(printed)["sentences"] == 1
    assert json.loads(Path(tmp_path / "model" / "model.json").read_text())["input"]["columns"] == [0]
