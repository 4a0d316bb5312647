"""The lifted bound of the field of tags and words: above the exact value, exact for K = L = 1; its gradient."""

from itertools import pairwise, product
from math import gcd

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix

from trelliswork.models.mrf_tagger.bound import Cover, cover_bound, perron, transfer
from trelliswork.models.mrf_tagger.objective import TaggerObjective, offsets_of, tagger_moments

CASES = [(1, 1, 6), (2, 1, 7), (1, 2, 6), (1, 3, 6), (2, 2, 7), (2, 3, 6), (2, 3, 7)]


def exact(phi, psi, unary, N):
    """Return log Z / N of the circle by enumeration of all tags; words are summed one by one."""
    K, T, _ = phi.shape
    places = offsets_of(len(psi))
    total = []
    for tags in product(range(T), repeat=N):
        score = sum(phi[k, tags[i], tags[(i + k + 1) % N]] for i in range(N) for k in range(K))
        for j in range(N):
            score += np.logaddexp.reduce(unary + sum(psi[m, tags[(j - place) % N]] for m, place in enumerate(places)))
        total.append(score)
    return np.logaddexp.reduce(total) / N


def random_case(rng, K, L, scale, T=3, C=4):
    phi, psi = scale * rng.normal(size=(K, T, T)), scale * rng.normal(size=(L, T, C))
    cover = Cover(rng.normal(size=(K, L)) / 2, rng.normal(size=(K, L, T)), rng.normal(size=(K, L, C)))
    return phi, psi, scale * rng.normal(size=C), cover


def finite(phi, psi, unary, cover, N):
    """Return the bound at finite N: traces instead of Perron roots."""
    rho = cover.weights()
    a = cover.tags - np.einsum("lm,lmt->t", rho, cover.tags)
    b = cover.words - np.einsum("lm,lmw->w", rho, cover.words) + unary
    total = 0.0
    for i, m in np.ndindex(*rho.shape):
        part = transfer(phi[i] / rho[i].sum(), psi[m] / rho[:, m].sum(), a[i, m], b[i, m])
        g = gcd(N, i + 1)
        power = np.linalg.matrix_power(part[0], N // g)
        total += rho[i, m] * (g * np.log(np.trace(power)) / N + part[1])
    return total


@pytest.mark.parametrize(("K", "L", "N"), CASES)
@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0])
def test_the_bound_is_above_the_exact_value(K, L, N, scale):
    rng = np.random.default_rng([K, L, N])
    phi, psi, unary, cover = random_case(rng, K, L, scale)
    want = exact(phi, psi, unary, N)
    for some in (cover, Cover(np.zeros((K, L)), np.zeros((K, L, 3)), np.zeros((K, L, 4)))):
        at_n = finite(phi, psi, unary, some, N)
        value = cover_bound(phi, psi, unary, some).value
        slack = sum(w * gcd(N, i + 1) for (i, _), w in np.ndenumerate(some.weights())) * np.log(3) / N
        assert want - 1e-12 <= at_n <= value + slack + 1e-9
        if K == L == 1:
            assert_allclose(at_n, want, rtol=1e-12)


@pytest.mark.parametrize(("K", "L", "N"), CASES)
def test_the_gradient(K, L, N):
    phi, psi, unary, cover = random_case(np.random.default_rng([N, K, L]), K, L, 1.0)
    arrays = [phi, psi, unary, cover.log_weights, cover.tags, cover.words]
    found = cover_bound(phi, psi, unary, cover)
    slope = found.cover
    got = [found.tag_pairs, found.tag_words, found.words, slope.log_weights, slope.tags, slope.words]
    rng = np.random.default_rng(0)
    for k, array in enumerate(arrays):
        direction = rng.normal(size=array.shape)
        values = []
        for step in (1e-5, -1e-5):
            moved = [a + step * direction if j == k else a for j, a in enumerate(arrays)]
            values.append(cover_bound(*moved[:3], Cover(*moved[3:])).value)
        assert_allclose((values[0] - values[1]) / 2e-5, (got[k] * direction).sum(), rtol=1e-6, atol=1e-8)


