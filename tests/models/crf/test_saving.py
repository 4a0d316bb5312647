"""Saved CRF taggers: the same model again, damaged files, and directories of others."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from safetensors.numpy import load_file, save_file

import trelliswork.models
from tests.models.crf.cases import CHUNKS, NEW, TAGS, TEMPLATES, WORDS, as_dicts, tagger
from tests.models.directories import weights_of
from trelliswork.errors import (
    DataError,
    ValueRangeError,
)
from trelliswork.features import parse_templates
from trelliswork.models import CRF


def saved(tmp_path, crf=None):
    path = tmp_path / "model"
    (tagger().fit(WORDS, TAGS) if crf is None else crf).save(path)
    return path


@pytest.mark.parametrize("load", [CRF.load, trelliswork.models.load])
@pytest.mark.parametrize("kind", ["templates", "preset", "parsed", "dicts", "bio", "min_count"])
def test_a_saved_model_is_the_same_model(tmp_path, kind, load):
    features = {"preset": "pos", "parsed": parse_templates(TEMPLATES), "dicts": None}.get(kind, TEMPLATES)
    crf = tagger(features, scheme="auto", min_count=2 if kind == "min_count" else 1)
    x, new = (as_dicts(s) if kind == "dicts" else s for s in (WORDS, NEW))
    crf.fit(x, CHUNKS if kind == "bio" else TAGS)
    again = load(saved(tmp_path, crf))
    assert type(again) is CRF
    assert_array_equal(again._learned.weights, crf._learned.weights)
    assert list(again.labels_) == list(crf.labels_)
    for sentences in (x, new):
        assert again.predict(sentences) == crf.predict(sentences)
        assert again.predict_marginals(sentences) == crf.predict_marginals(sentences)
        assert again.predict_topk(sentences, 3) == crf.predict_topk(sentences, 3)
    assert again.top_features(50) == crf.top_features(50)
    assert again.report_.value == crf.report_.value
    assert {k: v for k, v in again.get_params().items() if k != "features"} == {
        k: v for k, v in crf.get_params().items() if k != "features"
    }
    assert_array_equal(again.fit(x, CHUNKS if kind == "bio" else TAGS)._learned.weights, crf._learned.weights)


def test_a_loaded_model_can_be_saved_again(tmp_path):
    path = saved(tmp_path)
    CRF.load(path).save(tmp_path / "second")
    assert CRF.load(tmp_path / "second").predict_marginals(NEW) == CRF.load(path).predict_marginals(NEW)


@pytest.mark.parametrize("options", [{"l2": np.float32(0.5)}, {"min_count": np.int64(1)}, {"max_iter": np.int32(90)}])
def test_parameters_may_be_numbers_of_numpy(tmp_path, options):
    crf = tagger(**options).fit(WORDS, TAGS)
    again = CRF.load(saved(tmp_path, crf))
    assert again.get_params()["l2"] == pytest.approx(crf.l2)
    assert again.predict(NEW) == crf.predict(NEW)


def change_json(path, change):
    plain = json.loads((path / "model.json").read_text(encoding="utf-8"))
    change(plain)
    (path / "model.json").write_text(json.dumps(plain), encoding="utf-8")


def change_arrays(path, **changes):
    arrays = load_file(weights_of(path))
    for name, change in changes.items():
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
    save_file(arrays, weights_of(path))


def with_one(value):
    def change(array):
        array = array.copy()
        array[len(array) // 2] = value
        return array

    return change


def cut_file(file):
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


DAMAGES = {
    "no model.json": lambda path: (path / "model.json").unlink(),
    "no weights": lambda path: weights_of(path).unlink(),
    "half of model.json": lambda path: cut_file(path / "model.json"),
    "half of the weights": lambda path: cut_file(weights_of(path)),
    "empty weights": lambda path: weights_of(path).write_bytes(b""),
    "not unicode": lambda path: (path / "model.json").write_bytes(b'{"kind": "\xff"}'),
    "a list": lambda path: (path / "model.json").write_text("[]"),
    "no kind": lambda path: change_json(path, lambda plain: plain.pop("kind")),
    "wrong kind": lambda path: change_json(path, lambda plain: plain.update(kind="weather")),
    "future format": lambda path: change_json(path, lambda plain: plain.update(format=999)),
    "no labels": lambda path: change_json(path, lambda plain: plain.pop("labels")),
    "a label less": lambda path: change_json(path, lambda plain: plain["labels"].pop()),
    "unknown parameter": lambda path: change_json(path, lambda plain: plain["parameters"].update(color="red")),
    "nan": lambda path: change_arrays(path, weights=with_one(np.nan)),
    "inf": lambda path: change_arrays(path, weights=with_one(np.inf)),
    "fewer weights": lambda path: change_arrays(path, weights=lambda w: w[:-1]),
    "label out of range": lambda path: change_arrays(path, labels=with_one(100)),
    "negative label": lambda path: change_arrays(path, labels=with_one(-1)),
    "attribute out of range": lambda path: change_arrays(path, attributes=with_one(10**6)),
    "transition out of range": lambda path: change_arrays(path, **{"ngrams.2": with_one(10**6)}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused(tmp_path, damage):
    path = saved(tmp_path)
    DAMAGES[damage](path)
    for load in (CRF.load, trelliswork.models.load):
        for verify in (True, False):  # without checksums, the content itself is checked
            with pytest.raises((DataError, ValueRangeError)) as caught:
                load(path, verify=verify)
            assert len(str(caught.value)) > 20


def test_messages_about_damage_name_the_file(tmp_path):
    path = saved(tmp_path)
    cut_file(weights_of(path))
    with pytest.raises(DataError, match=r"weights-.*\.safetensors"):
        CRF.load(path)
    cut_file(path / "model.json")
    with pytest.raises(DataError, match=r"model\.json"):
        CRF.load(path)
    with pytest.raises(DataError, match="nowhere"):
        CRF.load(tmp_path / "nowhere")


def test_what_is_no_model_is_not_overwritten(tmp_path, fitted):
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="precious"):
        fitted.save(folder)
    with pytest.raises(DataError, match=r"thesis\.txt"):
        fitted.save(folder / "thesis.txt")
    assert (folder / "thesis.txt").read_text() == "years of work"
    assert [p.name for p in tmp_path.rglob("*")] == ["precious", "thesis.txt"]


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path, fitted):
    (tmp_path / "empty").mkdir()
    fitted.save(tmp_path / "empty")
    fitted.save(str(tmp_path / "a" / "b" / "model"))
    for path in (tmp_path / "empty", tmp_path / "a" / "b" / "model"):
        assert CRF.load(path).predict(NEW) == fitted.predict(NEW)
        assert sorted(path.iterdir()) == [path / "model.json", weights_of(path)]


def test_an_old_model_is_replaced(tmp_path, fitted):
    path = saved(tmp_path, tagger("U:%x[0,0]").fit([["x"]], [["Y"]]))
    fitted.save(path)
    assert CRF.load(path).predict(WORDS) == TAGS
    assert [p.name for p in tmp_path.iterdir()] == ["model"]  # nothing temporary stays


def test_a_failing_save_leaves_the_old_model(tmp_path, fitted, monkeypatch):
    path = saved(tmp_path)
    before = {p.name: p.read_bytes() for p in path.iterdir()}

    def fail(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DataError, match="no space"):
        tagger("U:%x[0,0]").fit([["x"]], [["Y"]]).save(path)
    with pytest.raises(DataError, match="no space"):
        fitted.save(tmp_path / "fresh")
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
