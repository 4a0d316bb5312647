"""Factors of a user that answer wrongly are errors that name them, never crashes or wrong numbers."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.conftest import ROOT
from tests.robustness.user_factors import Faulty
from trelliswork import FactorGraph
from trelliswork.errors import ShapeError, TrellisworkError


@pytest.mark.parametrize("n", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_wrong_answers_of_factors_crash_no_engine(n):
    command = [sys.executable, "-m", "tests.robustness.user_factors", str(n), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(f"{n} attempts")


@pytest.mark.parametrize(
    ("spoiled", "engine"),
    [("messages", "bp"), ("beliefs", "bp"), ("value", "bp"), ("table", "exact"), ("table", "trw"), ("table", "gibbs"),
     ("table", "mean_field"), ("table", "structured_mean_field"), ("messages", "max_product")],
)  # fmt: skip
@pytest.mark.parametrize("how", ["rows", "columns", "nan"])
def test_the_error_names_the_factor(spoiled, engine, how):
    factor = Faulty(2, 3, np.random.default_rng(0), spoiled, how)
    with pytest.raises(TrellisworkError, match="Faulty") as raised:
        FactorGraph([3, 3], structured=[factor], log_unary=torch.zeros(6), engine=engine).infer()
    if how != "nan":
        assert isinstance(raised.value, ShapeError)
        assert "of shape (1, 6)" in str(raised.value) or "of shape (1, 3, 3)" in str(raised.value) or spoiled == "value"
