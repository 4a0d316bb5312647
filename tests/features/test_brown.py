"""Brown clusters: exchange and merging against brute force, and files."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.commands import run
from trelliswork import BrownClusters
from trelliswork.compute.threads import num_threads
from trelliswork.data.tokenize import raw_sentences
from trelliswork.errors import DataError, NotFittedError, ValueRangeError
from trelliswork.features.brown import (
    _text,
    bigrams,
    bit_strings,
    brown_clusters,
    exchange,
    merges,
    xlogx_table,
)
from trelliswork.features.brown import objective as clustering_objective
from trelliswork.features.kernels import brown as kernels


def text(seed, n_words=9, n_sentences=25):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, n_sentences)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return rng.choice(n_words, offsets[-1], p=rng.dirichlet(np.ones(n_words))), offsets


def f(n):
    return n * np.log(np.maximum(n, 1))


def objective(counts, groups):
    """Equation 1 for clusters given as lists of words."""
    n = np.array([[counts[np.ix_(a, b)].sum() for b in groups] for a in groups])
    return f(n).sum() - f(n.sum(axis=0)).sum() - f(n.sum(axis=1)).sum()


def clustered(seed, n_clusters, **options):
    words, offsets = text(seed)
    counts = bigrams(words, offsets, 9)
    occurs = np.bincount(words, minlength=9)
    order = np.array([w for w in np.argsort(-occurs, kind="stable") if occurs[w] and w not in options.get("fixed", ())])
    return counts, order, exchange(counts, order, n_clusters, **options)


def mutual_information(words, offsets, clusters):
    """Return the mutual information of neighboring clusters in nats, which the clustering maximizes."""
    n = bigrams(clusters[words], offsets, int(clusters.max()) + 1).toarray()
    p, rest = n / n.sum(), np.outer(n.sum(axis=1), n.sum(axis=0)) / n.sum() ** 2
    return (p[p > 0] * np.log(p[p > 0] / rest[p > 0])).sum()


def groups_of(state):
    return [np.flatnonzero(state.of_word == c).tolist() for c in range(len(state.left))]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fixed", [(), (0, 3)])
def test_no_single_move_improves_the_clusters(seed, fixed):
    counts, order, state = clustered(seed, 3, max_iter=50, fixed=fixed)
    full, groups = counts.toarray(), groups_of(state)
    best = objective(full, groups)
    assert_allclose(clustering_objective(state), best, rtol=1e-12)
    for w in order.tolist():
        a = state.of_word[w]
        for c in range(3):
            if c != a and len(groups[a]) > 1:
                other = [[x for x in group if x != w] + ([w] if k == c else []) for k, group in enumerate(groups)]
                assert objective(full, other) < best + 1e-5


@pytest.mark.parametrize("seed", range(12))
def test_the_chosen_cluster_is_the_best(seed):
    """With many clusters and few pairs, most candidates are not neighbors of the word."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 40, 60 + 20 * seed)
    counts = bigrams(words, np.array([0, 50, len(words)]), 40)
    order = np.unique(words)
    now = exchange(counts, order, 10, max_iter=0)
    best, full = np.empty(len(order), np.int64), counts.toarray()
    kernels.choose(0, len(order), order, _text(counts), now, 10, xlogx_table(counts), best)
    for w, chosen in zip(order.tolist(), best.tolist(), strict=True):
        values = []
        for c in range(10):
            one_hot = np.zeros((40, 10))
            one_hot[order, now.of_word[order]] = 1
            one_hot[w] = 0
            one_hot[w, c] = 1
            n = one_hot.T @ full @ one_hot
            values.append(f(n).sum() - f(n.sum(axis=0)).sum() - f(n.sum(axis=1)).sum())
        assert values[chosen] == pytest.approx(max(values), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_counts_follow_the_moves(seed):
    counts, _, state = clustered(seed, 4)
    groups, full = groups_of(state), counts.toarray()
    expected = [[full[np.ix_(a, b)].sum() for b in groups] for a in groups]
    assert (state.counts == expected).all()
    assert (state.transposed == state.counts.T).all()
    assert (state.left == state.counts.sum(axis=1)).all()
    assert (state.right == state.counts.sum(axis=0)).all()
    assert state.sizes.tolist() == [len(group) for group in groups]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fixed", [(), (2,)])
def test_merges_equal_brute_force(seed, fixed):
    counts, order, state = clustered(seed, 6, fixed=fixed)
    C, full = min(6, len(order)), counts.toarray()
    groups = dict(enumerate(groups_of(state)))
    for s, t in merges(state, C, xlogx_table(counts)):
        values = {}
        for a, b in combinations([c for c in groups if c < C], 2):
            rest = [group for c, group in groups.items() if c not in (a, b)]
            values[a, b] = objective(full, [*rest, groups[a] + groups[b]])
        assert values[s, t] == pytest.approx(max(values.values()), abs=1e-8)
        groups[s] += groups.pop(t)
    assert len(groups) == 1 + len(fixed)


def test_insertion_and_blocks_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    words = rng.zipf(1.3, 30_000) % 2000
    results = []
    for n in (1, 3):
        with num_threads(n):
            results.append(brown_clusters(words, np.array([0, len(words)]), 2000, 40))
    assert (results[0] == results[1]).all()
    random = rng.integers(0, 40, 2000)
    assert mutual_information(words, np.array([0, len(words)]), results[0]) > 1.5 * mutual_information(
        words, np.array([0, len(words)]), random
    )


@given(st.integers(0, 500), st.integers(1, 12))
def test_every_word_has_one_cluster(seed, n_clusters):
    words, offsets = text(seed)
    clusters = brown_clusters(words, offsets, 9, n_clusters)
    assert clusters.shape == (9,)
    assert clusters.min() >= 0
    assert clusters.max() < n_clusters
    own = np.arange(9)
    assert mutual_information(words, offsets, clusters) <= mutual_information(words, offsets, own) + 1e-12
    if n_clusters >= len(np.unique(words)):
        assert len(set(clusters[np.unique(words)])) == len(np.unique(words))


def test_bit_strings_are_a_prefix_code():
    paths = bit_strings([(0, 3), (1, 2), (0, 1)], 4)
    assert paths == ["00", "10", "11", "01"]
    assert bit_strings([], 1) == ["0"]


SENTENCES = [line.split() for line in ("the cat sleeps", "the dog sleeps", "a cat barks", "a dog barks")]


def test_fit_save_and_load(tmp_path):
    fitted = BrownClusters(3).fit(SENTENCES)
    cat, dog, other = map(fitted.path, ("cat", "Dog", "horse"))
    assert cat == dog != ""
    assert other == ""
    fitted.save(tmp_path / "clusters.txt")
    assert f"{cat}\tcat\t2\n" in (tmp_path / "clusters.txt").read_text()
    assert BrownClusters.read(tmp_path / "clusters.txt") == fitted


def test_default_number_of_clusters():
    text = [[f"w{k}", f"w{k + 1}"] for k in range(49)]
    assert len(set(BrownClusters().fit(text).paths_.values())) == 5
    assert len(set(BrownClusters(7).fit(text).paths_.values())) == 7
    assert len(set(BrownClusters().fit(text[:8]).paths_.values())) == 1


def test_files_of_other_programs(tmp_path):
    path = tmp_path / "paths"
    path.write_text("0\tthe\n10\tdog\n11\t1\n")
    assert BrownClusters.read(path).paths_ == {"the": "0", "dog": "10", "1": "11"}
    path.write_text("0 the 2\n10 dog 1\n")
    assert BrownClusters.read(path).counts_ == {"the": 2, "dog": 1}


@pytest.mark.parametrize("content", ["", "the\n", "0\tthe\tmany\n", "x\tthe\t3\n", "the\t1\na\tb\n"])
def test_damaged_files(tmp_path, content):
    (tmp_path / "paths").write_text(content)
    with pytest.raises(DataError, match="paths"):
        BrownClusters.read(tmp_path / "paths")


def test_errors():
    with pytest.raises(ValueRangeError, match="n_clusters"):
        brown_clusters(np.array([0]), np.array([0, 1]), 1, 0)
    with pytest.raises(NotFittedError):
        BrownClusters(3).path("a")


def test_command(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(map(" ".join, SENTENCES)))
    done = run("cluster", tmp_path / "text.txt", "--n-clusters", 3, "--out", tmp_path / "out.txt", "--json")
    assert done.returncode == 0, done.stderr
    assert '"words": 6' in done.stdout
    assert BrownClusters.read(tmp_path / "out.txt") == BrownClusters(3).fit(SENTENCES)
    (tmp_path / "raw.txt").write_text("The cat doesn't\nsleep. It's (not) 3,000 km!\n\nHe said: 'Go.' Yes")
    done = run("cluster", tmp_path / "raw.txt", "--tokenize", "--n-clusters", 3, "--out", tmp_path / "raw-out.txt")
    assert done.returncode == 0, done.stderr
    assert "n't" in BrownClusters.read(tmp_path / "raw-out.txt").paths_
    assert run("cluster", tmp_path / "none.txt", "--out", tmp_path / "o").returncode == 1
    assert run("cluster", tmp_path / "text.txt", "--out", tmp_path).returncode == 1


def test_running_text(tmp_path):
    (tmp_path / "raw.txt").write_text("The cat doesn't\nsleep. It's (not) 3,000 km!\n\nHe said: 'Go.' Yes")
    assert [" ".join(s) for s in raw_sentences([tmp_path / "raw.txt"])] == [
        "The cat does n't sleep .",
        "It 's ( not ) 3,000 km !",
        "He said : ' Go . '",
        "Yes",
    ]
