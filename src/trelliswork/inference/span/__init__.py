"""Trees of spans: binary bracketings (``brackets``), dense grammars (``grammar``) and low-rank grammars (``lowrank``).

Each module has the passes of one structure: log partition functions, expectations, best and random trees from arrays of
log scores. A tree is a chart (n, n): entry [i, j] is the label or symbol of the span from i to j, both ends included,
and -1 where the tree has no such span.
"""

from trelliswork.inference.span import brackets, grammar
from trelliswork.inference.span.grammar import Expected
from trelliswork.inference.span.potentials import Grammar

__all__ = ["Expected", "Grammar", "brackets", "grammar"]
