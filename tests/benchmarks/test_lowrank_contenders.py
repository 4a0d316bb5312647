"""Contenders of the low-rank benchmark compute the same; its cases."""

import sys
from pathlib import Path

from numpy.testing import assert_allclose

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.contenders import lowrank as contenders
from benchmarks.lowrank import BENCHMARK

SMALL = {"B": 5, "T": 4, "S": 12, "R": 3, "W": 6, "seed": 2}


def test_all_contenders_agree():
    ours, dense, plain = (
        f(SMALL).call() for f in (contenders.trelliswork, contenders.dense, contenders.torch_autograd)
    )
    assert_allclose(dense.log_z, ours.log_z, rtol=1e-5)
    assert_allclose(plain.log_z, ours.log_z, rtol=1e-5)
    assert_allclose(plain.left, ours.left, rtol=1e-3)
    assert_allclose(plain.emission, ours.emission, rtol=1e-3, atol=1e-5)


def test_cases():
    assert [case.name for case in BENCHMARK.cases] == [
        "states=4096",
        "states=8192",
        "states=16384",
        "forward=16384",
        "inside",
    ]
    assert [peer.name for peer in BENCHMARK.peers] == ["dense", "torch-autograd"]
    reference = contenders.thin_reference(2, 3, 8, 4)
    assert reference.relate(2.0, 1.0) == {"gemm_fraction": 0.5}
    contenders.thin_products(reference.params).call()
