"""Clauses: verb frames, modifiers of verbs, and clauses inside noun phrases.

Noun phrases contain clauses and clauses contain noun phrases, so these functions are mutually recursive; ``depth``
counts the levels, and deeper levels are simpler. A new frame needs one function under ``@frame`` and one row of verbs
in ``vocabulary.py``.
"""

from collections.abc import Callable

from tools.bundled import vocabulary
from tools.bundled.attachment import VERB_PPS
from tools.bundled.lexicon import (
    ADJECTIVES,
    ADVERBS,
    KINDS,
    STATIVE,
    VERBS_BY_OBJECT,
    VERBS_BY_SUBJECT,
    Verb,
)
from tools.bundled.nodes import Node, leaf, phrase
from tools.bundled.noun_phrases import (
    Nominal,
    common_noun_phrase,
    noun_phrase,
    preposition_node,
    prepositional_phrase,
    time_phrase,
)
from tools.bundled.sampling import Draw, Table, weighted, zipf
from tools.bundled.verb_groups import Predicate, contract, finite

MAX_DEPTH = 2  # below it no clause opens another one
_SUBJECT_KINDS = weighted(
    {"person": 62, "animal": 13, "group": 5, "thing": 5, "food": 3, "idea": 4, "event": 3, "place": 2, "tool": 1}
    | {"container": 1, "wear": 1, "furniture": 1, "stuff": 1}
)
_CLAUSE_PERCENT = (11, 4, 0)  # probability that a noun takes a clause, by depth
_PP_PERCENT = (46, 30, 12)  # probability that a verb takes a prepositional phrase
_PATHS = zipf(vocabulary.PATHS.split())
_ADJECTIVES_WITH_PP = zipf(vocabulary.ADJECTIVE_PPS.split())
_ADJECTIVES_TO = zipf(vocabulary.ADJECTIVES_TO.split())
_PERSONAL = weighted({("WP", "who"): 6, ("WDT", "that"): 4})
_IMPERSONAL = weighted({("WDT", "that"): 6, ("WDT", "which"): 4})

# --- frames -----------------------------------------------------------------------------------------------------------

FrameBuilder = Callable[[Draw, Verb, Nominal, int], Predicate]
_FRAMES: dict[str, tuple[FrameBuilder, int, bool]] = {}


def frame(name: str, weight: int, *, embeds: bool = False) -> Callable[[FrameBuilder], FrameBuilder]:
    """Register the builder of a frame; one that ``embeds`` a clause is not used at the greatest depth."""

    def register(builder: FrameBuilder) -> FrameBuilder:
        _FRAMES[name] = (builder, weight, embeds)
        return builder

    return register


