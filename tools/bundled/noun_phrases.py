"""Noun phrases and prepositional phrases without clauses inside: determiners, number, names, pronouns, coordination."""

from dataclasses import dataclass

from tools.bundled import vocabulary
from tools.bundled.attachment import NOUN_PP_PERCENT, NOUN_PPS, Preference, preferences
from tools.bundled.lexicon import (
    ADJECTIVES,
    ADVERBS,
    FAMILY_NAMES,
    GIVEN_NAMES,
    NOUNS,
    PLACE_NAMES,
    VERBS_BY_OBJECT,
    VERBS_BY_SUBJECT,
    Noun,
)
from tools.bundled.morphology import plural
from tools.bundled.nodes import Node, leaf, phrase
from tools.bundled.sampling import Draw, weighted, zipf

_PRONOUNS = {  # kind: nominative, accusative, agreement
    "person": zipf(map(str.split, ("he him 3s", "she her 3s", "they them pl", "I me 1s", "we us pl", "you you pl")), 5),
    "group": zipf([["they", "them", "pl"]]),
}
_THING_PRONOUNS = zipf(map(str.split, ("it it 3s", "it it 3s", "they them pl")))
_POSSESSIVE_PRONOUNS = zipf(["his", "her", "their", "my", "our", "your", "its"])
_DETERMINERS = {
    "singular": weighted(
        {"the": 44, "a": 28, "PRP$": 11, "POS": 4, "this": 4, "that": 5, "every": 3, "another": 2, "each": 1, "no": 1}
    ),
    "plural": weighted(
        {"the": 30, "": 22, "PRP$": 9, "some": 8, "CD": 12, "POS": 3, "many": 4, "several": 4, "these": 3, "those": 3}
        | {"all": 2, "few": 2, "no": 1}
    ),
    "mass": weighted({"the": 38, "": 30, "some": 14, "PRP$": 9, "this": 4, "that": 4, "no": 1, "much": 1}),
}
_INDEFINITE = {
    "singular": weighted({"a": 9, "another": 1}),
    "plural": weighted({"": 5, "some": 4, "CD": 5, "many": 2, "several": 2}),
    "mass": weighted({"": 5, "some": 5}),
}
_MODIFIER_KINDS = {  # the noun before the noun: the kitchen table, an onion soup
    **dict.fromkeys(("person", "animal", "thing", "furniture", "tool", "event"), "place"),
    **dict.fromkeys(("food", "container"), "food"),
    "wear": "stuff",
}
_TITLES = zipf(vocabulary.TITLES.split())
_NUMBER_WORDS = zipf(vocabulary.NUMBER_WORDS.split())
_IN_PLACE = preferences("in place 1")
_WEEKDAYS = zipf(vocabulary.WEEKDAYS.split(), shift=9)
_MONTHS = zipf(vocabulary.MONTHS.split(), shift=9)


@dataclass(slots=True)
class Nominal:
    """A noun phrase with its properties that the rest of the sentence needs."""

    node: Node
    kind: str
    agreement: str  # "1s", "3s" or "pl"
    pronoun: str = ""
    is_name: bool = False


def noun_phrase(
    draw: Draw,
    kind: str,
    depth: int = 0,
    *,
    nominative: bool = False,
    subject: Nominal | None = None,
    pronouns: bool = True,
) -> Nominal:
    """Return a phrase of the kind: a pronoun, a name, a common noun or several of these.

    When the ``subject`` is a pronoun, the object is not *me*, *us* or *you*: *I saw me* is not English.
    """
    if pronouns and depth < 3 and draw.chance(24 if nominative and kind == "person" else 7):
        subjective, objective, agreement = draw.pick(_PRONOUNS.get(kind, _THING_PRONOUNS))
        clash = subject is not None and subject.pronoun and objective in ("me", "us", "you")
        if not clash and kind not in ("place", "trait", "stuff", "event"):
            word = subjective if nominative else objective
            return Nominal(phrase("NP", leaf("PRP", word)), kind, agreement, pronoun=word)
    if (kind == "person" and draw.chance(22)) or (kind == "place" and draw.chance(25)):
        return name(draw, kind)
    if depth < 2 and draw.chance(5):
        return coordination(draw, kind, depth)
    return common_noun_phrase(draw, kind, depth)


def name(draw: Draw, kind: str) -> Nominal:
    """Return a proper name: Marla Tobin, Captain Tobin, the Tobins, Denby."""
    if kind == "place":
        node = phrase("NP", leaf("NNP", draw.word(PLACE_NAMES)))
    elif draw.chance(6):
        family = leaf("NNPS", plural(draw.word(FAMILY_NAMES)))
        return Nominal(phrase("NP", leaf("DT", "the").as_("det"), family), kind, "pl", is_name=True)
    elif draw.chance(16):
        node = phrase("NP", leaf("NNP", draw.pick(_TITLES)).as_("compound"), leaf("NNP", draw.word(FAMILY_NAMES)))
    elif draw.chance(40):
        node = phrase("NP", leaf("NNP", draw.word(GIVEN_NAMES)), leaf("NNP", draw.word(FAMILY_NAMES)).as_("flat"))
    else:
        node = phrase("NP", leaf("NNP", draw.word(GIVEN_NAMES)))
    return Nominal(node, kind, "3s", is_name=True)


