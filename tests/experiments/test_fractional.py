"""Fractional belief propagation, against that of the parser."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from experiments import fractional
from tests.inference.tree.second_order.test_second_order import kinds, random_scores, seeds, some_arcs
from trelliswork.inference.tree.second_order import infer, parts


@given(seed=seeds, kind=kinds, damping=st.sampled_from([0.0, 0.3]))
@settings(max_examples=15)
def test_the_slow_reference_sends_the_same_messages(seed, kind, damping):
    rng = np.random.default_rng(seed)
    p = parts(*some_arcs(rng, [4], 0.7))
    scores = random_scores(rng, p, part_scale=0.7)
    for max_iter in (1, 4):
        options = {"max_iter": max_iter, "damping": damping, "projective": kind[0], "single_root": kind[1]}
        want = infer(p, *scores, tolerance=0.0, **options).arcs
        # The kernels leave the first message as it is: there is nothing to damp it with.
        if damping == 0 or max_iter == 1:
            options["damping"] = 0.0
            assert_allclose(fractional.beliefs(p, *scores, **options), want, atol=1e-9)


def test_smaller_weights_give_less_extreme_beliefs_and_exact_ones_without_pairs():
    rng = np.random.default_rng(0)
    p = parts(*some_arcs(rng, [5]))
    scores = random_scores(rng, p, part_scale=1.5)

    def entropy(weight):
        q = np.clip(fractional.beliefs(p, *scores, weight=weight, max_iter=30, damping=0.3), 1e-12, 1 - 1e-12)
        return -(q * np.log(q) + (1 - q) * np.log(1 - q)).sum()

    values = [entropy(weight) for weight in (1.0, 0.7, 0.4)]
    assert values == sorted(values)
    alone = parts(*some_arcs(rng, [5]), siblings=False, grandparents=False)
    arcs = rng.normal(size=len(alone.heads))
    want = infer(alone, arcs).arcs
    assert_allclose(fractional.beliefs(alone, arcs, np.zeros(0), np.zeros(0), weight=0.5), want, atol=1e-12)
