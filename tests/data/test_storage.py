"""Model directories: what is written is read, descriptions are read without weights, errors name the file."""

import json

import numpy as np
import pytest

from trelliswork.data.storage import MOMENTS, load_model, read_description, save_model
from trelliswork.errors import DataError

ARRAYS = {"weights": np.arange(6.0).reshape(2, 3), "ids": np.array([1, 2], np.int32)}


def test_load_is_the_inverse_of_save(tmp_path):
    path = tmp_path / "models" / "tagger"
    for size in (1, np.int64(2)):  # the second replaces the first
        save_model(path, "crf", {"size": size, "labels": ["é"]}, ARRAYS)
    description, arrays = load_model(path, "crf")
    assert (description["kind"], description["size"], description["labels"]) == ("crf", 2, ["é"])
    assert arrays.keys() == ARRAYS.keys()
    assert all((arrays[name] == ARRAYS[name]).all() and arrays[name].dtype == ARRAYS[name].dtype for name in ARRAYS)
    assert sorted(p.name for p in path.iterdir()) == ["model.json", "weights.safetensors"]
    assert [p.name for p in path.parent.iterdir()] == ["tagger"]


def test_both_layouts_have_their_own_files(tmp_path):
    save_model(tmp_path / "counts", "moments", {}, ARRAYS, layout=MOMENTS)
    assert sorted(p.name for p in (tmp_path / "counts").iterdir()) == ["moments.json", "moments.safetensors"]
    assert load_model(tmp_path / "counts", "moments", layout=MOMENTS)[0]["kind"] == "moments"
    with pytest.raises(DataError, match=r"not a model. Expected a directory with model.json"):
        load_model(tmp_path / "counts")
    with pytest.raises(DataError, match="not a model"):
        save_model(tmp_path / "counts", "crf", {}, ARRAYS)


def test_description_is_read_without_weights(tmp_path):
    save_model(tmp_path / "m", "crf", {"size": 3}, ARRAYS)
    (tmp_path / "m" / "weights.safetensors").unlink()
    assert read_description(tmp_path / "m")["size"] == 3
    assert read_description(tmp_path / "m", "crf")["kind"] == "crf"
    with pytest.raises(DataError, match="expected a model of kind 'hmm', got one of kind 'crf'"):
        read_description(tmp_path / "m", "hmm")
    with pytest.raises(DataError, match=r"weights\.safetensors: missing or damaged"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"model\.json: not valid JSON"),
        ("[]", "no entry 'kind'"),
        (json.dumps({"kind": "crf", "format": 999, "trelliswork": "9.9"}), "written in format 999 by trelliswork 9.9"),
    ],
)
def test_damaged_descriptions_raise(text, message, tmp_path):
    save_model(tmp_path / "m", "crf", {}, ARRAYS)
    (tmp_path / "m" / "model.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_description(tmp_path / "m")


def test_failed_save_leaves_the_old_model(tmp_path):
    save_model(tmp_path / "m", "crf", {"size": 1}, ARRAYS)
    with pytest.raises(TypeError, match="cannot be saved as JSON"):
        save_model(tmp_path / "m", "crf", {"size": object()}, ARRAYS)
    assert load_model(tmp_path / "m")[0]["size"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