def common_noun_phrase(
    draw: Draw, kind: str, depth: int = 0, *, modified: bool = True, indefinite: bool = False, number: str = ""
) -> Nominal:
    """Return determiner, adjectives and noun, with a prepositional phrase after it when ``modified``.

    An ``indefinite`` phrase names something new; ``number="singular"`` forbids the plural.
    """
    noun = draw.word(NOUNS[kind])
    is_plural = bool(noun.plural) and number != "singular" and draw.chance(30)
    before = determiner(draw, noun, is_plural, 3 if indefinite else depth, indefinite=indefinite)
    before += adjectives(draw, kind)
    if kind in _MODIFIER_KINDS and draw.chance(5):
        before.append(leaf("NN", draw.word(NOUNS[_MODIFIER_KINDS[kind]]).singular).as_("compound"))
    node = phrase("NP", *before, leaf("NNS", noun.plural) if is_plural else leaf("NN", noun.singular))
    if is_plural and draw.chance(5):  # old cats and dogs: one phrase, where the adjective modifies both nouns
        second = draw.word(NOUNS[kind])
        if second.plural:
            other = leaf("NNS", second.plural).as_("conj")
            node.children += [leaf("CC", "and").as_("cc", of=other), other]
    if modified and kind in NOUN_PPS and draw.chance(NOUN_PP_PERCENT[min(depth, 3)]):
        node = phrase("NP", node, prepositional_phrase(draw, NOUN_PPS[kind], depth + 1).as_("nmod"))
    return Nominal(node, kind, "pl" if is_plural else "3s")


def determiner(draw: Draw, noun: Noun, is_plural: bool, depth: int, *, indefinite: bool = False) -> list[Node]:
    """Return the words before the adjectives: articles, possessives, numbers, or nothing."""
    number = "plural" if is_plural else "singular" if noun.plural else "mass"
    word = draw.pick(_INDEFINITE[number] if indefinite else _DETERMINERS[number])
    if word == "POS":
        if depth > 1:
            return [leaf("DT", "the").as_("det")]
        owner = name(draw, "person") if draw.chance(50) else common_noun_phrase(draw, "person", 3, modified=False)
        ends_in_s = owner.agreement == "pl" and owner.node.children[-1].word.endswith("s")
        owner.node.children.append(leaf("POS", "'" if ends_in_s else "'s").as_("case"))
        return [owner.node.as_("nmod:poss")]
    if word == "PRP$":
        return [leaf("PRP$", draw.pick(_POSSESSIVE_PRONOUNS)).as_("nmod:poss")]
    if word == "CD":
        how_many = count(draw).as_("nummod")
        is_definite = how_many.word and not indefinite and draw.chance(25)
        return [leaf("DT", "the").as_("det"), how_many] if is_definite else [how_many]
    if word == "all":
        return [leaf("PDT", "all").as_("det:predet"), leaf("DT", "the").as_("det")]
    if word in ("many", "several", "few", "much"):
        return [leaf("JJ", word).as_("amod")]
    return [leaf("DT", word).as_("det")] if word else []


def number(draw: Draw) -> Node:
    """Return a number above one, in words or in figures."""
    if draw.chance(62):
        return leaf("CD", draw.pick(_NUMBER_WORDS))
    if draw.chance(60):
        return leaf("CD", str(13 + draw.below(87)))
    thousands, rest = 1 + draw.below(19), 50 * draw.below(20)
    return leaf("CD", f"{thousands},{rest:03d}" if draw.chance(50) else str(100 + rest))


def count(draw: Draw) -> Node:
    """Return a number, sometimes with an adverb: about forty, almost 250."""
    if draw.chance(15):
        about = draw.uniform(("about", "almost", "nearly", "exactly", "only"))
        return phrase("QP", leaf("RB", about).as_("advmod"), number(draw))
    return number(draw)


