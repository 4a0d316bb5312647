"""Model directories: what is written is read, nothing else is deleted, errors name the file."""

import json
import os
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.models.directories import weights_of
from trelliswork.data import storage
from trelliswork.data.storage import MOMENTS, check_target, load_model, read_description, save_model
from trelliswork.errors import DataError

ARRAYS = {"weights": np.arange(6.0).reshape(2, 3), "ids": np.array([1, 2], np.int32)}
OTHER = {"weights": np.ones((1, 3)), "ids": np.array([3], np.int32)}


def content(path):
    """Return the files of a directory by name."""
    return {p.name: p.read_bytes() for p in path.iterdir()}


def test_load_is_the_inverse_of_save(tmp_path):
    path = tmp_path / "models" / "tagger"
    for size in (1, np.int64(2)):  # the second replaces the first
        save_model(path, "crf", {"size": size, "labels": ["é"]}, ARRAYS)
    description, arrays = load_model(path, "crf")
    assert (description["kind"], description["size"], description["labels"]) == ("crf", 2, ["é"])
    assert arrays.keys() == ARRAYS.keys()
    assert all((arrays[name] == ARRAYS[name]).all() and arrays[name].dtype == ARRAYS[name].dtype for name in ARRAYS)
    assert sorted(path.iterdir()) == [path / "model.json", weights_of(path)]
    assert [p.name for p in path.parent.iterdir()] == ["tagger"]


def test_mapped_arrays_outlive_the_file_and_changes_are_private(tmp_path):
    save_model(tmp_path / "m", "crf", {}, ARRAYS)
    _, arrays = load_model(tmp_path / "m", mapped=True)
    arrays["weights"][0, 0] = 7  # not written to the file
    assert (load_model(tmp_path / "m", mapped=True)[1]["weights"] == ARRAYS["weights"]).all()
    save_model(tmp_path / "m", "crf", {}, OTHER)
    assert (arrays["ids"] == ARRAYS["ids"]).all()


def test_damaged_files_that_are_mapped(tmp_path):
    save_model(tmp_path / "m", "crf", {}, ARRAYS)
    file = weights_of(tmp_path / "m")
    whole = file.read_bytes()
    for damaged in (b"", whole[:20], whole[:-8], b"\xff" * 100, whole.replace(b"F64", b"Q64"), whole[:8] + b"x" * 99):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            load_model(tmp_path / "m", verify=False, mapped=True)
        with pytest.raises(DataError, match="damaged"):
            load_model(tmp_path / "m", mapped=True)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ">f8"])
def test_arrays_of_all_types_and_shapes(dtype, tmp_path):
    """The files are those of the safetensors library, to the byte."""
    table = np.arange(24).reshape(2, 3, 4).astype(dtype)
    arrays = {"a": table, "b": table.T, "single": np.array(1).astype(dtype), "none": np.empty((0, 3), dtype)}
    arrays["small"] = np.array([True])
    save_model(tmp_path / "m", "crf", {}, arrays)
    for mapped in (True, False):
        _, again = load_model(tmp_path / "m", mapped=mapped)
        for name, array in arrays.items():
            np.testing.assert_array_equal(again[name], array)
            assert again[name].dtype == array.dtype.newbyteorder("=")
            assert again[name].flags.c_contiguous
            assert again[name].flags.aligned
    if dtype[0] != ">":
        save_file({name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}, tmp_path / "library")
        assert load_file(tmp_path / "library").keys() == again.keys()
        assert (tmp_path / "library").stat().st_size == weights_of(tmp_path / "m").stat().st_size


def test_both_layouts_have_their_own_files(tmp_path):
    save_model(tmp_path / "counts", "moments", {}, ARRAYS, layout=MOMENTS)
    first, second = sorted(p.name for p in (tmp_path / "counts").iterdir())
    assert first.startswith("moments-")
    assert second == "moments.json"
    assert load_model(tmp_path / "counts", "moments", layout=MOMENTS)[0]["kind"] == "moments"
    with pytest.raises(DataError, match=r"not a model. Expected a directory with model.json"):
        load_model(tmp_path / "counts")
    with pytest.raises(DataError, match="not a model"):
        save_model(tmp_path / "counts", "crf", {}, ARRAYS)


