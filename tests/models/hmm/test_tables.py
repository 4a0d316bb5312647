"""Tables of emissions and normalized counts, which kernels transpose in whole vectors of symbols."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.models.hmm.sequences import sequences_of
from trelliswork.models.hmm.data import Counts
from trelliswork.models.hmm.objective import HMMParameters, expected_counts
from trelliswork.models.hmm.updates import Priors, maximize, random_parameters


@pytest.mark.parametrize("n_symbols", [7, 8, 16, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_emissions_of_any_number_of_symbols(dtype, n_symbols):
    """One symbol per sequence: the evidence is a sum over states, and the counts are its shares."""
    S, rng = 5, np.random.default_rng(0)
    p = random_parameters(S, n_symbols, seed=1)
    log_emission = p.log_emission * rng.choice([1.0, 40.0], (S, n_symbols))  # some underflow in float32
    log_emission[2, 1::3] = -np.inf
    log_emission[:, 3] -= 500.0
    p = HMMParameters(p.log_start, p.log_transition, None, log_emission)
    counts = expected_counts(p, sequences_of([[v] for v in range(n_symbols)]), dtype=dtype)
    log_joint = p.log_start[:, None] + log_emission
    log_z = np.logaddexp.reduce(log_joint, axis=0)
    rtol = 1e-5 if dtype == np.float32 else 1e-12
    assert_allclose(counts.log_evidence, log_z, rtol=rtol)
    assert_allclose(counts.emission, np.exp(log_joint - log_z), rtol=rtol, atol=1e-30)


@pytest.mark.parametrize("n_symbols", [1, 8, 13])
def test_normalized_counts_of_any_number_of_symbols(n_symbols):
    rng = np.random.default_rng(0)
    old, counts = random_parameters(4, n_symbols, seed=2), Counts.zeros(4, n_symbols, 0)
    counts.by_symbol[:] = rng.random((n_symbols, 4))
    counts.by_symbol[:, 1] = 0  # a state that did not occur keeps its probabilities
    new = maximize(counts, Priors(), old)
    assert_array_equal(new.log_emission[1], old.log_emission[1])
    want = counts.emission / np.where(counts.emission.sum(axis=1) > 0, counts.emission.sum(axis=1), 1)[:, None]
    assert_allclose(np.exp(new.log_emission[[0, 2, 3]]), want[[0, 2, 3]], rtol=1e-12)
