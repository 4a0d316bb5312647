"""Sentences: every type is one function from a ``Draw`` to the root phrase without its final mark.

The functions stand under ``@construction`` with their share and mark; to add a type, write such a function.
"""

from collections.abc import Callable

from tools.bundled import vocabulary
from tools.bundled.attachment import VERB_PPS
from tools.bundled.clauses import (
    action,
    adjuncts,
    adverb_phrase,
    argument,
    clause,
    copular,
    passive,
    predicate,
    someone,
    subject_phrase,
    subject_relative,
)
from tools.bundled.lexicon import ADJECTIVES, ADVERBS, GIVEN_NAMES, NOUNS, VERBS_BY_OBJECT, VERBS_BY_SUBJECT
from tools.bundled.morphology import plural, verb_forms
from tools.bundled.nodes import Node, leaf, phrase
from tools.bundled.noun_phrases import (
    Nominal,
    common_noun_phrase,
    conjoin,
    count,
    name,
    noun_phrase,
    preposition_node,
    prepositional_phrase,
    superlative_phrase,
    time_phrase,
)
from tools.bundled.sampling import Draw, Table, zipf
from tools.bundled.verb_groups import Predicate, be, finite, inverted, negate, tense

Construction = Callable[[Draw], Node]
_REGISTERED: dict[str, tuple[tuple[Construction, str], int]] = {}
_UNITS = zipf(vocabulary.UNITS.split())
_CLEAR = zipf(vocabulary.ADJECTIVES_IT.split())
_HARD = zipf(vocabulary.ADJECTIVES_HARD.split())
_CONJUNCTIONS = zipf(vocabulary.CONJUNCTIONS.split())


def construction(share: int, end: str = ".") -> Callable[[Construction], Construction]:
    """Register a type of sentence with its share (per thousand, approximately) and its final mark."""

    def register(build: Construction) -> Construction:
        assert build.__name__ not in _REGISTERED, f"two constructions are called {build.__name__}"
        _REGISTERED[build.__name__] = ((build, end), share)
        return build

    return register


def comma(of: Node | None = None) -> Node:
    """Return a comma that hangs from the head of its phrase, or of another one."""
    return leaf(",", ",").as_("punct", of=of)


def fronted(first: Node, rest: Node) -> Node:
    """Put a phrase and a comma before a clause."""
    return phrase("S", first, comma(), *rest.children)


def wh(word: str) -> Node:
    """Return a question word as a phrase."""
    tag = {"what": "WP", "who": "WP", "which": "WDT"}.get(word, "WRB")
    return phrase("WHADVP" if tag == "WRB" else "WHNP", leaf(tag, word))


def question(draw: Draw, asked: Node, what: Predicate, subject: Nominal) -> Node:
    """Return a question that starts with the phrase asked for."""
    return phrase("SBARQ", asked, inverted(draw, what, subject))


# --- statements of one clause -----------------------------------------------------------------------------------------


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
    return fronted(first, clause(draw))


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
    node = phrase("NP", person.node, comma(of=extra), extra, comma(of=extra))
    return clause(draw, subject=Nominal(node, "person", person.agreement))


# --- statements of several clauses ------------------------------------------------------------------------------------


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
    return fronted(adverbial_clause(draw), clause(draw, 1))


@construction(15)
def conditional(draw: Draw) -> Node:
    """*If the soup is hot, the cook will smile*."""
    condition = adverbial_clause(draw, conjunction="if")
    rest = clause(draw, 1, modal=draw.uniform(("would", "might") if draw.in_past else ("will", "may", "must")))
    return fronted(condition, rest)


@construction(40)
def two_clauses(draw: Draw) -> Node:
    """*The cook smiled, and the dog slept*."""
    first, second = clause(draw, 1), clause(draw, 1)
    joint = leaf("CC", draw.uniform(("and", "but", "and", "or", "so"))).as_("cc", of=second)
    return phrase("S", first, comma(of=second), joint, second.as_("conj"))


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
    return fronted(doing.as_("advcl"), rest)


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


@construction(12)
def doing_is_hard(draw: Draw) -> Node:
    """*Selling hats is hard*."""
    doing = phrase("S", action(draw, someone(), 1).verb_phrase("VBG")).as_("csubj")
    degree = leaf("RB", draw.word(ADVERBS["degree"])).as_("advmod") if draw.chance(30) else None
    what = Predicate(None, [phrase("ADJP", degree, leaf("JJ", draw.pick(_HARD)))])
    return phrase("S", doing, finite(draw, what, "3s", pattern="simple"))


# --- questions, commands and exclamations -----------------------------------------------------------------------------


@construction(35, end="?")
def yes_no_question(draw: Draw) -> Node:
    """*Did the cook sell a hat?*."""
    subject = subject_phrase(draw, 1)
    return inverted(draw, predicate(draw, subject, 1), subject)


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
    return question(draw, asked.as_("obj"), what, subject)


@construction(18, end="?")
def adverb_question(draw: Draw) -> Node:
    """*Where did the cook sell a hat?*."""
    subject = subject_phrase(draw, 1)
    what = predicate(draw, subject, 1)
    return question(draw, wh(draw.uniform(("why", "where", "when", "how"))).as_("advmod"), what, subject)


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


# --- sentences with crossing arcs: extraposed relative clauses and fronted question words -----------------------------


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
    return question(draw, wh("what").as_("obj", of=inner), what, subject)


@construction(3, end="?")
def stranded_preposition(draw: Draw) -> Node:
    """*Who did the cook talk to?*: the preposition belongs to *who*."""
    verb = draw.word(VERBS_BY_SUBJECT["vp", "person"])
    subject = noun_phrase(draw, "person", 1, nominative=True)
    asked = wh("who" if verb.scene == "social" else "what").as_("obl")
    left = phrase("PP", leaf("TO" if verb.particle == "to" else "IN", verb.particle)).as_("case", of=asked)
    return question(draw, asked, Predicate(verb, [left]), subject)


# By name, so that the order of the functions does not matter.
_CONSTRUCTIONS = Table(_REGISTERED[name] for name in sorted(_REGISTERED))


def sentence(draw: Draw) -> Node:
    """Return the tree of one sentence of a random type."""
    draw.start_sentence()
    build, end = draw.pick(_CONSTRUCTIONS)
    root = build(draw)
    root.children.append(leaf(".", end).as_("punct"))
    return root
