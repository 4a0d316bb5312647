"""A small treebank of slightly silly English, made by a grammar: the same sentences on every machine.

``load("train")`` gives 3,000 annotated sentences, ``"dev"`` and ``"test"`` 500 each, without a download. The grammar
has agreement, ambiguous words, prepositional phrases that attach by preference, clauses in clauses, a few crossing
arcs, and words in the development and test parts that the training part never has.

=====================  ==========================================================
module                 what it holds
=====================  ==========================================================
``vocabulary``         the hand-written words
``morphology``         spelling rules
``lexicon``            inflected and derived words by class; which are held back
``sampling``           stable random choice
``nodes``              phrases with marked heads, and all layers read off them
``chunks``             base phrases read off a tree
``attachment``         which prepositions nouns and verbs prefer
``noun_phrases``       noun phrases, prepositional phrases, times
``verb_groups``        tense, auxiliaries, negation, inversion
``clauses``            verb frames, clauses, relative clauses
``constructions``      the register of sentence types; how to add one
``statements``         statements of one clause
``complex_sentences``  statements of several clauses
``questions``          questions, commands, cries
``crossing``           sentences with crossing arcs
``grammar``            one sentence of any type
=====================  ==========================================================
"""

from __future__ import annotations

from functools import cache

from trelliswork.data.sentence import TreebankSentence

__all__ = ["SPLITS", "generate", "load"]

SPLITS = {"train": 3000, "dev": 500, "test": 500}
MIN_LENGTH, MAX_LENGTH = 3, 35
_SEEDS = {"train": 1001, "dev": 1002, "test": 1003}
_UNSEEN = {"train": 0.0, "dev": 0.1, "test": 0.1}


def load(split: str = "train") -> list[TreebankSentence]:
    """Return the sentences of one part of the bundled corpus.

    Parameters
    ----------
    split : {"train", "dev", "test"}

    Returns
    -------
    list of TreebankSentence
        A fresh list; the sentences themselves are immutable, and made only once in a process.

    Raises
    ------
    ValueError
        For any other name of a part.

    Examples
    --------
    >>> len(load("dev"))
    500
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(map(repr, SPLITS))}, got {split!r}.")
    return list(_load(split))


@cache
def _load(split: str) -> tuple[TreebankSentence, ...]:
    return tuple(generate(SPLITS[split], seed=_SEEDS[split], unseen=_UNSEEN[split]))


def generate(n_sentences: int, *, seed: int = 0, unseen: float = 0.0) -> list[TreebankSentence]:
    """Return newly made sentences, any number of them.

    Parameters
    ----------
    n_sentences : int
    seed : int
        The same seed gives the same sentences, and the first ones do not depend on ``n_sentences``.
    unseen : float
        Chance, from 0 to 1, that a noun, verb, adjective, adverb or name is one of the held-back words, which
        corpora with ``unseen=0`` never have.

    Returns
    -------
    list of TreebankSentence
        Sentences of 3 to 35 words.

    Notes
    -----
    About 0.1 ms a sentence.
    """
    # Imported here because the lexicon takes some milliseconds to inflect, and most imports of data do not need it.
    from trelliswork.data.bundled.grammar import sentence
    from trelliswork.data.bundled.nodes import annotate
    from trelliswork.data.bundled.sampling import Draw

    if n_sentences < 0:
        raise ValueError(f"n_sentences must be 0 or more, got {n_sentences}.")
    if not 0.0 <= unseen <= 1.0:
        raise ValueError(f"unseen must be a chance from 0 to 1, got {unseen}.")
    draw = Draw(seed, unseen)
    made: list[TreebankSentence] = []
    while len(made) < n_sentences:
        candidate = annotate(sentence(draw))
        if MIN_LENGTH <= len(candidate) <= MAX_LENGTH:
            made.append(candidate)
    return made