def test_the_perron_vectors():
    matrix = np.exp(np.random.default_rng(0).normal(size=(5, 5)))
    root, left, right = perron(matrix)
    assert_allclose(matrix @ right, root * right, rtol=1e-10)
    assert_allclose(left @ matrix, root * left, rtol=1e-10)


def corpus(rng, T, C, n=8):
    lengths = rng.integers(1, 5, n)
    return rng.integers(1, C, lengths.sum()), rng.integers(0, T - 1, lengths.sum()), np.cumsum([0, *lengths])


@pytest.mark.parametrize(("K", "L"), [(1, 1), (2, 1), (1, 3), (2, 3)])
def test_moments_equal_counts_on_the_circle(K, L):
    words, tags, ends = corpus(np.random.default_rng(0), 3, 5)
    found = tagger_moments(words, tags, ends, K, L, 3, 5)
    pads = max(K, L // 2)
    ring = []
    for a, b in pairwise(ends):
        ring += [(2, 0)] * pads + list(zip(tags[a:b].tolist(), words[a:b].tolist(), strict=True))
    N = len(ring)
    assert found.n_positions == N
    for k in range(1, K + 1):
        want = np.zeros((3, 3))
        for i in range(N):
            want[ring[i][0], ring[(i + k) % N][0]] += 1
        assert np.array_equal(found.tag_pairs[k - 1], want)
    for m, place in enumerate(offsets_of(L)):
        want = np.zeros((3, 5))
        for i in range(N):
            want[ring[i][0], ring[(i + place) % N][1]] += 1
        assert np.array_equal(found.tag_words[m].toarray(), want)


@pytest.mark.parametrize(("K", "L"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_the_objective(K, L):
    """Gradient by differences; value from the bound and the score of the corpus; only counts matter."""
    rng = np.random.default_rng(1)
    T, C, F = 3, 5, 6
    words, tags, ends = corpus(rng, T, C, n=2)
    moments = tagger_moments(words, tags, ends, K, L, T, C)
    features = [csr_matrix(rng.integers(0, 2, (C, F)).astype(float)) for _ in range(L)]
    objective = TaggerObjective(moments, features, l2=0.35)
    x = rng.normal(size=objective.layout.size) / 2
    value, gradient = objective(x)
    for direction in rng.normal(size=(5, len(x))):
        numeric = (objective(x + 1e-5 * direction).value - objective(x - 1e-5 * direction).value) / 2e-5
        assert_allclose(gradient @ direction, numeric, rtol=1e-6)
    phi, psi = objective.potentials(x)
    N, n = moments.n_positions, objective.layout.n_weights
    if N <= 10:
        score = (moments.tag_pairs * phi).sum() + sum(
            (m.toarray() * p).sum() for m, p in zip(moments.tag_words, psi, strict=True)
        )
        unary = objective.layout.unary(x)
        score += moments.tag_words[0].toarray().sum(axis=0) @ unary
        bound = finite(phi, psi, unary, objective.layout.cover(x), N)
        assert bound >= exact(phi, psi, unary, N) - 1e-12
        loss = N * cover_bound(phi, psi, unary, objective.layout.cover(x)).value - score + 0.35 * x[:n] @ x[:n]
        assert_allclose(value, loss, rtol=1e-10)
    assert (objective.scales() > 0).all()
    twice = np.concatenate([ends[:-1], ends + ends[-1]])
    doubled = tagger_moments(np.tile(words, 2), np.tile(tags, 2), twice, K, L, T, C)
    value_2, gradient_2 = TaggerObjective(doubled, features, l2=0.7)(x)
    assert_allclose(value_2, 2 * value, rtol=1e-12)
    assert_allclose(gradient_2, 2 * gradient, rtol=1e-9, atol=1e-9)


def test_offsets_are_the_nearest():
    assert offsets_of(5) == [0, -1, 1, -2, 2]
