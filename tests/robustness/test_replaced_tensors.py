"""Tensors that change under a distribution lead to old answers, new ones, or an error; never to foreign memory."""

import subprocess
import sys

import pytest
import torch

from tests.conftest import ROOT
from trelliswork import GrammarTree, LinearChain, ProjectiveTree, SpanTree
from trelliswork.errors import TrellisworkError


@pytest.mark.parametrize("n", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_changed_tensors_crash_no_query(n):
    command = [sys.executable, "-m", "tests.robustness.replaced_tensors", str(n), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{n} attempts\n"


def test_replacing_the_storage_of_a_given_tensor_changes_no_answer():
    unary, pairwise = torch.randn(1, 5, 3), torch.randn(3, 3)
    chain = LinearChain(unary, pairwise)
    before = chain.log_partition(), chain.mode
    unary.data, pairwise.data = torch.zeros(0), pairwise.data.double()
    assert torch.equal(chain.log_partition(), before[0])
    assert torch.equal(chain.mode, before[1])


@pytest.mark.parametrize(
    ("distribution", "names"),
    [
        (LinearChain(torch.zeros(1, 4, 3), torch.zeros(3, 3)), ("log_unary", "log_pairwise")),
        (ProjectiveTree(torch.zeros(1, 4, 4)), ("log_arc",)),
        (SpanTree(torch.zeros(1, 4, 4)), ("log_span",)),
        (GrammarTree(torch.zeros(2), torch.zeros(2, 4, 4), torch.zeros(1, 3, 2)), ("log_root", "log_rules")),
    ],
)
def test_potentials_are_read_only(distribution, names):
    for name in names:
        with pytest.raises(AttributeError, match="no setter"):
            setattr(distribution, name, torch.zeros(0))


def test_nan_that_is_written_into_a_chain_is_an_error():
    chain = LinearChain(torch.zeros(1, 4, 3), torch.zeros(3, 3))
    chain.log_unary[0, 1, 2] = torch.nan
    for query in (chain.log_partition, chain.marginals, chain.argmax, chain.expectations, chain.entropy):
        with pytest.raises(TrellisworkError, match="nan"):
            query()