def adjectives(draw: Draw, kind: str) -> list[Node]:
    """Return the adjectives before a noun, most often none."""
    if not draw.chance(32):
        return []
    adjective = draw.word(ADJECTIVES[kind])
    kinds_of_participle = ("thing", "container", "furniture", "wear", "tool", "food")
    verb = draw.word(VERBS_BY_OBJECT[kind]) if kind in kinds_of_participle and draw.chance(10) else None
    if verb is not None and verb.scene != "seeing":  # the stolen hat
        first = leaf("VBN", verb.forms["VBN"]).as_("amod")
    elif kind in ("person", "animal") and draw.chance(6):  # a sleeping dog
        first = leaf("VBG", draw.word(VERBS_BY_SUBJECT["v", kind]).forms["VBG"]).as_("amod")
    elif draw.chance(8):
        degree = leaf("RB", draw.word(ADVERBS["attributive"])).as_("advmod")
        first = phrase("ADJP", degree, leaf("JJ", adjective.base)).as_("amod")
    elif adjective.comparative and draw.chance(5):
        first = leaf("JJR", adjective.comparative).as_("amod")
    else:
        first = leaf("JJ", adjective.base).as_("amod")
    if draw.chance(14):
        return [first, leaf("JJ", draw.word(ADJECTIVES[kind]).base).as_("amod")]
    return [first]


def superlative_phrase(draw: Draw, kind: str) -> Nominal:
    """Return a phrase such as *the oldest cat in the village*."""
    degree = leaf("JJS", draw.word(ADJECTIVES[kind]).superlative or "strangest").as_("amod")
    core = phrase("NP", leaf("DT", "the").as_("det"), degree, leaf("NN", draw.word(NOUNS[kind]).singular))
    place = prepositional_phrase(draw, _IN_PLACE, 2).as_("nmod")
    return Nominal(phrase("NP", core, place), kind, "3s")


def coordination(draw: Draw, kind: str, depth: int) -> Nominal:
    """Return two or three phrases joined by *and*; each is a phrase of its own, with its own modifiers."""
    members = [
        name(draw, kind) if kind == "person" and draw.chance(35) else common_noun_phrase(draw, kind, depth + 1)
        for _ in range(3 if draw.chance(15) else 2)
    ]
    return Nominal(conjoin("NP", [member.node for member in members], "and"), kind, "pl")


def conjoin(label: str, members: list[Node], conjunction: str) -> Node:
    """Return *A and B* or *A , B and C*; the first member is the head, the others are its conjuncts."""
    parts = [members[0]]
    for member in members[1:]:
        is_last = member is members[-1]
        joint = leaf("CC", conjunction).as_("cc", of=member) if is_last else leaf(",", ",").as_("punct", of=member)
        parts += [joint, member.as_("conj")]
    return phrase(label, *parts)


def preposition_node(word: str) -> Node:
    """Return a preposition as a case marker; *to* has its own tag."""
    return leaf("TO" if word == "to" else "IN", word).as_("case")


def prepositional_phrase(draw: Draw, preference: Preference, depth: int) -> Node:
    """Return a phrase by the preferences of the noun or verb that it goes with."""
    preposition, kind = draw.pick(preference)
    if kind == "time":
        return phrase("PP", preposition_node("on"), phrase("NP", leaf("NNP", draw.pick(_WEEKDAYS))))
    noun = noun_phrase(draw, kind, depth, pronouns=kind == "person" and preposition in ("with", "for", "from", "about"))
    return phrase("PP", preposition_node(preposition), noun.node)


# --- time -------------------------------------------------------------------------------------------------------------


def time_phrase(draw: Draw) -> Node:
    """Return when something happens, as a modifier of the verb: on Monday, last week, for two days."""
    choice = draw.below(8)
    if choice == 0:
        day = draw.pick(_WEEKDAYS)
        return _at("on", leaf("NNPS", day + "s") if draw.chance(25) else leaf("NNP", day))
    if choice == 1:
        is_year = draw.in_past and draw.chance(50)
        return _at("in", leaf("CD", str(1900 + draw.below(125))) if is_year else leaf("NNP", draw.pick(_MONTHS)))
    if choice == 2:
        return _at("at", leaf("NN", draw.uniform(("noon", "night", "dawn", "midnight", "sunset"))))
    if choice == 3:
        return _at("for", number(draw).as_("nummod"), leaf("NNS", draw.word(NOUNS["time"]).plural))
    if choice == 4:
        relation = draw.uniform(("after", "before", "during"))
        return phrase("PP", preposition_node(relation), common_noun_phrase(draw, "event", 2).node).as_("obl")
    if choice == 5:
        return _at("in", leaf("DT", "the").as_("det"), leaf("NN", draw.uniform(("morning", "evening", "afternoon"))))
    if choice == 6:
        return phrase("NP", leaf("NN", "yesterday" if draw.in_past else "today")).as_("obl:tmod")
    unit = leaf("NN", draw.uniform(("week", "year", "winter", "month", "summer", "night")))
    which = draw.uniform(("last", "that") if draw.in_past else ("every", "this"))
    word = leaf("JJ", which).as_("amod") if which == "last" else leaf("DT", which).as_("det")
    return phrase("NP", word, unit).as_("obl:tmod")


def _at(preposition: str, *words: Node) -> Node:
    return phrase("PP", preposition_node(preposition), phrase("NP", *words)).as_("obl")
