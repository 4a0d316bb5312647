"""``trelliswork demo``: its output, its page, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.browser import WIDTHS
from tests.commands import run

pytestmark = pytest.mark.programs


COMMAND = ("demo", "--sentences", 60)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Output and folder of a small run."""
    folder = tmp_path_factory.mktemp("demo")
    environment = os.environ | {"COLUMNS": "120", "NO_COLOR": "1"}
    done = run(*COMMAND, cwd=folder, env=environment)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert all(re.match(r"\d+/\d+  ", line) for line in lines)  # without a terminal no bars, only lines
    return done.stdout, folder / "demo"


def test_prints_confidences_evidence_a_tree_and_results(shown):
    text, _ = shown
    assert "\x1b" not in text
    for name in ("Tagger", "Parser", "Language model"):
        assert re.search(rf"^{name} \(", text, re.MULTILINE)
    probability = float(re.search(r"had probability ([\d.]+)", text).group(1))
    next_best = [float(p) for p in re.findall(r"│ [^ ]+ (0\.\d{3})  +│ [^│]+│ [^│]+│$", text, re.MULTILINE)]
    assert probability in next_best  # evidence on one word has the probability of its tag
    assert "have the correct head" in text
    assert "Fill the blank" in text


def test_saves_models_that_load(shown):
    from trelliswork import load

    folder = shown[1]
    assert [load(folder / name).family for name in ("tagger", "parser", "words")] == ["crf", "parser", "kneser-ney"]


def test_page_has_all_plots_and_loads_nothing(shown):
    page = (shown[1] / "report.html").read_text(encoding="utf-8")
    for title in (
        "Learning curves",
        "posterior of a sentence",
        "given evidence",
        "A tree",
        "Calibration",
        "Fill the blank",
    ):
        assert title in page
    assert page.count("<svg") >= 7
    assert not re.search(r"(src|href)=[\"']?https?:", page)


@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_desktop_and_phone(shown, open_page, width):
    opened = open_page(shown[1] / "report.html", width)
    assert opened.errors == []
    assert opened.overflow() <= 0
    assert len(opened.requests) == 1


def test_json_and_an_unusable_folder(tmp_path):
    figures = json.loads(run(*COMMAND, "--json", "--out", tmp_path / "a").stdout)
    assert set(figures["seconds"]) == {"tagger", "parser", "language model"}
    assert 0.5 < figures["accuracy"] < 1
    (tmp_path / "file").write_text("")
    failed = run(*COMMAND, "--out", tmp_path / "file")
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert failed.stdout == ""


WITHOUT_EXTRAS = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "matplotlib", "starlette", "uvicorn", "pandas", "sklearn"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Nothing())
from trelliswork.cli import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [COMMAND, ("train", "crf", "--bundled", "--max-iter", 2, "--out", "tagger", "--report", "page.html", "--quiet")],
    ids=lambda words: words[0],
)
def test_the_core_install_is_enough(words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *map(str, words)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("*.html"))) == 1


def test_ctrl_c_is_quiet(tmp_path):
    command = [sys.executable, "-u", "-m", "trelliswork", "demo"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert "bundled corpus" in child.stdout.readline()  # training has started
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert errors == "interrupted\n"
    # To a shell both are 130: CPython ends by the signal itself if it met an exec() of some library's import.
    assert child.returncode in (130, -signal.SIGINT)