@frame("v", 13)
def _intransitive(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    return Predicate(verb, adjuncts(draw, verb.scene, depth))


@frame("vt", 42)
def _transitive(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    direct_object = argument(draw, draw.uniform(verb.objects), depth, subject=subject).node.as_("obj")
    return Predicate(verb, [direct_object, *adjuncts(draw, verb.scene, depth)], is_stative=verb.lemma in STATIVE)


@frame("vm", 8)
def _motion(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    path = preposition_node(draw.pick(_PATHS))
    goal = phrase("PP", path, argument(draw, "place", depth).node).as_("obl")
    return Predicate(verb, [goal, *adjuncts(draw, verb.scene, depth + 1)])


@frame("vd", 7)
def _ditransitive(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    kind = draw.uniform(verb.objects)
    receiver = noun_phrase(draw, "person", depth + 1, subject=subject)
    if draw.chance(50):
        gift = common_noun_phrase(draw, kind, depth)
        rest = [receiver.node.as_("iobj"), gift.node.as_("obj")]
    else:
        gift = noun_phrase(draw, kind, depth + 1, subject=subject)
        to = preposition_node("for" if verb.lemma in ("buy", "sing") else "to")
        rest = [gift.node.as_("obj"), phrase("PP", to, receiver.node).as_("obl")]
    return Predicate(verb, rest + adjuncts(draw, verb.scene, depth + 1))


@frame("vc", 7, embeds=True)
def _that_clause(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    that = leaf("IN", "that").as_("mark") if draw.chance(65) else None
    return Predicate(verb, [phrase("SBAR", that, clause(draw, depth + 1)).as_("ccomp")], is_stative=True)


@frame("vq", 3, embeds=True)
def _indirect_question(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    if draw.chance(50):
        word = leaf("IN", draw.uniform(("whether", "if"))).as_("mark")
    else:
        word = phrase("WHADVP", leaf("WRB", draw.uniform(("where", "when", "why", "how")))).as_("advmod")
    return Predicate(verb, [phrase("SBAR", word, clause(draw, depth + 1)).as_("ccomp")], is_stative=True)


@frame("vi", 8, embeds=True)
def _infinitive(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    return Predicate(verb, [predicate(draw, subject, depth + 1).infinitive().as_("xcomp")], is_stative=True)


@frame("vo", 4, embeds=True)
def _object_and_infinitive(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    person = noun_phrase(draw, draw.uniform(verb.objects), depth + 1, subject=subject)
    action = predicate(draw, person, depth + 1).infinitive().as_("xcomp")
    return Predicate(verb, [person.node.as_("obj"), action])


@frame("vg", 3, embeds=True)
def _gerund(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    doing = phrase("S", action(draw, subject, depth + 1).verb_phrase("VBG")).as_("xcomp")
    return Predicate(verb, [doing], is_stative=True)


@frame("va", 4)
def _linking(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    return Predicate(verb, [adjective_phrase(draw, subject.kind, depth).as_("xcomp")], is_stative=True)


@frame("vp", 8)
def _prepositional(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    target = argument(draw, draw.uniform(verb.objects), depth, subject=subject).node
    goal = phrase("PP", preposition_node(verb.particle), target).as_("obl")
    return Predicate(verb, [goal, *adjuncts(draw, verb.scene, depth + 1)])


@frame("vr", 5)
def _particle(draw: Draw, verb: Verb, subject: Nominal, depth: int) -> Predicate:
    particle = phrase("PRT", leaf("RP", verb.particle)).as_("compound:prt")
    target = noun_phrase(draw, draw.uniform(verb.objects), depth + 1, subject=subject)
    thing = target.node.as_("obj")
    rest = [thing, particle] if target.pronoun or draw.chance(35) else [particle, thing]
    return Predicate(verb, rest + adjuncts(draw, verb.scene, depth + 1))


def copular(draw: Draw, subject: Nominal, depth: int) -> Predicate:
    """Return *be* with an adjective, a noun or a place."""
    choice = draw.below(10)
    if choice < 6 or subject.kind in ("idea", "event"):
        return Predicate(None, [adjective_phrase(draw, subject.kind, depth)])
    if choice < 8 and subject.kind in ("person", "animal", "place", "thing") and subject.agreement != "pl":
        return Predicate(None, [common_noun_phrase(draw, subject.kind, depth, indefinite=True, number="singular").node])
    return Predicate(None, [prepositional_phrase(draw, VERB_PPS["happening"], depth)])


def passive(draw: Draw, subject: Nominal, depth: int) -> Predicate:
    """Return a passive: *was seen by the cook in the garden*."""
    verb = draw.word(VERBS_BY_OBJECT[subject.kind])
    rest = adjuncts(draw, verb.scene, depth)
    if draw.chance(45):
        actor = noun_phrase(draw, draw.uniform(verb.subjects), depth + 1).node
        rest = [phrase("PP", preposition_node("by"), actor).as_("obl:agent"), *rest[:1]]
    return Predicate(verb, rest, is_passive=True)


def _frame_table(kind: str, *, embedding: bool, only_actions: bool = False) -> Table[str]:
    weights = {
        name: weight
        for name, (_, weight, embeds) in _FRAMES.items()
        if (name, kind) in VERBS_BY_SUBJECT and (embedding or not embeds)
    }
    if not only_actions:
        weights["be"] = 12
        weights["passive"] = 7 if kind in VERBS_BY_OBJECT else 0
    return weighted(weights)


_FRAME_TABLES = {(kind, deep): _frame_table(kind, embedding=not deep) for kind in KINDS for deep in (False, True)}
_ACTION_TABLES = {
    kind: _frame_table(kind, embedding=False, only_actions=True) for kind in KINDS if (("v", kind) in VERBS_BY_SUBJECT)
}


def predicate(draw: Draw, subject: Nominal, depth: int) -> Predicate:
    """Return a predicate that suits the subject."""
    name = draw.pick(_FRAME_TABLES[subject.kind, depth >= MAX_DEPTH])
    if name == "be":
        return copular(draw, subject, depth)
    if name == "passive":
        return passive(draw, subject, depth)
    return _FRAMES[name][0](draw, draw.word(VERBS_BY_SUBJECT[name, subject.kind]), subject, depth)


def action(draw: Draw, subject: Nominal, depth: int) -> Predicate:
    """Return a predicate with a verb of its own, neither copular nor passive nor with a clause inside."""
    name = draw.pick(_ACTION_TABLES[subject.kind])
    return _FRAMES[name][0](draw, draw.word(VERBS_BY_SUBJECT[name, subject.kind]), subject, depth)


# --- modifiers --------------------------------------------------------------------------------------------------------


def adjuncts(draw: Draw, scene: str, depth: int) -> list[Node]:
    """Return adverbs, places, companions and times that modify the verb."""
    modifiers = []
    if draw.chance(9):
        modifiers.append(adverb_phrase(draw, "manner"))
    if draw.chance(_PP_PERCENT[min(depth, 2)]):
        modifiers.append(prepositional_phrase(draw, VERB_PPS[scene], depth + 1).as_("obl"))
    elif draw.chance(5):
        modifiers.append(adverb_phrase(draw, "place"))
    if depth < 2 and draw.chance(11):
        modifiers.append(time_phrase(draw))
    elif draw.chance(5):
        modifiers.append(adverb_phrase(draw, "time"))
    return modifiers


def adverb_phrase(draw: Draw, use: str) -> Node:
    """Return an adverb of the given use, sometimes with a degree: *very slowly*."""
    degree = leaf("RB", draw.word(ADVERBS["degree"])).as_("advmod") if use == "manner" and draw.chance(12) else None
    return phrase("ADVP", degree, leaf("RB", draw.word(ADVERBS[use]))).as_("advmod")


def adjective_phrase(draw: Draw, kind: str, depth: int) -> Node:
    """Return a predicative adjective with its complements: *too old*, *proud of the cat*, *ready to leave*."""
    if kind == "person" and draw.chance(14):
        adjective, _, rest = draw.pick(_ADJECTIVES_WITH_PP).partition("_")
        preposition, _, target = rest.partition(":")
        about = phrase("PP", preposition_node(preposition), noun_phrase(draw, target, depth + 1).node).as_("obl")
        return phrase("ADJP", leaf("JJ", adjective), about)
    if kind == "person" and depth < MAX_DEPTH and draw.chance(12):
        what = action(draw, someone(), depth + 1).infinitive().as_("xcomp")
        return phrase("ADJP", leaf("JJ", draw.pick(_ADJECTIVES_TO)), what)
    adjective_word = draw.word(ADJECTIVES[kind])
    if draw.chance(22):
        degree = leaf("RB", draw.word(ADVERBS["degree"])).as_("advmod")
        return phrase("ADJP", degree, leaf("JJ", adjective_word.base))
    if draw.chance(8):
        second = leaf("JJ", draw.word(ADJECTIVES[kind]).base)
        joint = leaf("CC", draw.uniform(("and", "but"))).as_("cc", of=second)
        return phrase("ADJP", leaf("JJ", adjective_word.base), joint, second.as_("conj"))
    return phrase("ADJP", leaf("JJ", adjective_word.base))


# --- clauses ----------------------------------------------------------------------------------------------------------


def someone() -> Nominal:
    """Return an unspoken person: the subject of questions, commands, infinitives and participles."""
    return Nominal(phrase("NP"), "person", "3s", pronoun="you")


def subject_phrase(draw: Draw, depth: int) -> Nominal:
    """Return a subject of any kind."""
    return argument(draw, draw.pick(_SUBJECT_KINDS), depth, nominative=True)


def clause(
    draw: Draw,
    depth: int = 0,
    *,
    subject: Nominal | None = None,
    what: Predicate | None = None,
    modal: str = "",
    pattern: str = "",
) -> Node:
    """Return a finite clause S; a subject, predicate, modal or verb pattern that is not given is drawn."""
    subject = subject or subject_phrase(draw, depth)
    what = what or predicate(draw, subject, depth)
    group = finite(draw, what, subject.agreement, modal=modal, pattern=pattern)
    contract(draw, group, subject.pronoun)
    often = None
    if group.children[0].role == "head" and draw.chance(6):
        often = phrase("ADVP", leaf("RB", draw.word(ADVERBS["frequency"]))).as_("advmod")
    return phrase("S", subject.node.as_(what.subject_role), often, group)


def argument(draw: Draw, kind: str, depth: int, *, nominative: bool = False, subject: Nominal | None = None) -> Nominal:
    """Return a noun phrase that may have a clause inside: *the cook who sings*, *the plan to leave*."""
    nominal = noun_phrase(draw, kind, depth, nominative=nominative, subject=subject)
    if not nominal.pronoun and not nominal.is_name and draw.chance(_CLAUSE_PERCENT[min(depth, 2)]):
        modifier = noun_clause(draw, nominal, depth + 1)
        nominal.node = phrase("NP", nominal.node, modifier)
    return nominal


def noun_clause(draw: Draw, noun: Nominal, depth: int) -> Node:
    """Return a clause that modifies the noun."""
    choice = draw.below(10)
    if noun.kind == "idea" and choice < 3:
        that = leaf("IN", "that").as_("mark")
        return phrase("SBAR", that, clause(draw, depth)).as_("acl")
    if noun.kind == "idea" and choice < 5:
        return action(draw, someone(), depth).infinitive().as_("acl")
    if noun.kind == "place" and choice < 4:
        where = phrase("WHADVP", leaf("WRB", "where")).as_("advmod")
        return phrase("SBAR", where, clause(draw, depth)).as_("acl:relcl")
    if noun.kind in ("person", "animal") and choice < 2:
        return action(draw, noun, depth).verb_phrase("VBG").as_("acl")
    if noun.kind in VERBS_BY_OBJECT and choice < 4:
        return passive(draw, noun, depth).participle().as_("acl")
    if noun.kind in VERBS_BY_OBJECT and choice < 7:
        return object_relative(draw, noun, depth)
    return subject_relative(draw, noun, depth)


def relative_pronoun(draw: Draw, kind: str) -> Node:
    """Return *who*, *that* or *which*."""
    return phrase("WHNP", leaf(*draw.pick(_PERSONAL if kind in ("person", "group") else _IMPERSONAL)))


def subject_relative(draw: Draw, noun: Nominal, depth: int) -> Node:
    """Return a relative clause in which the noun is the subject."""
    what = predicate(draw, noun, depth)
    group = finite(draw, what, noun.agreement)
    return phrase("SBAR", relative_pronoun(draw, noun.kind).as_(what.subject_role), phrase("S", group)).as_("acl:relcl")


def object_relative(draw: Draw, noun: Nominal, depth: int) -> Node:
    """Return a relative clause in which the noun is the object, with or without a pronoun."""
    verb = draw.word(VERBS_BY_OBJECT[noun.kind])
    subject = noun_phrase(draw, draw.uniform(verb.subjects), depth + 1, nominative=True)
    what = Predicate(verb, adjuncts(draw, verb.scene, depth + 1)[:1], is_stative=True)
    pronoun = relative_pronoun(draw, noun.kind).as_("obj") if draw.chance(65) else None
    return phrase("SBAR", pronoun, clause(draw, depth, subject=subject, what=what)).as_("acl:relcl")
