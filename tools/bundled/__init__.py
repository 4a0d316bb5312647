"""The grammar behind the bundled corpus; ``python -m tools.bundled`` writes the data file of the package.

The same sentences are generated on every machine: 3,000 for training, 500 each for development and test. The grammar
has agreement, ambiguous words, prepositional phrases that attach by preference, nested clauses, a few crossing arcs,
and words in the development and test parts that do not occur in the training part.

=================  ==========================================================
module             content
=================  ==========================================================
``vocabulary``     the hand-written words
``morphology``     spelling rules
``lexicon``        inflected and derived words by class; the held-back words
``sampling``       stable random choice
``nodes``          phrases with marked heads, and the layers derived from them
``chunks``         base phrases of a tree
``attachment``     which prepositions nouns and verbs prefer
``noun_phrases``   noun phrases, prepositional phrases, times
``verb_groups``    tense, auxiliaries, negation, inversion
``clauses``        verb frames, clauses, relative clauses
``constructions``  the types of sentences; how to add one
=================  ==========================================================
"""

import lzma

from trelliswork.data.sentence import TreebankSentence

# Number of sentences, seed, and probability of held-back words of each part.
PARTS = {"train": (3000, 1001, 0.0), "dev": (500, 1002, 0.1), "test": (500, 1003, 0.1)}
MIN_LENGTH, MAX_LENGTH = 3, 35


def corpus() -> bytes:
    """Return the content of ``bundled.xz`` before compression: all parts, one sentence per line."""
    lines = [line(s) for n, seed, unseen in PARTS.values() for s in generate(n, seed=seed, unseen=unseen)]
    return "".join(lines).encode("utf-8")


def line(sentence: TreebankSentence) -> str:
    """Return a sentence as the file has it: tree, chunks, heads, relations, universal tags."""
    columns = (sentence.chunks, map(str, sentence.heads), sentence.relations, sentence.upos)
    return "\t".join([str(sentence.tree), *(" ".join(column) for column in columns)]) + "\n"


def compressed() -> bytes:
    """Return the content of ``bundled.xz``."""
    return lzma.compress(corpus(), preset=9 | lzma.PRESET_EXTREME)


def generate(n_sentences: int, *, seed: int = 0, unseen: float = 0.0) -> list[TreebankSentence]:
    """Generate sentences of 3 to 35 words, about 0.1 ms each.

    The same seed gives the same sentences, and the first ones do not depend on ``n_sentences``. ``unseen`` is the
    probability that a noun, verb, adjective, adverb or name is one of the held-back words, which do not occur in
    corpora with ``unseen=0``.
    """
    from tools.bundled.constructions import sentence
    from tools.bundled.nodes import annotate
    from tools.bundled.sampling import Draw

    if n_sentences < 0:
        raise ValueError(f"n_sentences must be 0 or more, got {n_sentences}.")
    if not 0.0 <= unseen <= 1.0:
        raise ValueError(f"unseen must be a probability from 0 to 1, got {unseen}.")
    draw = Draw(seed, unseen)
    sentences: list[TreebankSentence] = []
    while len(sentences) < n_sentences:
        candidate = annotate(sentence(draw))
        if MIN_LENGTH <= len(candidate) <= MAX_LENGTH:
            sentences.append(candidate)
    return sentences
