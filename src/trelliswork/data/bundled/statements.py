"""Statements of one clause: plain, fronted, copular, compared, existential, passive, measured, with apposition."""

from __future__ import annotations

from trelliswork.data.bundled import vocabulary
from trelliswork.data.bundled.attachment import VERB_PPS
from trelliswork.data.bundled.clauses import (
    adverb_phrase,
    argument,
    clause,
    copular,
    passive,
    subject_phrase,
    subject_relative,
)
from trelliswork.data.bundled.constructions import comma, construction
from trelliswork.data.bundled.lexicon import ADJECTIVES, NOUNS
from trelliswork.data.bundled.morphology import plural, verb_forms
from trelliswork.data.bundled.nodes import Node, leaf, phrase
from trelliswork.data.bundled.noun_phrases import (
    Nominal,
    common_noun_phrase,
    count,
    name,
    noun_phrase,
    preposition_node,
    prepositional_phrase,
    superlative_phrase,
    time_phrase,
)
from trelliswork.data.bundled.sampling import Draw, zipf
from trelliswork.data.bundled.verb_groups import Predicate, be, tense


@construction(330)
def statement(draw: Draw) -> Node:
    """Subject and predicate: *The cook sold a hat*."""
    return clause(draw)


@construction(45)
def fronted_adjunct(draw: Draw) -> Node:
    """*In the morning, the cook sold a hat*."""
    if draw.chance(55):
        first = time_phrase(draw)
    else:
        first = prepositional_phrase(draw, VERB_PPS["happening"], 1).as_("obl")
    rest = clause(draw)
    return phrase("S", first, comma(), *rest.children)


@construction(35)
def fronted_adverb(draw: Draw) -> Node:
    """*Suddenly, the cook sold a hat*."""
    rest = clause(draw)
    return phrase("S", adverb_phrase(draw, "sentence"), comma() if draw.chance(80) else None, *rest.children)


@construction(40)
def copular_statement(draw: Draw) -> Node:
    """*The soup is too hot*."""
    subject = subject_phrase(draw, 0)
    return clause(draw, subject=subject, what=copular(draw, subject, 0))


@construction(20)
def superlative(draw: Draw) -> Node:
    """*The oldest cat in the village sleeps*."""
    return clause(draw, subject=superlative_phrase(draw, draw.uniform(("person", "animal", "thing", "place", "food"))))


@construction(22)
def comparison(draw: Draw) -> Node:
    """*The cat is older than the dog*, *more modern than*, *as old as*."""
    kind = draw.uniform(("person", "animal", "thing", "food", "place"))
    subject = noun_phrase(draw, kind, 1, nominative=True)
    adjective = draw.word(ADJECTIVES[kind])
    degree, than = None, "than"
    word = leaf("JJ", adjective.base)
    if draw.chance(30):
        degree, than = leaf("RB", "as"), "as"
    elif adjective.comparative:
        word = leaf("JJR", adjective.comparative)
    else:
        degree = leaf("RBR", "more")
    other = phrase("PP", preposition_node(than), noun_phrase(draw, kind, 1).node).as_("obl")
    complement = phrase("ADJP", degree and degree.as_("advmod"), word, other)
    return clause(draw, subject=subject, what=Predicate(None, [complement]))


@construction(30)
def existential(draw: Draw) -> Node:
    """*There were two cats in the garden*."""
    kind = draw.uniform(("person", "animal", "thing", "food", "stuff"))
    thing = common_noun_phrase(draw, kind, 1, indefinite=True)
    form = tense(draw, thing.agreement)
    where = prepositional_phrase(draw, VERB_PPS["happening"], 1).as_("obl")
    group = phrase("VP", leaf(form, be(form, thing.agreement)), thing.node.as_("nsubj"), where)
    return phrase("S", phrase("NP", leaf("EX", "there")).as_("expl"), group)


@construction(30)
def passive_statement(draw: Draw) -> Node:
    """*The hat was sold by the cook*."""
    subject = argument(draw, draw.uniform(("thing", "food", "idea", "place", "wear", "event")), 0, nominative=True)
    return clause(draw, subject=subject, what=passive(draw, subject, 0))


@construction(18)
def measure(draw: Draw) -> Node:
    """*The ticket cost 40 coins*, *The village has 1,200 students*."""
    if draw.chance(50):
        subject = noun_phrase(draw, draw.uniform(("thing", "food", "tool", "wear")), 1, nominative=True)
        verb, unit = verb_forms("cost"), plural(draw.pick(_UNITS))
    else:
        subject = noun_phrase(draw, draw.uniform(("place", "group")), 1, nominative=True)
        verb, unit = verb_forms("have"), draw.word(NOUNS["person"]).plural
    form = tense(draw, subject.agreement)
    amount = phrase("NP", count(draw).as_("nummod"), leaf("NNS", unit)).as_("obj")
    return phrase("S", subject.node.as_("nsubj"), phrase("VP", leaf(form, verb[form]), amount))


_UNITS = zipf(vocabulary.UNITS.split())


@construction(20)
def apposition(draw: Draw) -> Node:
    """*Marla Tobin, a baker from Denby, sold a hat*, or *Marla Tobin, who loves cats, sold a hat*."""
    person = name(draw, "person")
    if draw.chance(60) and person.agreement == "3s":
        extra = common_noun_phrase(draw, "person", 0, indefinite=True, number="singular").node.as_("appos")
    else:
        extra = subject_relative(draw, person, 1)
        pronoun = extra.children[0].children[0]
        pronoun.label, pronoun.word = "WP", "who"
    node = phrase("NP", person.node, leaf(",", ",").as_("punct", of=extra), extra)
    node.children.append(leaf(",", ",").as_("punct", of=extra))
    return clause(draw, subject=Nominal(node, "person", person.agreement))
