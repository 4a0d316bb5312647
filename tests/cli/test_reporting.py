"""``--report`` of all train and evaluate commands."""

import io
import json
import re
import signal

import pytest
from typer.testing import CliRunner

from tests.report.checks import check_page
from trelliswork.cli import app, reporting, train
from trelliswork.data import bundled
from trelliswork.data.writers import write_columns, write_conllu

KINDS = {  # command: file, options, texts on the page
    "crf": ("some.txt", ["--dev", "{dev}.txt", "--max-iter", "4"], ["Objective", "Calibration", "Largest weights"]),
    "hmm": ("some.txt", ["--columns", "0", "--label", "1"], ["The posterior of a sentence", "States"]),
    "factorial-crf": ("some.txt", ["--dev", "{dev}.txt", "--max-iter", "3"], ["Layer chunk", "the same token"]),
    "mrf-tagger": ("some.txt", ["--columns", "0", "--label", "1", "--max-iter", "3"], ["Largest weights"]),
    "parser": (
        "some.conllu",
        ["--dev", "{dev}.conllu", "--order", "1", "--hash-bits", "14", "--max-iter", "2"],
        ["A tree and its arcs", "By length", "Development data", "Calibration"],
    ),
    "pcfg": ("some.mrg", ["--n-nonterminals", "3", "--n-preterminals", "4", "--max-iter", "2"],
             ["A tree and its spans", "Rules"]),
    "mrf-lm": ("some.raw",
             ["--dev", "{dev}.raw", "--rank", "4", "--window", "1", "--min-count", "2", "--max-iter", "3"],
            ["Blanks", "Nearest neighbors", "Development data"]),
    "kneser-ney": ("some.raw", ["--order", "3", "--min-count", "2"], ["Word by word", "N-grams"]),
    "log-bilinear": ("some.raw", ["--rank", "4", "--max-iter", "2", "--min-count", "2"],
                     ["Perplexity", "Nearest neighbors"]),
    "hmm-lm": ("some.raw", ["--n-states", "4", "--hidden", "4", "--max-iter", "1", "--min-count", "2"],
               ["Perplexity", "States"]),
}  # fmt: skip
EVALUATED = {  # texts on the page of an evaluation
    "crf": ["Results", "Confusion matrix"],
    "hmm": ["Results", "Confidence and errors"],
    "factorial-crf": ["Results of layer pos", "Confidence and errors of layer chunk"],
    "mrf-tagger": ["Results", "Calibration"],
    "parser": ["Results", "By label", "A tree and its arcs"],
    "pcfg": ["Comparison with simple trees", "Gold tree"],
}
COMMANDS = {name for name, *_ in train.COMMANDS}


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("reports")
    for name, some in (("some", bundled.load("train")[:80]), ("dev", bundled.load("dev")[:25])):
        for ending, write in ((".txt", write_columns), (".conllu", write_conllu)):
            text = io.StringIO()
            write(some, text)
            (path / f"{name}{ending}").write_text(text.getvalue())
        (path / f"{name}.raw").write_text("".join(" ".join(s.words) + "\n" for s in some))
        (path / f"{name}.mrg").write_text("".join(f"{s.tree}\n" for s in some if len(s.words) < 12))
    return path


def test_every_command_has_the_option():
    assert set(KINDS) == COMMANDS
    for command in [*(["train", name] for name in KINDS), ["evaluate"]]:
        assert "--report" in run(*command, "--help").output, command


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_evaluation_write_pages(kind, folder):
    file, options, shown = KINDS[kind]
    page, model = folder / f"{kind}.html", folder / f"{kind}-model"
    given = [option.format(dev=folder / "dev") for option in options]
    done = run("train", kind, folder / file, *given, "--out", model, "--report", page, "--quiet", "--json")
    outcome = json.loads(done.stdout)
    assert outcome["report"] == str(page)
    text = page.read_text()
    words = " ".join(check_page(text).words)
    for title in [*shown, "Run", "Settings", f"{kind}-model"]:
        assert title in words, title
    judged = folder / f"{kind}-judged.html"
    test = folder / file.replace("some", "dev")
    done = run("evaluate", model, test, "--report", judged, "--json")
    assert json.loads(done.stdout)["report"] == str(judged)
    words = " ".join(check_page(judged.read_text()).words)
    for title in EVALUATED.get(kind, ["By length", "Hard and easy sentences"]):
        assert title in words, title
    assert "report" not in json.loads(run("evaluate", model, test, "--json").stdout)


