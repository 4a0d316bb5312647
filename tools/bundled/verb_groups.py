"""Verb groups: tense, modals, aspect, negation and inversion around a predicate that is built elsewhere."""

from dataclasses import dataclass, field

from tools.bundled.lexicon import ADVERBS, Verb
from tools.bundled.morphology import verb_forms
from tools.bundled.nodes import Node, leaf, phrase
from tools.bundled.noun_phrases import Nominal
from tools.bundled.sampling import Draw, weighted

_BE = {"VB": "be", "VBN": "been", "VBG": "being"}
_BE_FINITE = {
    "1s": {"VBD": "was", "VBP": "am"},
    "3s": {"VBD": "was", "VBZ": "is"},
    "pl": {"VBD": "were", "VBP": "are"},
}
_HAVE, _DO = verb_forms("have"), verb_forms("do") | {"VBZ": "does"}
_PAST_MODALS = weighted({"would": 4, "could": 4, "should": 2, "might": 2})
_MODALS = weighted({"will": 5, "can": 5, "should": 3, "must": 3, "may": 2, "might": 1, "would": 1})
_PATTERNS = weighted(
    {"simple": 68, "modal": 10, "perfect": 6, "progressive": 7, "negated": 7, "modal perfect": 1}
    | {"perfect progressive": 1}
)
_PATTERNS_WITH_AUXILIARY = weighted({"do": 5, "modal": 3, "perfect": 1, "progressive": 2})
_CONTRACTED_NOT = frozenset(
    ("did", "does", "do", "is", "are", "was", "were", "has", "have", "had", "would", "could", "should")
)
_CONTRACTED = {"is": "'s", "has": "'s", "are": "'re", "am": "'m", "will": "'ll", "have": "'ve", "would": "'d"}


@dataclass(slots=True)
class Predicate:
    """A verb with what follows it, before tense and agreement are known.

    A copular predicate has no ``verb``: *be* is its marker, and the head is one of the nodes in ``rest``.
    """

    verb: Verb | None
    rest: list[Node] = field(default_factory=list)
    is_passive: bool = False
    is_stative: bool = False

    @property
    def subject_role(self) -> str:
        """The relation of the subject."""
        return "nsubj:pass" if self.is_passive else "nsubj"

    def verb_phrase(self, form: str, agreement: str = "3s") -> Node:
        """Return the VP with its first verb in the form of this Penn tag."""
        if self.verb is None:
            return phrase("VP", leaf(form, be(form, agreement)).as_("cop"), *self.rest)
        if self.is_passive:
            return phrase("VP", leaf(form, be(form, agreement)).as_("aux:pass"), self.participle())
        return phrase("VP", leaf(form, self.verb.forms[form]), *self.rest)

    def participle(self) -> Node:
        """Return the bare VP of a passive: *sold by the cook*."""
        assert self.verb is not None, "a copula has no passive"
        return phrase("VP", leaf("VBN", self.verb.forms["VBN"]), *self.rest)

    def infinitive(self) -> Node:
        """Return the clause *to do it*."""
        return phrase("S", phrase("VP", leaf("TO", "to").as_("mark"), self.verb_phrase("VB")))

    @property
    def has_auxiliary(self) -> bool:
        """Whether the simple tenses start with a form of *be*."""
        return self.verb is None or self.is_passive

    @property
    def has_progressive(self) -> bool:
        """Whether *be doing it* makes sense."""
        return self.verb is not None and not self.is_stative


def be(form: str, agreement: str) -> str:
    """Return a form of *be*."""
    return _BE.get(form) or _BE_FINITE[agreement][form]


def tense(draw: Draw, agreement: str) -> str:
    """Return the tag of the finite verb: the tense of the sentence, with few exceptions, and the subject's number."""
    if draw.in_past != draw.chance(6):
        return "VBD"
    return "VBZ" if agreement == "3s" else "VBP"


def finite(draw: Draw, predicate: Predicate, agreement: str, *, modal: str = "", pattern: str = "") -> Node:
    """Return a finite VP with the given ``modal``, in the given ``pattern``, or else a random one."""
    pattern = "modal" if modal else pattern or draw.pick(_PATTERNS)
    if pattern == "simple" or (pattern == "progressive" and not predicate.has_progressive):
        return predicate.verb_phrase(tense(draw, agreement), agreement)
    if pattern == "negated":
        return negate(draw, _with_auxiliary(draw, predicate, agreement, "do"))
    group = _with_auxiliary(draw, predicate, agreement, pattern, modal)
    if group.children[0].label != "VBD" and draw.chance(8):
        return negate(draw, group)
    if draw.chance(8):
        group.children.insert(1, phrase("ADVP", leaf("RB", draw.word(ADVERBS["middle"]))).as_("advmod"))
    return group


def _with_auxiliary(draw: Draw, predicate: Predicate, agreement: str, pattern: str, modal: str = "") -> Node:
    """Return a VP whose first word is an auxiliary (or the copula)."""
    past_or_present = tense(draw, agreement)
    if pattern == "progressive" and predicate.has_progressive:
        auxiliary = leaf(past_or_present, be(past_or_present, agreement)).as_("aux")
        return phrase("VP", auxiliary, predicate.verb_phrase("VBG"))
    if pattern == "perfect progressive" and predicate.has_progressive and not predicate.is_passive:
        been = phrase("VP", leaf("VBN", "been").as_("aux"), predicate.verb_phrase("VBG"))
        return phrase("VP", leaf(past_or_present, _HAVE[past_or_present]).as_("aux"), been)
    if pattern.startswith("perfect"):
        return phrase("VP", leaf(past_or_present, _HAVE[past_or_present]).as_("aux"), predicate.verb_phrase("VBN"))
    if pattern == "modal perfect":
        have = phrase("VP", leaf("VB", "have").as_("aux"), predicate.verb_phrase("VBN"))
        return phrase("VP", leaf("MD", draw.uniform(("could", "should", "must", "might"))).as_("aux"), have)
    if pattern == "modal":
        modal = modal or draw.pick(_PAST_MODALS if draw.in_past else _MODALS)
        return phrase("VP", leaf("MD", modal).as_("aux"), predicate.verb_phrase("VB"))
    if predicate.has_auxiliary:
        return predicate.verb_phrase(past_or_present, agreement)
    return phrase("VP", leaf(past_or_present, _DO[past_or_present]).as_("aux"), predicate.verb_phrase("VB"))


def negate(draw: Draw, group: Node) -> Node:
    """Put *not* or *n't* after the first auxiliary."""
    contracted = group.children[0].word in _CONTRACTED_NOT and draw.chance(55)
    group.children.insert(1, leaf("RB", "n't" if contracted else "not").as_("advmod"))
    return group


def contract(draw: Draw, group: Node, pronoun: str) -> None:
    """Shorten the auxiliary after a pronoun: *he 's*, *they 're*, *I 'll*."""
    first = group.children[0]
    if pronoun and first.role != "head" and group.children[1].word != "n't" and draw.chance(40):
        first.word = _CONTRACTED.get(first.word, first.word)


def inverted(draw: Draw, predicate: Predicate, subject: Nominal) -> Node:
    """Return the question clause SQ: auxiliary, subject, and the rest of the verb group."""
    group = _with_auxiliary(draw, predicate, subject.agreement, draw.pick(_PATTERNS_WITH_AUXILIARY))
    if draw.chance(8):
        negate(draw, group)
    n_before = 2 if group.children[1].word == "n't" else 1
    first, rest = group.children[:n_before], group.children[n_before:]
    return phrase("SQ", *first, subject.node.as_(predicate.subject_role), *rest)
