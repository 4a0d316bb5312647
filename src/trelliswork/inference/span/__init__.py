"""Trees of spans: binary bracketings with a score a span (``brackets``), and dense grammars (``grammar``).

Both give log partition functions, expectations, best and random trees of arrays of log scores. A tree is a chart (n,
n): at [i, j] stands the label or symbol of the span from i to j, both ends included, and -1 where the tree has no such
span.
"""

from trelliswork.inference.span import brackets, grammar
from trelliswork.inference.span.grammar import Expected, Grammar

__all__ = ["Expected", "Grammar", "brackets", "grammar"]
