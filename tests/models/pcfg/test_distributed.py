"""Grammars in a group of processes: the grammar of one process, whatever the number of ranks and their shares."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.processes import on_ranks
from trelliswork import PCFG
from trelliswork.compute.sharing import Group

HERE = "tests.models.pcfg.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks
CASES = {
    "dense EM": {"max_iter": 6},
    "low rank, restarts": {"rank": 2, "n_restarts": 2, "probe": 2, "max_iter": 5},
    "words are symbols": {"n_preterminals": None, "max_iter": 3},
}


def text(n=18):
    rng = np.random.default_rng(5)
    return [[f"w{k}" for k in rng.integers(0, 6, rng.integers(1, 7))] for _ in range(n)]


def train(group, name, few, directory=None):
    """Train on shares of a text; with ``few``, one rank has two sentences and another the rest, others none."""
    sentences = text()
    start, stop = group.share(len(sentences))
    if few and group.size > 1:
        start, stop = [(0, 2), (2, 2), (2, len(sentences))][group.rank]
    own, options = sentences[start:stop], {"dev": sentences[5:9], "checkpoint": directory and f"{directory}/state"}
    pcfg = made(PCFG, **{"n_nonterminals": 3, "n_preterminals": 4, "tol": 0, "min_count": 2} | CASES[name])
    if directory is not None:  # as if it had been stopped
        pcfg.fit(own, callback=lambda step: group.rank == 1 and step.iteration == 2, **options)
        assert pcfg.report_.n_iter == 2
    pcfg.fit(own, **options)
    numbers = [v for step in pcfg.report_.history for v in (step.value, step.log_evidence, step.dev or 0.0)]
    arrays = {key: array.ravel().tolist() for key, array in pcfg._grammar.named().items()}
    trees = [str(tree) for tree in pcfg.predict(sentences)]
    return [list(pcfg.vocabulary_), trees, pcfg.report_.reason, numbers, arrays]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [2, 3])
def test_a_group_learns_the_grammar_of_one_process(name, size):
    alone = train(Group(), name, False)
    ranks = on_ranks(size, f"{HERE}:train", name, size == 3)
    assert all(result == ranks[0] for result in ranks)
    words, trees, reason, numbers, arrays = ranks[0]
    assert [words, trees] == alone[:2]
    assert reason.split()[:3] == alone[2].split()[:3]
    assert_allclose(numbers, alone[3], rtol=1e-9)
    for key, array in arrays.items():
        assert_allclose(np.exp(array), np.exp(alone[4][key]), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["dense EM", "low rank, restarts"])
def test_a_group_resumes_from_a_checkpoint(name, tmp_path):
    whole = on_ranks(2, f"{HERE}:train", name, False)
    assert on_ranks(2, f"{HERE}:train", name, False, str(tmp_path)) == whole  # bit for bit


def nothing(group):
    try:
        PCFG().fit([["one"]] if group.rank else [])
    except Exception as error:
        return str(error)


def test_a_group_without_sentences():
    assert [text[:27] for text in on_ranks(2, f"{HERE}:nothing")] == ["no sentences to learn from:"] * 2
