"""Small treebanks for the tests of the parser."""

from trelliswork import bundled

SMALL = {"hash_bits": 16, "min_count": 1, "batch_size": 8}  # parameters for small treebanks
TAGGED = [[("dogs", "N"), ("bark", "V")], [("big", "A"), ("dogs", "N"), ("bark", "V")], [("Go", "V")]]
HEADS = [[2, 0], [2, 3, 0], [0]]
PARTIAL = [[None, 0], [None, None, 0], [None]]
LABELED = [[(2, "a"), (0, "r")], [(2, "b"), (3, "a"), (0, "r")], [(0, "r")]]


def treebank(split, n):
    """Return (word, tag) pairs and (head, label) pairs of the first n bundled sentences."""
    sentences = bundled.load(split)[:n]
    X = [list(zip(s.words, s.tags, strict=True)) for s in sentences]
    return X, [list(zip(s.heads, s.relations, strict=True)) for s in sentences]


def heads_of(trees):
    """Return the heads of trees of (head, label)."""
    return [[head for head, _ in tree] for tree in trees]
