"""Some mutated inputs of every format, seeded; ``make fuzz`` reads as many as one likes."""

import json
import time
from contextlib import suppress

import pytest

pytest.importorskip("resource", reason="limits of memory need a Unix system")
from tests.models.fitted import fitted
from tests.robustness import fuzz
from trelliswork import load
from trelliswork.errors import DataError

TEXTS, DIRECTORIES = 150, 30
QUICK_MODELS = ("HMM", "CRF", "KneserNey", "Moments")


@pytest.mark.parametrize("name", fuzz.FORMATS)
def test_mutated_files_end_in_a_result_or_our_error(name):
    outcome = fuzz.run(name, TEXTS, seed=1)
    assert outcome.failures == []
    assert outcome.n_results + outcome.n_errors == TEXTS


@pytest.mark.parametrize(
    "name", [n if n in QUICK_MODELS else pytest.param(n, marks=pytest.mark.slow) for n in fuzz.MODELS]
)
def test_mutated_models_end_in_a_result_or_our_error(name):
    outcome = fuzz.run(name, DIRECTORIES, seed=1)
    assert outcome.failures == []
    assert outcome.n_results + outcome.n_errors == DIRECTORIES


def forbidden(path):
    raise KeyError("not ours")


@pytest.mark.parametrize(
    ("read", "failure"),
    [
        (forbidden, "KeyError: 'not ours'"),
        (lambda path: bytearray(8 << 30), "MemoryError"),
        (lambda path: time.sleep(30), "SIGALRM"),
        (lambda path: [][0], "IndexError"),
    ],
)
def test_the_harness_finds_failures(monkeypatch, tmp_path, read, failure):
    monkeypatch.setattr(fuzz, "SECONDS", 0.3)
    monkeypatch.setitem(fuzz.FORMATS, "text", fuzz.Format(read, lambda: [b"a"]))
    outcome = fuzz.run("text", 1, keep=tmp_path / "kept")
    assert len(outcome.failures) == 1
    assert failure in outcome.failures[0]
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_the_harness_counts_our_errors_and_results(monkeypatch):
    def read(path):
        if len(path.read_bytes()) % 2:
            raise DataError("odd")

    monkeypatch.setitem(fuzz.FORMATS, "text", fuzz.Format(read, lambda: [b"some text"]))
    outcome = fuzz.run("text", 50)
    assert outcome.failures == []
    assert outcome.n_results > 5
    assert outcome.n_errors > 5


@pytest.mark.parametrize("name", ["CRF", "DependencyParser", "HMM", "HMMLanguageModel", "KneserNey", "PCFG"])
def test_wrongly_typed_descriptions(name, tmp_path):
    place = tmp_path / "model"
    fitted(name).save(place)
    file = place / "model.json"
    good = json.loads(file.read_text(encoding="utf-8"))
    texts = ["[" * 100_000, '{"kind": ' + "9" * 5000 + "}", json.dumps(good | {"kind": ["crf"]}), json.dumps([good])]
    for key in sorted(good.keys() - {"kind", "format", "trelliswork"}):
        for value in (None, 7, "text", [7], {"a": {"b": 7}}, -1e400, [[]] * 3):
            if type(value) is not type(good[key]):
                texts.append(json.dumps(good | {key: value}))
    for text in texts:
        file.write_text(text, encoding="utf-8")
        with suppress(DataError):  # some entries do not matter to the model
            load(place)
