"""Attribute values of any size, for every trainer of the CRF.

``python -m tests.robustness.attribute_values N SEED`` makes N fits. Each ends in a model that predicts, or in an error
of this package. Runs in a process of its own, since what it looks for is a crash.
"""

import sys
import warnings

import numpy as np

from tests.estimators import made
from trelliswork import CRF, TrellisworkError

TRAINERS = (
    {"algorithm": "perceptron"}, {"algorithm": "sgd"}, {"algorithm": "sgd", "l1": 0.1}, {"algorithm": "lbfgs"},
    {"algorithm": "lbfgs", "l1": 0.1}, {"algorithm": "perceptron", "order": 2}, {"algorithm": "sgd", "hash_bits": 6},
    {"algorithm": "perceptron", "hash_bits": 6}, {"algorithm": "lbfgs", "order": 2}, {"algorithm": "sgd", "beam": 2},
)  # fmt: skip


def attempt(trainer: dict, rng: np.random.Generator) -> str:
    """Fit a CRF to random attributes, some of them of extreme size."""
    size = 10.0 ** rng.choice([rng.uniform(-310, 308), rng.uniform(0, 40)])
    X, y = [], []
    for _ in range(int(rng.integers(1, 5))):
        n = int(rng.integers(1, 6))
        values = rng.choice([0.0, 1.0, -1.0, size, -size, 1e308], size=(n, 2), p=[0.1, 0.4, 0.1, 0.25, 0.14, 0.01])
        X.append([{f"a{rng.integers(4)}": float(v), "b": float(w)} for v, w in values])
        y.append([str(label) for label in rng.integers(3, size=n)])
    try:
        found = made(CRF, None, max_iter=3, **trainer).fit(X, y).predict(X)
    except TrellisworkError:
        return "refused"
    assert list(map(len, found)) == list(map(len, X))
    return "fitted"


if __name__ == "__main__":
    n, seed = map(int, sys.argv[1:])
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    ends = [attempt(TRAINERS[k % len(TRAINERS)], rng) for k in range(n)]
    print(f"no crash: {ends.count('fitted')} fitted, {ends.count('refused')} refused")
