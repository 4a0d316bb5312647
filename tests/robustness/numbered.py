"""Model directories whose files all have the same number, so that mixed ones are noticed.

``python -m tests.robustness.numbered PATH FIRST`` saves one after the other until it is killed.
"""

import sys

import numpy as np

from trelliswork.data.storage import MODEL, load_model, save_model


def save(path, k, layout=MODEL):
    """Save the model with the number k."""
    arrays = {"x": np.full(100 * k + 5, k), "y": np.ones(3)}
    save_model(path, "crf", {"k": k, "labels": ["x"] * k}, arrays, layout=layout)


def number(path, layout=MODEL):
    """Return the number of a model, after checking that it is whole."""
    description, arrays = load_model(path, layout=layout)
    k = description["k"]
    assert len(description["labels"]) == k
    assert (arrays["x"] == np.full(100 * k + 5, k)).all()
    return k


if __name__ == "__main__":
    for k in range(10**9):
        save(sys.argv[1], 1 + (int(sys.argv[2]) + k) % 7)
        if k == 0:
            print("ready", flush=True)
