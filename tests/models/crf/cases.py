"""Sentences and taggers that the tests of CRFs share."""

from tests.estimators import made
from trelliswork import CRF

TEMPLATES = "# word and neighbors\nU0:%x[0,0]\nU1:%x[-1,0]\nU2:%x[1,0]\nB\n"

WORDS = [
    ["the", "dog", "barks"],
    ["a", "dog", "sees", "the", "cat"],
    ["the", "old", "man", "the", "boat"],
    ["dogs", "bark"],
    ["the", "cat", "sees", "a", "man"],
    ["cats", "see", "the", "old", "dog"],
]
TAGS = [
    ["D", "N", "V"],
    ["D", "N", "V", "D", "N"],
    ["D", "N", "V", "D", "N"],
    ["N", "V"],
    ["D", "N", "V", "D", "N"],
    ["N", "V", "D", "A", "N"],
]
CHUNKS = [
    ["B-NP", "I-NP", "B-VP"],
    ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP"],
    ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP"],
    ["B-NP", "B-VP"],
    ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP"],
    ["B-NP", "B-VP", "B-NP", "I-NP", "I-NP"],
]
NEW = [["the", "unseen", "dog", "sees", "a", "cat"], ["old"], ["dogs", "the"]]


def tagger(features=TEMPLATES, **options):
    return made(CRF, features, **{"l2": 0.01, "scheme": None, **options})


def as_dicts(sentences):
    """Ready attributes that say the same as TEMPLATES, but for the ends of the sentence."""
    return [
        [
            {"word": word, **({"before": s[t - 1]} if t else {}), **({"after": s[t + 1]} if t + 1 < len(s) else {})}
            for t, word in enumerate(s)
        ]
        for s in sentences
    ]


def as_lists(sentences):
    return [[[f"{k}:{v}" for k, v in token.items()] for token in s] for s in as_dicts(sentences)]
