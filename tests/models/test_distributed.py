"""Every model in a group of processes: all ranks have the same one, which is that of one process.

The cases of each family are tested in its own folder, by the slow tests.
"""

import hashlib
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.models.fitted import BUILDERS, WORDS, fitted
from tests.processes import on_ranks
from trelliswork.errors import ProcessError
from trelliswork.models import PCFG

pytestmark = pytest.mark.programs


HERE = "tests.models.test_distributed"
ALONE = ("DependencyParser", "HMMLanguageModel", "LogBilinear")  # their steps are too small to be shared


def learn(group, name):
    """Fit a model to a share of the sentences, the last rank's being small; return the sums and a digest of arrays."""
    edges = [*(rank * len(WORDS[3:]) // (group.size - 1) for rank in range(group.size)), len(WORDS)]
    with warnings.catch_warnings(action="ignore"):
        model = BUILDERS[name](slice(edges[group.rank], edges[group.rank + 1]))
    return summary(model)


def summary(model):
    _, arrays = model._state()
    digest = hashlib.sha256(b"".join(arrays[key].tobytes() for key in sorted(arrays))).hexdigest()
    sums = {key: [list(a.shape), float(np.abs(a.astype(np.float64)).sum())] for key, a in sorted(arrays.items())}
    return [sums, digest]


@pytest.mark.parametrize("name", [name for name in BUILDERS if name not in ALONE])
def test_all_ranks_have_the_model_of_one_process(name):
    (sums, digest), *others = on_ranks(2, f"{HERE}:learn", name)
    assert all(other == [sums, digest] for other in others)
    expected, _ = summary(fitted(name))
    assert {key: shape for key, (shape, _) in sums.items()} == {key: shape for key, (shape, _) in expected.items()}
    for key, (_, total) in expected.items():
        assert_allclose(sums[key][1], total, rtol=2e-3, err_msg=key)


def refused(group):
    for name in ALONE:
        with pytest.raises(ProcessError, match="takes small steps"):
            BUILDERS[name](slice(0, 20))
    with pytest.raises(ProcessError, match="takes small steps"):
        PCFG(neural=True).fit(WORDS)
    return True


def test_small_steps_are_refused():
    assert all(on_ranks(2, f"{HERE}:refused"))
