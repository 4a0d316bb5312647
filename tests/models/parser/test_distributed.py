"""Parsers in a group of processes: the trees of one process, and labels as good."""

import hashlib
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.models.parser.corpus import SMALL, treebank
from tests.processes import on_ranks
from trelliswork import DependencyParser
from trelliswork.compute.sharing import Group
from trelliswork.errors import ShapeError, ValueRangeError

HERE = "tests.models.parser.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks
CUTS = {1: [0, 60], 2: [0, 17, 60], 3: [0, 40, 40, 60]}  # uneven shards, one of them empty
X, Y = treebank("train", 60)
DEV = treebank("dev", 15)
SETTINGS = {**SMALL, "hash_bits": 14, "max_iter": 2, "max_iter_second_order": 2, "max_iter_labels": 3}


def train(group, settings, checkpoint=None, stop=""):
    cuts = CUTS[group.size]
    own = slice(cuts[group.rank], cuts[group.rank + 1])
    parser = DependencyParser(**SETTINGS, **settings)
    callback = (lambda step: step.stage == stop) if stop else None
    parser.fit(X[own], Y[own], dev=DEV, checkpoint=checkpoint, callback=callback)
    plain, arrays = parser._state()
    digest = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
    trees = [step for step in parser.report_.history if step.stage != "labels"]
    return {
        "digest": digest,
        "names": [plain["words"], plain["tags"], plain["labels"]],
        "trees": [[step.value, step.dev] for step in trees],
        "weights": [np.abs(one).sum().item() for one in parser.weights_],
        "heads": [[h for h, _ in tree] for tree in parser.predict(DEV[0])],
        "las": parser.report_.dev,
        "dropped": parser.report_.details["dropped_heads"],
    }


@pytest.mark.parametrize(("order", "tagger", "size"), [(1, None, 3), (2, None, 2), (1, "hmm", 3), (1, "crf", 2)])
def test_trees_are_those_of_one_process_and_labels_as_good(order, tagger, size):
    settings = {"order": order, "tagger": tagger}
    alone, together = train(Group(), settings), on_ranks(size, f"{HERE}:train", settings)
    assert all(result == together[0] for result in together)  # the weights too, bit for bit
    assert together == on_ranks(size, f"{HERE}:train", settings)
    for name in ("names", "heads", "dropped"):
        assert together[0][name] == alone[name]
    assert_allclose(together[0]["trees"], alone["trees"], rtol=1e-4)
    assert_allclose(together[0]["weights"], alone["weights"], rtol=1e-3)
    assert_allclose(together[0]["las"], alone["las"], atol=0.05)


@pytest.mark.parametrize("stop", ["taggers: 3 trained", "first order", "second order", "labels"])
def test_a_group_resumes_from_its_checkpoint(stop, tmp_path):
    settings, path = {"order": 2, "tagger": "hmm"}, str(tmp_path / "run.ckpt")
    on_ranks(2, f"{HERE}:train", settings, path, stop)
    assert on_ranks(2, f"{HERE}:train", settings, path) == uninterrupted()


@cache
def uninterrupted():
    return on_ranks(2, f"{HERE}:train", {"order": 2, "tagger": "hmm"})


def more_ranks_than_sentences(group):
    own = slice(0, 2) if group.rank == 1 else slice(0, 0)
    parser = DependencyParser(order=2, **SMALL).fit(X[own], Y[own])
    return parser.predict(X[:2])


def test_more_ranks_than_sentences():
    alone = DependencyParser(order=2, **SMALL).fit(X[:2], Y[:2]).predict(X[:2])
    heads = [[h for h, _ in tree] for tree in alone]
    for trees in on_ranks(3, f"{HERE}:more_ranks_than_sentences"):
        assert [[h for h, _ in tree] for tree in trees] == heads


def wrong_input(group):
    with pytest.raises(ShapeError, match="must have tags"):
        DependencyParser(**SMALL).fit([], [])
    with pytest.raises(ValueRangeError, match="at least one head"):
        DependencyParser(**SMALL).fit(X[:1], [[None] * len(X[0])])
    with pytest.raises(ShapeError, match="must have tags"):
        DependencyParser(**SMALL).fit([["dogs"]], [[0]])
    return True


def test_input_without_anything_to_learn_from_is_an_error_on_all_ranks():
    assert all(on_ranks(2, f"{HERE}:wrong_input"))
