"""Train a tagger on the bundled corpus, and ask it for probabilities, evidence and alternatives.

python examples/demo.py
"""

from trelliswork import CRF, bundled, tokenize


def main() -> None:
    """Print the answers."""
    train = bundled.load("train")
    tagger = CRF("pos").fit([s.words for s in train], [s.tags for s in train])
    (words,) = [[token.text for token in sentence] for sentence in tokenize("They saw her duck.")]
    (tags,), (marginals,) = tagger.predict([words]), tagger.predict_marginals([words])
    print(
        "tags:        ", " ".join(f"{w}/{tag} {p[tag]:.2f}" for w, tag, p in zip(words, tags, marginals, strict=True))
    )
    known = [["PRP", None, None, "VBP", None]]
    print("duck is VBP: ", " ".join(tagger.predict([words], known=known)[0]))
    for labels, p in tagger.predict_topk([words], 3)[0]:
        print(f"p = {p:.3f}:    ", " ".join(labels))


if __name__ == "__main__":
    main()
