"""Statements of several clauses: subordination, coordination, speech, participles, purpose, clausal subjects."""

from __future__ import annotations

from trelliswork.data.bundled import vocabulary
from trelliswork.data.bundled.clauses import action, argument, clause, someone
from trelliswork.data.bundled.constructions import comma, construction, wh
from trelliswork.data.bundled.lexicon import ADJECTIVES, ADVERBS
from trelliswork.data.bundled.nodes import Node, leaf, phrase
from trelliswork.data.bundled.noun_phrases import conjoin
from trelliswork.data.bundled.sampling import Draw, zipf
from trelliswork.data.bundled.verb_groups import Predicate, finite, tense

_CONJUNCTIONS = zipf(vocabulary.CONJUNCTIONS.split())


def adverbial_clause(draw: Draw, modal: str = "", conjunction: str = "") -> Node:
    """Return a clause of time, cause or condition."""
    word = conjunction or draw.pick(_CONJUNCTIONS)
    opener = wh("when").as_("advmod") if word == "when" else leaf("IN", word).as_("mark")
    return phrase("SBAR", opener, clause(draw, 1, modal=modal)).as_("advcl")


@construction(40)
def clause_behind(draw: Draw) -> Node:
    """*The cook smiled because the soup was hot*."""
    root = clause(draw, 1)
    root.children[-1].children.append(adverbial_clause(draw))
    return root


@construction(40)
def clause_in_front(draw: Draw) -> Node:
    """*When the soup was hot, the cook smiled*."""
    first = adverbial_clause(draw)
    rest = clause(draw, 1)
    return phrase("S", first, comma(), *rest.children)


@construction(15)
def conditional(draw: Draw) -> Node:
    """*If the soup is hot, the cook will smile*."""
    condition = adverbial_clause(draw, conjunction="if")
    rest = clause(draw, 1, modal=draw.uniform(("would", "might") if draw.in_past else ("will", "may", "must")))
    return phrase("S", condition, comma(), *rest.children)


@construction(40)
def two_clauses(draw: Draw) -> Node:
    """*The cook smiled, and the dog slept*."""
    first, second = clause(draw, 1), clause(draw, 1)
    joint = leaf("CC", draw.uniform(("and", "but", "and", "or", "so"))).as_("cc", of=second)
    return phrase("S", first, leaf(",", ",").as_("punct", of=second), joint, second.as_("conj"))


@construction(45)
def two_verbs(draw: Draw) -> Node:
    """*The cook smiled and sold a hat*."""
    subject = argument(draw, "animal" if draw.chance(20) else "person", 0, nominative=True)
    form = tense(draw, subject.agreement)
    actions = [action(draw, subject, 1).verb_phrase(form) for _ in range(3 if draw.chance(10) else 2)]
    return phrase("S", subject.node.as_("nsubj"), conjoin("VP", actions, draw.uniform(("and", "and", "but", "or"))))


@construction(25)
def reported_speech(draw: Draw) -> Node:
    """*The soup is hot, said the cook*."""
    speech = clause(draw, 1).as_("ccomp")
    speaker = argument(draw, "person", 2)
    while speaker.pronoun:
        speaker = argument(draw, "person", 2)
    said = phrase("VP", leaf("VBD", draw.uniform(("said", "said", "thought", "whispered", "shouted", "explained"))))
    return phrase("SINV", speech, comma(), said, speaker.node.as_("nsubj"))


@construction(20)
def participle_in_front(draw: Draw) -> Node:
    """*Smiling at the cat, the cook sold a hat*, or *After selling a hat, the cook smiled*."""
    doing = phrase("S", action(draw, someone(), 1).verb_phrase("VBG"))
    rest = clause(draw, 1, subject=argument(draw, "person", 1, nominative=True))
    if draw.chance(50):
        mark = leaf("IN", draw.uniform(("after", "before", "without", "while"))).as_("mark")
        doing = phrase("PP", mark, doing)
    return phrase("S", doing.as_("advcl"), comma(), *rest.children)


@construction(12)
def purpose(draw: Draw) -> Node:
    """*The cook went to the market to sell a hat*."""
    subject = argument(draw, "person", 0, nominative=True)
    root = clause(draw, subject=subject, what=action(draw, subject, 1))
    root.children[-1].children.append(action(draw, someone(), 1).infinitive().as_("advcl"))
    return root


@construction(12)
def so_that(draw: Draw) -> Node:
    """*The soup was so hot that the cook cried*."""
    subject = argument(draw, draw.uniform(("person", "animal", "food", "thing", "event")), 1, nominative=True)
    result = phrase("SBAR", leaf("IN", "that").as_("mark"), clause(draw, 1)).as_("advcl")
    quality = leaf("JJ", draw.word(ADJECTIVES[subject.kind]).base)
    complement = phrase("ADJP", leaf("RB", "so").as_("advmod"), quality, result)
    return clause(draw, subject=subject, what=Predicate(None, [complement]))


@construction(22)
def it_is_clear(draw: Draw) -> Node:
    """*It is clear that the cook smiled*, or *It is hard to sell a hat*."""
    if draw.chance(50):
        content = phrase("SBAR", leaf("IN", "that").as_("mark"), clause(draw, 1)).as_("csubj")
        quality = draw.pick(_CLEAR)
    else:
        content = action(draw, someone(), 1).infinitive().as_("csubj")
        quality = draw.pick(_HARD)
    what = Predicate(None, [phrase("ADJP", leaf("JJ", quality)), content])
    group = finite(draw, what, "3s", pattern="simple")
    return phrase("S", phrase("NP", leaf("PRP", "it")).as_("expl"), group)


_CLEAR = zipf(vocabulary.ADJECTIVES_IT.split())
_HARD = zipf(vocabulary.ADJECTIVES_HARD.split())


@construction(12)
def doing_is_hard(draw: Draw) -> Node:
    """*Selling hats is hard*."""
    doing = phrase("S", action(draw, someone(), 1).verb_phrase("VBG")).as_("csubj")
    degree = leaf("RB", draw.word(ADVERBS["degree"])).as_("advmod") if draw.chance(30) else None
    what = Predicate(None, [phrase("ADJP", degree, leaf("JJ", draw.pick(_HARD)))])
    return phrase("S", doing, finite(draw, what, "3s", pattern="simple"))
