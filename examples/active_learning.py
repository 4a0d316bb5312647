"""Label fewer sentences: let the tagger choose them, and compare with a random choice.

    python examples/active_learning.py

The bundled corpus plays the annotator. Each round trains a tagger and adds the most uncertain sentences.
"""

import random

from trelliswork import CRF, bundled, select

ROUNDS, FIRST, STEP = 4, 20, 20


def main() -> None:
    """Print the accuracy on the test part after each round."""
    pool, test = bundled.load("train")[:600], bundled.load("test")[:200]
    X_test, y_test = [s.words for s in test], [s.tags for s in test]
    for choice in ("random", "entropy"):
        labeled, rest = list(pool[:FIRST]), list(pool[FIRST:])
        scores = []
        for _ in range(ROUNDS):
            tagger = CRF("pos", tol=0.01).fit([s.words for s in labeled], [s.tags for s in labeled])
            scores.append(tagger.score(X_test, y_test))
            if choice == "entropy":
                chosen = {row.sentence for row in select(tagger, [s.words for s in rest], STEP, by="entropy")}
            else:
                chosen = set(random.Random(0).sample(range(len(rest)), STEP))
            labeled += [rest[n] for n in sorted(chosen)]
            rest = [s for n, s in enumerate(rest) if n not in chosen]
        print(f"{choice:8}", " ".join(f"{score:.3f}" for score in scores))


if __name__ == "__main__":
    main()
