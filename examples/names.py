"""Train a tagger for names on your own files, and list the names of a text with their probabilities.

    python examples/names.py train.txt new.txt

Both files have one token per line with the word in the first column, and an empty line after each sentence. The last
column of the training file has the label (``B-PER``, ``O``, ...).
"""

import sys

from trelliswork import CRF, read_columns


def main(train: str, new: str) -> None:
    """Train on one file and print the spans of the other, the least certain ones first."""
    corpus, text = read_columns(train), read_columns(new).sentences()
    tagger = CRF("ner").fit(corpus.sentences(0), corpus.sentences(-1))
    found = [
        (p, span.type, " ".join(words[span.start : span.stop]))
        for words, spans in zip(text, tagger.predict_spans(text), strict=True)
        for span, p in spans
    ]
    for p, kind, name in sorted(found):
        print(f"{p:.3f}  {kind:6} {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
