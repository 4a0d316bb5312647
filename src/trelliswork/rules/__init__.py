"""Rules about whole sentences: exact answers under constraints, and the probability that they hold.

A rule is a value that compiles to a finite automaton over labels or words. The product of a chain and an automaton is a
chain over pairs of label and state, so that every query of chains is exact under rules.

>>> from trelliswork.rules import AtMostOnce, Before
>>> rule = AtMostOnce("Zip") & Before("Street", "City")
>>> rule.holds(["Street", "Street", "City", "Zip"]), rule.holds(["City", "Street"])
(True, False)
"""

from trelliswork.rules.text import parse, read
from trelliswork.rules.values import AtMostOnce, Before, Count, Exactly, Forbidden, IsSpan, Length, Pattern, Rule

__all__ = [
    "AtMostOnce", "Before", "Count", "Exactly", "Forbidden", "IsSpan", "Length", "Pattern", "Rule", "parse", "read",
]  # fmt: skip
