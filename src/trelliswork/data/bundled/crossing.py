"""Sentences with crossing dependency arcs: extraposed relative clauses and fronted question words."""

from __future__ import annotations

from trelliswork.data.bundled.clauses import adjuncts, adverb_phrase, clause, subject_relative
from trelliswork.data.bundled.constructions import construction, wh
from trelliswork.data.bundled.lexicon import VERBS_BY_OBJECT, VERBS_BY_SUBJECT
from trelliswork.data.bundled.nodes import Node, leaf, phrase
from trelliswork.data.bundled.noun_phrases import common_noun_phrase, noun_phrase, time_phrase
from trelliswork.data.bundled.sampling import Draw
from trelliswork.data.bundled.verb_groups import Predicate, inverted


@construction(6)
def extraposed_from_subject(draw: Draw) -> Node:
    """*A man arrived who sold hats*: the clause is in the VP and belongs to the subject."""
    subject = common_noun_phrase(draw, "person", 1, indefinite=True)
    verb = draw.uniform(("arrived", "came", "appeared", "entered", "vanished", "spoke"))
    draw.in_past = True
    relative = subject_relative(draw, subject, 1).as_("acl:relcl", of=subject.node)
    when = time_phrase(draw) if draw.chance(40) else None
    return phrase("S", subject.node.as_("nsubj"), phrase("VP", leaf("VBD", verb), when, relative))


@construction(4)
def extraposed_from_object(draw: Draw) -> Node:
    """*The cook bought a hat yesterday that annoyed the king*."""
    subject = noun_phrase(draw, "person", 1, nominative=True)
    kind = draw.uniform(("thing", "food", "animal", "idea"))
    verb = draw.word(VERBS_BY_OBJECT[kind])
    thing = common_noun_phrase(draw, kind, 1, indefinite=True)
    relative = subject_relative(draw, thing, 1).as_("acl:relcl", of=thing.node)
    when = time_phrase(draw) if draw.chance(50) else adverb_phrase(draw, "time")
    what = Predicate(verb, [thing.node.as_("obj"), when, relative])
    return clause(draw, subject=subject, what=what, pattern="simple")


@construction(3, end="?")
def distant_object(draw: Draw) -> Node:
    """*What did the cook want to sell?*: *what* belongs to *sell*, and *want* is between them."""
    subject = noun_phrase(draw, "person", 1, nominative=True)
    kind = draw.uniform(("thing", "food", "idea"))
    inner = Predicate(draw.word(VERBS_BY_OBJECT[kind]), adjuncts(draw, "handling", 2)[:1]).infinitive().as_("xcomp")
    what = Predicate(draw.word(VERBS_BY_SUBJECT["vi", "person"]), [inner], is_stative=True)
    asked = wh("what").as_("obj", of=inner)
    return phrase("SBARQ", asked, inverted(draw, what, subject.node, subject.agreement))


@construction(3, end="?")
def stranded_preposition(draw: Draw) -> Node:
    """*Who did the cook talk to?*: the preposition belongs to *who*."""
    verb = draw.word(VERBS_BY_SUBJECT["vp", "person"])
    subject = noun_phrase(draw, "person", 1, nominative=True)
    asked = wh("who" if verb.scene == "social" else "what").as_("obl")
    left = phrase("PP", leaf("IN", verb.particle)).as_("case", of=asked)
    what = Predicate(verb, [left])
    if verb.particle == "to":
        left.children[0].label = "TO"
    return phrase("SBARQ", asked, inverted(draw, what, subject.node, subject.agreement))
