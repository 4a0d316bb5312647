"""Saved HMMs: what is loaded equals what was saved, and damaged files are errors."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.models.directories import weights_of
from tests.models.hmm.cases import ALL, WORDS, model, sentences
from trelliswork import HMM
from trelliswork.errors import DataError


@pytest.mark.parametrize("name", ALL)
def test_a_loaded_model_equals_the_saved_one(name, tmp_path):
    hmm = model(name)
    hmm.save(tmp_path / "model")
    loaded = HMM.load(tmp_path / "model")
    xs = sentences(hmm)
    assert loaded.predict(xs) == hmm.predict(xs)
    assert loaded.predict(xs, decoding="mbr") == hmm.predict(xs, decoding="mbr")
    assert (loaded.log_prob(xs) == hmm.log_prob(xs)).all()
    assert loaded.predict_marginals(xs) == hmm.predict_marginals(xs)
    assert loaded.predict_next(xs[0]) == hmm.predict_next(xs[0])
    assert loaded.fill([None, *xs[0][1:]]) == hmm.fill([None, *xs[0][1:]])
    assert loaded.sample_with_states(5, seed=2, max_length=9) == hmm.sample_with_states(5, seed=2, max_length=9)
    assert list(loaded.labels_) == list(hmm.labels_)
    assert list(loaded.vocabulary_) == list(hmm.vocabulary_)
    assert loaded.get_params() == hmm.get_params()
    assert loaded._induced == hmm._induced
    assert loaded.known_words() == hmm.known_words()
    assert (loaded.transitions() == hmm.transitions()).all()
    report, saved = loaded.report_, hmm.report_
    assert (report.converged, report.reason, report.n_iter) == (saved.converged, saved.reason, saved.n_iter)
    assert report.value == saved.value or np.isnan([report.value, saved.value]).all()
    assert report.beam == saved.beam


def test_the_report_is_saved(tmp_path):
    hmm = HMM(3, n_restarts=2, beam="size=2").fit(WORDS, dev=WORDS[:2])
    hmm.save(tmp_path / "model")
    report = HMM.load(tmp_path / "model").report_
    assert (report.dev, report.metric, report.beam) == (hmm.report_.dev, hmm.report_.metric, hmm.report_.beam)
    assert report.details["restarts"] == hmm.report_.details["restarts"]


KINDS = ["order 1", "order 2", "labeled, symbol", "unlabeled", "unlabeled ids", "unlabeled, symbol, no end"]


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files(name, tmp_path):
    path, broken = tmp_path / "model", tmp_path / "broken"
    model(name).save(path)
    plain, weights = path / "model.json", weights_of(path)

    def damage(file, content):
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(path, broken)
        (broken / file.name).write_bytes(content) if content is not None else (broken / file.name).unlink()
        for verify in (True, False):
            with pytest.raises(DataError):
                HMM.load(broken, verify=verify)

    for file in (plain, weights):
        for content in (None, b"", file.read_bytes()[: len(file.read_bytes()) // 2]):
            damage(file, content)
    data = json.loads(plain.read_text())
    for key in ("kind", "format", "parameters", "labels", "emissions"):
        damage(plain, json.dumps({k: v for k, v in data.items() if k != key}).encode())
    damage(plain, json.dumps({**data, "kind": "crf"}).encode())
    damage(plain, json.dumps({**data, "labels": data["labels"][:-1]}).encode())
    damage(plain, json.dumps({**data, "parameters": {**data["parameters"], "color": 1}}).encode())
    with pytest.raises(DataError):
        HMM.load(tmp_path / "nowhere")


def test_a_model_with_former_parameter_names_is_an_error(tmp_path):
    model("order 1").save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    data = json.loads(file.read_text())
    data["parameters"]["method"] = data["parameters"].pop("algorithm")
    file.write_text(json.dumps(data))
    with pytest.raises(DataError, match="train again"):
        HMM.load(tmp_path / "model", verify=False)


def damaged_arrays(name):
    """Return ways to damage an array that loading should detect."""
    damaged = {"cut": lambda a: a[:-1].copy(), "missing": lambda a: None}
    if name.startswith(("chain", "emission")):
        damaged["nan"] = lambda a: np.full_like(a, np.nan)
        damaged["positive"] = lambda a: a + 1  # probabilities above 1
    if name.endswith("counts_tags"):
        damaged["out of range"] = lambda a: a + 1000
    return damaged


@pytest.mark.parametrize("name", KINDS)
def test_damaged_arrays(name, tmp_path):
    path = tmp_path / "model"
    model(name).save(path)
    arrays, passed = load_file(weights_of(path)), []
    for key, array in arrays.items():
        for how, damage in damaged_arrays(key).items():
            changed = {**arrays, key: damage(array)}
            save_file({k: v for k, v in changed.items() if v is not None}, weights_of(path))
            try:
                HMM.load(path, verify=False)
            except DataError:
                continue
            except Exception as error:
                passed.append((key, how, type(error).__name__))
            else:
                passed.append((key, how, "loaded"))
    assert passed == []


def test_only_models_are_overwritten(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(DataError):
        model("order 1").save(tmp_path)
    model("order 1").save(tmp_path / "model")
    model("order 2").save(tmp_path / "model")
    assert HMM.load(tmp_path / "model").order == 2
