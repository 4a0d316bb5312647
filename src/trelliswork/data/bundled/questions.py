"""Questions, commands and exclamations."""

from __future__ import annotations

from trelliswork.data.bundled.clauses import action, adjuncts, predicate, someone, subject_phrase
from trelliswork.data.bundled.constructions import comma, construction, wh
from trelliswork.data.bundled.lexicon import ADJECTIVES, GIVEN_NAMES, NOUNS, VERBS_BY_OBJECT
from trelliswork.data.bundled.nodes import Node, leaf, phrase
from trelliswork.data.bundled.noun_phrases import common_noun_phrase, noun_phrase
from trelliswork.data.bundled.sampling import Draw
from trelliswork.data.bundled.verb_groups import Predicate, be, finite, inverted, negate, tense


@construction(35, end="?")
def yes_no_question(draw: Draw) -> Node:
    """*Did the cook sell a hat?*."""
    subject = subject_phrase(draw, 1)
    return inverted(draw, predicate(draw, subject, 1), subject.node, subject.agreement)


@construction(15, end="?")
def who_question(draw: Draw) -> Node:
    """*Who sold the hat?*."""
    what = predicate(draw, someone(), 1)
    return phrase("SBARQ", wh("who").as_(what.subject_role), phrase("SQ", finite(draw, what, "3s")))


@construction(15, end="?")
def object_question(draw: Draw) -> Node:
    """*What did the cook sell?*, *Which hat did the cook sell?*, *How many hats did the cook sell?*."""
    kind = draw.uniform(("thing", "food", "idea", "person", "wear"))
    verb = draw.word(VERBS_BY_OBJECT[kind])
    subject = noun_phrase(draw, draw.uniform(verb.subjects), 1, nominative=True)
    noun = draw.word(NOUNS[kind])
    if draw.chance(50):
        asked = wh("who" if kind == "person" else "what")
    elif noun.plural and draw.chance(50):
        how_many = phrase("WHADJP", leaf("WRB", "how").as_("advmod"), leaf("JJ", "many")).as_("amod")
        asked = phrase("WHNP", how_many, leaf("NNS", noun.plural))
    else:
        asked = phrase("WHNP", leaf("WDT", draw.uniform(("which", "what"))).as_("det"), leaf("NN", noun.singular))
    what = Predicate(verb, adjuncts(draw, verb.scene, 1), is_stative=True)
    return phrase("SBARQ", asked.as_("obj"), inverted(draw, what, subject.node, subject.agreement))


@construction(18, end="?")
def adverb_question(draw: Draw) -> Node:
    """*Where did the cook sell a hat?*."""
    subject = subject_phrase(draw, 1)
    what = predicate(draw, subject, 1)
    asked = wh(draw.uniform(("why", "where", "when", "how"))).as_("advmod")
    return phrase("SBARQ", asked, inverted(draw, what, subject.node, subject.agreement))


@construction(8, end="?")
def how_old(draw: Draw) -> Node:
    """*How old is the cat?*."""
    kind = draw.uniform(("person", "animal", "thing", "place", "food"))
    subject = noun_phrase(draw, kind, 1, nominative=True)
    form = tense(draw, subject.agreement)
    asked = phrase("WHADJP", leaf("WRB", "how").as_("advmod"), leaf("JJ", draw.word(ADJECTIVES[kind]).base))
    is_ = phrase("SQ", leaf(form, be(form, subject.agreement)), subject.node.as_("nsubj", of=asked))
    return phrase("SBARQ", asked, is_.as_("cop"))


@construction(25, end="!")
def command(draw: Draw) -> Node:
    """*Sell the hat!*, *Never sell the hat!*, *Marla, sell the hat!*."""
    draw.in_past = False
    group = action(draw, someone(), 1).verb_phrase("VB")
    if draw.chance(25):
        group = negate(draw, phrase("VP", leaf("VB", "do").as_("aux"), group))
    elif draw.chance(15):
        group = phrase("VP", phrase("ADVP", leaf("RB", "never")).as_("advmod"), *group.children)
    if draw.chance(25):
        called = phrase("NP", leaf("NNP", draw.word(GIVEN_NAMES))).as_("vocative")
        return phrase("S", called, comma(), group)
    return phrase("S", group)


@construction(8, end="!")
def what_a(draw: Draw) -> Node:
    """*What a lovely hat!*."""
    kind = draw.uniform(("thing", "animal", "place", "food", "wear", "event"))
    nominal = common_noun_phrase(draw, kind, 0, indefinite=True, number="singular")
    core = nominal.node
    while not core.children[0].word:
        core = core.children[0]
    core.children.insert(0, leaf("WDT", "what").as_("det:predet"))
    return phrase("FRAG", nominal.node)