def test_description_is_read_without_weights(tmp_path):
    save_model(tmp_path / "m", "crf", {"size": 3}, ARRAYS)
    weights_of(tmp_path / "m").unlink()
    assert read_description(tmp_path / "m")["size"] == 3
    assert read_description(tmp_path / "m", "crf")["kind"] == "crf"
    with pytest.raises(DataError, match="expected a model of kind 'hmm', got one of kind 'crf'"):
        read_description(tmp_path / "m", "hmm")
    for verify in (True, False):
        with pytest.raises(DataError, match=r"weights-.*\.safetensors: missing"):
            load_model(tmp_path / "m", verify=verify)


OURS = {"kind": "crf", "trelliswork": "9.9"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"model\.json: not valid JSON"),
        ("[]", "no entry 'kind'"),
        (json.dumps({"kind": ["crf"]}), "no entry 'kind'"),
        (json.dumps({"kind": "crf", "format": 1}), "no entry 'trelliswork'"),
        (json.dumps(OURS | {"format": 999}), "written in format 999 by trelliswork 9.9"),
        (json.dumps(OURS | {"format": 1}), "checksum is wrong"),
        ('{"kind": ' + 2000 * "[" + 2000 * "]" + "}", "no entry 'kind'|not valid JSON"),
        ('{"kind": ' + 200_000 * "[", "not valid JSON"),
        ('{"kind": ' + 5000 * "1" + "}", "not valid JSON"),
    ],
)
def test_damaged_descriptions_raise(text, message, tmp_path):
    save_model(tmp_path / "m", "crf", {}, ARRAYS)
    (tmp_path / "m" / "model.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_description(tmp_path / "m")
    with pytest.raises(DataError, match="not replaced"):
        save_model(tmp_path / "m", "crf", {}, ARRAYS)


@pytest.mark.parametrize(
    "files",
    [None, {}, [], {"../weights.safetensors": {"checksum": ""}}, {"weights-0123456789abcdef.safetensors": {}}],
)
def test_a_description_must_name_a_file_of_its_directory(files, tmp_path):
    save_model(tmp_path / "m", "crf", {}, ARRAYS)
    text = json.dumps(OURS | {"format": 1, "files": files})
    (tmp_path / "m" / "model.json").write_text(text)
    with pytest.raises(DataError, match="names no file of arrays"):
        load_model(tmp_path / "m", verify=False)


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "m"
    save_model(path, "crf", {"labels": ["é", "checksum"], "x": 0.25}, ARRAYS)
    for name, data in content(path).items():
        for bit in range(0, 8 * len(data), 7):  # all bits of a byte, in turn
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            (path / name).write_bytes(flipped)
            with pytest.raises(DataError):
                load_model(path)
        (path / name).write_bytes(data)
    load_model(path)


def test_an_edited_description_loads_without_verification(tmp_path):
    save_model(tmp_path / "m", "crf", {"size": 1}, ARRAYS)
    file = tmp_path / "m" / "model.json"
    file.write_text(file.read_text().replace('"size": 1', '"size": 2'))
    with pytest.raises(DataError, match=r"model\.json: damaged or edited.*verify=False"):
        load_model(tmp_path / "m")
    assert load_model(tmp_path / "m", verify=False)[0]["size"] == 2


def test_failed_save_leaves_the_old_model(tmp_path):
    save_model(tmp_path / "m", "crf", {"size": 1}, ARRAYS)
    with pytest.raises(TypeError, match="cannot be saved as JSON"):
        save_model(tmp_path / "m", "crf", {"size": object()}, ARRAYS)
    assert load_model(tmp_path / "m")[0]["size"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_follow_the_umask(umask, tmp_path):
    before = os.umask(umask)
    try:
        save_model(tmp_path / "m", "crf", {}, ARRAYS)
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "m").iterdir()} == {0o666 & ~umask}