def test_induced_states(folder):
    model = folder / "induced"
    options = ["--n-states", "4", "--max-iter", "3", "--out", model, "--quiet"]
    run("train", "hmm", folder / "some.raw", *options, "--report", folder / "induced.html")
    assert "Log-probability" in (folder / "induced.html").read_text()
    run("evaluate", model, folder / "dev.txt", "--format", "columns", "--label", "1", "--report", folder / "i.html")
    assert "Gold labels of the states" in " ".join(check_page((folder / "i.html").read_text()).words)


def test_attributes_without_words(folder):
    lines = ["B-NP\tw=the\tt=DT", "I-NP\tw=cat\tt=NN", "", "B-NP\tw=<b>\tt=DT", "I-NP\tw=dog\tt=NN", ""]
    (folder / "some.crfsuite").write_text("\n".join(lines) + "\n")
    options = ["--format", "crfsuite", "--max-iter", "3", "--out", folder / "ready", "-q"]
    file, page = folder / "some.crfsuite", folder / "ready.html"
    run("train", "crf", file, "--dev", file, *options, "--report", page)
    check_page(page.read_text())


@pytest.mark.parametrize(
    ("place", "why"),
    [("none/page.html", "does not exist"), ("", "end in .html"), ("page.txt", "end in .html"),
     ("dir.html", "is a directory")],
)  # fmt: skip
def test_unwritable_page_is_an_error_before_training(place, why, tmp_path):
    (tmp_path / "dir.html").mkdir()
    for command in (["train", "crf", "--out", tmp_path / "model"], ["evaluate", tmp_path / "model"]):
        done = run(*command, "--report", tmp_path / place if place else "", code=2)
        assert why in re.sub(r"\W*\n\W*", " ", done.output)  # the message has a frame and line breaks
    assert not (tmp_path / "model").exists()


def test_folder_without_permission_is_an_error(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reporting.tempfile, "NamedTemporaryFile", refuse)
    done = run("train", "crf", "--out", tmp_path / "model", "--report", tmp_path / "page.html", code=2)
    assert "Permission denied" in done.output
    assert not (tmp_path / "model").exists()


def test_nothing_is_left_when_a_run_fails(folder, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    run("train", "crf", folder / "nothing.txt", "--out", tmp_path / "model", "--report", page, code=1)
    assert page.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_an_interrupted_run_has_its_page(folder, tmp_path, monkeypatch):
    from trelliswork.cli import progress

    shown = progress.describe

    def describe_and_interrupt(step, *arguments):
        if step.iteration == 2:  # before, Ctrl-C ends the command at once
            signal.raise_signal(signal.SIGINT)
        return shown(step, *arguments)

    monkeypatch.setattr(progress, "describe", describe_and_interrupt)
    page = tmp_path / "page.html"
    options = ["--max-iter", "50", "--out", tmp_path / "model", "--report", page, "--json"]
    outcome = json.loads(run("train", "crf", folder / "some.txt", *options).stdout)
    assert outcome["iterations"] == 2
    assert "stopped by the caller" in page.read_text()


def test_command_line_on_the_page(monkeypatch):
    monkeypatch.setattr(reporting.sys, "argv", ["/bin/trelliswork", "train", "crf", "a file.txt"])
    assert reporting.typed() == "trelliswork train crf 'a file.txt'"
    monkeypatch.setattr(reporting.sys, "argv", ["/x/trelliswork/__main__.py", "demo"])
    assert reporting.typed() == "trelliswork demo"
    monkeypatch.setattr(reporting.sys, "argv", ["/x/pytest/__main__.py", "tests"])
    assert reporting.typed() == ""


def test_sentences_of_text(tmp_path):
    (tmp_path / "a.txt").write_text("a b\n\nc\n")
    assert reporting.text_part(None, [["x"]]).X == [["x"]]
    found = reporting.text_part(tmp_path / "a.txt", None)
    assert (found.part, found.X) == ("development", [["a", "b"], ["c"]])
    assert reporting.text_part(None, [tmp_path]).X == [["a", "b"], ["c"]]
    assert reporting.text_part(object(), "-") is None  # counts, and standard input


def test_a_report_has_one_development_score(folder, monkeypatch):
    """The results are those of all sentences, although probabilities and errors are shown for fewer."""
    monkeypatch.setattr("trelliswork.report.taggers.JUDGED", 5)
    page = folder / "one.html"
    result = run("train", "crf", folder / "some.txt", "--dev", folder / "dev.txt", "--columns", "0", "--label", "1",
                 "--max-iter", "4", "--json", "--out", folder / "one", "--report", page)  # fmt: skip
    score = json.loads(result.stdout)["dev"]
    text = page.read_text()
    assert "On the first 5 sentences of the development data." in text
    assert text.count(f"{100 * score:.2f} %") >= 2  # at the top, and among the results
    (row,) = re.findall(r"<tr><td[^>]*>tokens</td>(.*?)</tr>", text)
    assert f"{100 * score:.2f} %" in row
