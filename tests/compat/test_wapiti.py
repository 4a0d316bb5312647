"""Wapiti's patterns by their definition, its files and its commands; real data of GROBID."""

import re

import pytest

from trelliswork import bundled, calibrate, evaluate
from trelliswork.compat import wapiti
from trelliswork.compat.wapiti import Patterns, Wapiti, expression, main
from trelliswork.data import Corpus
from trelliswork.data.schemes import from_grobid, to_grobid
from trelliswork.errors import DataError, ValueRangeError

SENTENCES = bundled.load("train")[:80]
ROWS = [list(zip(s.words, s.tags, strict=True)) for s in SENTENCES]
Y = [list(s.chunks) for s in SENTENCES]
TEXT = """# a comment
u:word=%x[0,0]
U00:%X[-1,0]/%x[1,1]

*:%t[0,0,"^\\u"]
u:suffix=%m[0,0,"..$"]  # at the end
u:first=%x[@1,0]
u:last=%x[@-1,1]
b
"""


def flat(rows):
    return [label for row in rows for label in row]


def value(command, words, t):
    """The result of a command by its definition, for a sequence of columns."""
    place = t + command.row
    if command.absolute:
        place = len(words) + command.row if command.row < 0 else command.row - 1
    if place < 0:
        token = f"_x-{-place}" if place >= -4 else "_x-#"
    elif place >= len(words):
        token = f"_x+{place - len(words) + 1}" if place - len(words) < 4 else "_x+#"
    else:
        token = words[place][command.column]
    if command.kind == "t":
        token = str(bool(expression(command.regex).search(token))).lower()
    elif command.kind == "m":
        found = expression(command.regex).search(token)
        token = found.group() if found else ""
    return token.lower() if command.lower else token


def test_commands_by_their_definition():
    lines = ["b"] + [f"u:{k}=%{c}[{at}{row},1{regex}]" for k, (c, at, row, regex) in enumerate(
        (c, at, row, regex) for at in ("", "@") for row in range(-7, 8)
        for c, regex in (("x", ""), ("X", ""), ("t", ',"\\d"'), ("M", ',"^._?\\a*.$"'))
    )]  # fmt: skip
    patterns = Patterns("\n".join(lines))
    X = [row[:n] for n, row in enumerate(ROWS[:12], start=1)]
    corpus = Corpus.from_sentences(X)
    for command, column in zip(patterns.commands, patterns(corpus).columns, strict=True):
        assert list(column) == [value(command, words, t) for words in X for t in range(len(words))], command


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        ("a*b", "a*?b", "caab"), ("\\u\\l*", "[A-Z][a-z]*?", "xAbc"), ("^\\d?$", "^[0-9]?$", "5"), (".$", ".$", "ab"),
        ("\\.\\$", "\\.\\$", "a.$"), ("a$b", "a\\$b", "a$b"), ("\\W", "[^a-zA-Z0-9]", "é"), ("a+", "a\\+", "aa+"),
    ],
)  # fmt: skip
def test_expressions(ours, theirs, text):
    found, expected = expression(ours).search(text), re.search(theirs, text)
    assert (found and found.group()) == (expected and expected.group())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x:%x[0,0]\nb", "p:1: a pattern starts with u, b or \\*"),
        ("u:%y[0,0]\nb", "p:1: a pattern"),
        ("b\nu:%x[0]", "p:2: a pattern"),
        ('u:%x[0,0,"a"]\nb', "p:1: a pattern"),
        ("u:%t[0,0]\nb", "p:1: a pattern"),
        ('u:%t[0,0,"**"]\nb', "p:1: .*must follow a character"),
        ("u:%x[*0,0]\nb", "p:1: a pattern"),
        ("b", "starts with u"),
        ("u:%x[0,0]", "the line b"),
    ],
)
def test_broken_patterns_are_errors(text, message):
    with pytest.raises(DataError, match=message):
        Patterns(text, "p")


def test_labels_of_grobid_are_bio_and_back():
    labels = ["<other>", "I-<day>", "<day>", "I-<day>", "I-<other>"]
    assert from_grobid(labels) == ["I-<other>", "B-<day>", "I-<day>", "B-<day>", "B-<other>"]
    assert to_grobid(from_grobid(labels)) == labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wapiti")
    lines = ["".join(f"{w}\t{t} {c}\n" for (w, t), c in zip(*pair, strict=True)) for pair in zip(ROWS, Y, strict=True)]
    (folder / "train").write_text("\n \n".join(lines) + "\n \n")
    (folder / "patterns").write_text(TEXT)
    words = ["-p", folder / "patterns", "-i", 40, "-1", 0, "-2", 0.1, "-t", 1, folder / "train", folder / "model"]
    assert main(["train", *map(str, words)]) == 0
    return folder