@pytest.mark.parametrize("name", ["notes.txt", "weights.safetensors", "weights-0123.safetensors", "folder/"])
@pytest.mark.parametrize("with_model", [False, True])
def test_directories_with_other_files_are_refused(name, with_model, tmp_path):
    path = tmp_path / "m"
    path.mkdir()
    if with_model:
        save_model(path, "crf", {}, ARRAYS)
    (path / name).mkdir() if name.endswith("/") else (path / name).write_text("years of work")
    for act in (lambda: save_model(path, "crf", {}, OTHER), lambda: check_target(path)):
        with pytest.raises(DataError, match=f"it contains '{name.rstrip('/')}'"):
            act()
    assert name.endswith("/") or (path / name).read_text() == "years of work"
    if with_model:
        assert (load_model(path)[1]["weights"] == ARRAYS["weights"]).all()


@pytest.mark.parametrize("text", ['{"name": "page"}', '{"kind": "a", "format": 2}', "not json", ""])
def test_a_model_json_of_somebody_else_is_kept(text, tmp_path):
    (tmp_path / "model.json").write_text(text)
    for act in (lambda: save_model(tmp_path, "crf", {}, ARRAYS), lambda: check_target(tmp_path)):
        with pytest.raises(DataError, match="not replaced"):
            act()
    assert content(tmp_path) == {"model.json": text.encode()}


def test_names_of_directories(tmp_path, monkeypatch):
    """The current directory, symbolic links, a trailing slash, missing parents, files, an empty name."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "new" / "target")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("text")
    for name in (".", "../link", "../dangling", f"{tmp_path}/slash/", "a/b/c"):
        for k in range(2):
            if name != "." or k == 0:  # "." has "a" then
                check_target(name)
                save_model(name, "crf", {"k": k}, ARRAYS)
                assert load_model(name)[0]["k"] == k
        if name == ".":
            for one in (tmp_path / "here").iterdir():
                one.unlink()
    assert (tmp_path / "link").is_symlink()
    assert len(content(tmp_path / "target")) == len(content(tmp_path / "new" / "target")) == 2
    for name, message in (
        ("../file", "got a file"),
        ("../file/below", "is not a directory|Not a directory"),
        ("../loop", "symbolic link|File exists|got a file"),
        ("", "empty name"),
    ):
        for act in (lambda name=name: check_target(name), lambda name=name: save_model(name, "crf", {}, ARRAYS)):
            with pytest.raises(DataError, match=message):
                act()
    assert (tmp_path / "file").read_text() == "text"


def test_a_target_is_checked_for_permission_and_space(tmp_path, monkeypatch):
    save_model(tmp_path / "m", "crf", {}, ARRAYS)
    check_target(tmp_path / "m")
    check_target(tmp_path / "new" / "m")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr("os.access", lambda *args: False)
    with pytest.raises(DataError, match="no permission to write to"):
        check_target(tmp_path / "new" / "m")
    monkeypatch.undo()
    monkeypatch.setattr("shutil.disk_usage", lambda path: _Usage())
    with pytest.raises(DataError, match="the disk has 1,000 bytes left, about 1,048,576 are needed"):
        check_target(tmp_path / "m")


class _Usage:
    free = 1000


def test_leftovers_of_killed_saves_are_removed(tmp_path):
    path = tmp_path / "m"
    save_model(path, "crf", {}, ARRAYS)
    leftovers = (
        "weights-0123456789abcdef.safetensors",
        ".weights-0123456789abcdef.safetensors.01234567.tmp",
        ".model.json.89abcdef.tmp",
    )
    for name in leftovers:
        (path / name).touch()
    check_target(path)
    save_model(path, "crf", {}, OTHER)
    assert sorted(path.iterdir()) == [path / "model.json", weights_of(path)]


def test_writers_wait_for_each_other(tmp_path):
    save_model(tmp_path / "m", "crf", {}, ARRAYS)
    writer = threading.Thread(target=save_model, args=(tmp_path / "m", "crf", {}, OTHER))
    with storage._locked(tmp_path / "m"):
        writer.start()
        writer.join(0.1)
        assert writer.is_alive()
        assert load_model(tmp_path / "m")[1]["ids"].tolist() == [1, 2]
    writer.join(60)
    assert load_model(tmp_path / "m")[1]["ids"].tolist() == [3]
