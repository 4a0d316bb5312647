"""A few random problems of every structure, seeded; ``make fuzz`` solves thousands."""

import numpy as np
import pytest

from tests.inference.differential import DiscrepancyError, Tally, run, table
from tests.inference.structures import STRUCTURES

QUICK, LONG = 12, 250  # problems per structure


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_match_enumeration(name):
    (tally,) = run({name: STRUCTURES[name]}, QUICK, seed=1)
    assert tally.failures == []
    assert tally.n_problems == QUICK
    assert "enumeration" in tally.worst


@pytest.mark.slow  # minutes
@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_match_enumeration_on_many_problems(name):
    (tally,) = run({name: STRUCTURES[name]}, LONG, seed=2)
    assert tally.failures == []


def test_differences_are_found():
    tally = Tally("x")
    tally.same("enumeration", "value", [1.0, -np.inf], [1.0 + 1e-13, -np.inf], 0)
    for bad in ([1.001, 0.0], [np.nan, 0.0], [-np.inf, 0.0], [1.0]):
        with pytest.raises(DiscrepancyError, match="value"):
            tally.same("enumeration", "value", bad, [1.0, 0.0], 1)
    tally.at_most("bound", [1.0], [2.0], 0)
    with pytest.raises(DiscrepancyError, match="bound"):
        tally.at_most("bound", [2.0], [1.0], 0)

    def wrong(rng, tally):
        raise DiscrepancyError("always")

    tallies = run({"x": wrong, "y": lambda rng, tally: None}, 5)
    assert [(t.n_problems, len(t.failures)) for t in tallies] == [(3, 3), (2, 0)]
    assert table(tallies).splitlines()[-1].split()[:2] == ["all", "5"]