def test_the_commands_train_label_and_dump(folder, capsys):
    assert main(["label", "-m", str(folder / "model"), "-c", str(folder / "train"), str(folder / "out")]) == 0
    assert "tokens" in capsys.readouterr().err
    before, after = ((folder / name).read_text().split("\n") for name in ("train", "out"))
    assert [line.rpartition("\t")[0] or line for line in after] == before
    labels = [line.rpartition("\t")[2] for line in after if line.strip()]
    assert sum(a == b for a, b in zip(labels, flat(Y), strict=True)) > 0.95 * len(labels)
    model = Wapiti.load(folder / "model")
    X, y = wapiti.read(folder / "train")
    assert y == Y
    assert flat(model.crf.predict(model.columns(X))) == labels
    assert main(["label", "-m", str(folder / "model"), "-l", str(folder / "train")]) == 0
    assert [line for line in capsys.readouterr().out.split("\n") if line] == labels
    assert main(["label", "-m", str(folder / "model"), "-l", "-n", "2", "-s", "-p", str(folder / "train")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# 0 ")
    assert printed.count("# 1 ") == len(Y)
    assert main(["dump", str(folder / "model")]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {"u:word=the", "u:suffix=he", "*:true", "b"} <= {row[0] for row in rows}
    assert {row[1] == "#" for row in rows if row[0].startswith("u")} == {True}
    assert any(row[0] == "*:true" and row[1] != "#" for row in rows)


def test_the_objective_is_that_of_wapiti(folder):
    """Penalties rho1 |w| + rho2/2 |w|^2."""
    model = Wapiti(TEXT, rho1=0.3, rho2=0.2)
    assert (model.crf.l1, model.crf.l2) == (0.3, 0.1)


def test_what_is_not_here_is_refused(folder, capsys):
    for words in (
        ["train", "-a", "rprop", "-p", folder / "patterns", folder / "train", folder / "other"],
        ["train", folder / "train", folder / "other"],
        ["train", "-p", folder / "nothing", folder / "train", folder / "other"],
        ["label", "-m", folder / "model", "-s", folder / "train"],
        ["label", "-m", folder / "nothing", folder / "train"],
    ):
        assert main([str(word) for word in words]) == 1
        assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(ValueRangeError):
        Wapiti(TEXT, rho1=-1).fit(*wapiti.read(folder / "train"))


@pytest.mark.parametrize("name", ["date", "name-citation", "affiliation-address"])
def test_files_of_grobid_round_trip(data_dir, name):
    path = data_dir / "records" / "grobid" / f"{name}.train"
    _, y = wapiti.read(path)
    labels = iter([label for row in y for label in to_grobid(from_grobid(row))])
    lines = path.read_bytes().decode().split("\n")
    again = [f"{line.rstrip().rpartition(' ')[0]} {next(labels)}" if line.strip() else line for line in lines]
    assert "\n".join(again) == "\n".join(lines)
    assert next(labels, None) is None


GROBID = [f"u{c}{row}:%x[{row},{c}]" for c in range(11) for row in ((-2, -1, 0, 1, 2) if c in (0, 1) else (-1, 0, 1))]


@pytest.mark.slow  # ten folds of real data
@pytest.mark.parametrize("name", ["date", "name-citation", "affiliation-address"])
def test_fields_of_grobid_are_calibrated(data_dir, name):
    """Ten folds, the calibration on another fold than training and test."""
    X, y = wapiti.read(data_dir / "records" / "grobid" / f"{name}.train")
    rows, y = list(zip(*(X.sentences(c) for c in range(len(X.columns))), strict=True)), [from_grobid(row) for row in y]
    rows = [list(zip(*row, strict=True)) for row in rows]
    answers, right, found, gold = [], 0, 0, 0
    for k in range(10):
        parts = {"train": [], "dev": [], "test": []}
        for n in range(len(rows)):
            parts["test" if n % 10 == k else "dev" if n % 10 == (k + 1) % 10 else "train"].append(n)
        train, dev, test = (
            (Corpus.from_sentences([rows[n] for n in part]), [y[n] for n in part]) for part in parts.values()
        )
        model = Wapiti("\n".join([*GROBID, "b"]), rho1=0, rho2=0.2, feature_set="observed", tol=1e-4)
        model.crf.scheme = "bio"
        model.fit(*train)
        calibrate(model.crf, model.columns(dev[0]), dev[1])
        report = evaluate(model.crf, model.columns(test[0]), test[1])
        answers.append(report.span_confidence.answers)
        right, found = right + report.chunks.correct, found + report.chunks.predicted
        gold += report.chunks.support
    p, correct = ([value for part in answers for value in part[k].tolist()] for k in (0, 1))
    from trelliswork.metrics.calibration import calibration_error, reliability

    error = calibration_error(reliability(p, [c > 0.5 for c in correct]))
    print(f"{name}: field F1 {2 * right / (found + gold):.4f}, calibration error {error:.4f}")
    assert error <= 0.02
    assert 2 * right / (found + gold) > 0.8
