"""Datasets of Hugging Face to sentences and back."""

import pytest

datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install 'trelliswork[hf]'")

from trelliswork.errors import DataError  # noqa: E402
from trelliswork.integrations.datasets import from_dataset, to_dataset  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # its import takes seconds, and warns
X, Y = [["EU", "rejects", "calls"], ["Peter"]], [["B-ORG", "O", "O"], ["B-PER"]]


def test_there_and_back(tmp_path):
    dataset = to_dataset(X, Y, labels="ner_tags")
    assert dataset[0] == {"tokens": X[0], "ner_tags": [1, 0, 0]}
    inner = dataset.features["ner_tags"]
    assert getattr(inner, "feature", inner).names == ["O", "B-ORG", "B-PER"]
    assert from_dataset(dataset, labels="ner_tags") == (X, Y)
    assert from_dataset(dataset) == (X, None)
    dataset.save_to_disk(tmp_path / "data")
    assert from_dataset(datasets.load_from_disk(tmp_path / "data"), labels="ner_tags") == (X, Y)
    both = [[("EU", "B-ORG"), ("rejects", "O"), ("calls", "O")], [("Peter", "B-PER")]]
    assert from_dataset(dataset, ["tokens", "ner_tags"])[0] == both


def test_names_and_unknown_labels():
    names = ["B-PER", "B-ORG", "O"]
    assert to_dataset(X, Y, names=names)[1]["labels"] == [0]
    with pytest.raises(DataError, match="'B-ORG' is missing"):
        to_dataset(X, Y, names=["O", "B-PER"])
    unknown = to_dataset(X, [[None, "O", "O"], ["B-PER"]])
    assert unknown[0]["labels"] == [-100, 0, 0]
    strings = datasets.Dataset.from_dict({"words": X, "tags": Y})
    assert from_dataset(strings, "words", "tags") == (X, Y)
    with pytest.raises(DataError, match="no column 'tokens'; it has words, tags"):
        from_dataset(strings)
