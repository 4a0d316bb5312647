"""Small treebanks for the tests of the parser."""

import random

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


def placed(head, above, rng):
    """Return the words below a head and itself, its dependents in random order."""
    around = [placed(k, above, rng) for k, other in enumerate(above) if other == head]
    around.insert(rng.randint(0, len(around)), [head])
    return [word for part in around for word in part]


def freely_ordered(n, seed):
    """Return sentences of which a tag tells the head's, and dependents stand in any order: siblings tell nothing."""
    rng, X, Y = random.Random(seed), [], []
    for _ in range(n):
        tags, above = [rng.randrange(5)], [None]
        for _ in range(rng.randint(3, 9)):
            above.append(rng.randrange(len(tags)))
            tags.append((tags[above[-1]] + rng.choice((1, 2))) % 5)
        order = placed(0, above, rng)
        X.append([(f"w{rng.randrange(20)}", f"t{tags[k]}") for k in order])
        Y.append([(0, "root") if above[k] is None else (order.index(above[k]) + 1, "dep") for k in order])
    return X, Y
