"""Words to draw from: the hand-written vocabulary with inflected and derived forms, some of them held back.

Derived words (*hatmaker*, *repaint*, *sourness*, *foxlike*) follow their stems in rank. One in
three of them is a known word. The others are held back: they never occur in a corpus with ``unseen=0``, so they are
unknown words with informative suffixes in the development and test parts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from tools.bundled import morphology, vocabulary
from tools.bundled.sampling import WordTable, zipf

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun; a mass noun has an empty plural."""

    singular: str
    plural: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective; the degrees are empty where English says more and most."""

    base: str
    comparative: str
    superlative: str


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb in one of its frames; ``forms`` by Penn tag, ``particle`` also for its preposition."""

    lemma: str
    forms: dict[str, str]
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    scene: str
    particle: str


def _interleave(*lists: Sequence[T]) -> list[T]:
    """Merge ranked lists: all first items, then all second ones, and so on."""
    longest = max(map(len, lists))
    return [items[rank] for rank in range(longest) for items in lists if rank < len(items)]


def _hold_back(derived: Iterable[str], known: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return every third derived word, and the others, without words in ``known`` and duplicates."""
    taken = frozenset(known)
    new = [word for word in dict.fromkeys(derived) if word not in taken]
    return new[::3], [word for i, word in enumerate(new) if i % 3]


def _compose(beginnings: str, endings: str) -> list[str]:
    return [first + last for first in beginnings.split() for last in endings.split()]


# --- verbs ------------------------------------------------------------------------------------------------------------

# Prefixes that make a new transitive verb, by scene.
_PREFIXES = {"handling": ("re",), "thinking": ("re", "mis"), "eating": ("over", "re"), "social": ("over",)}

STATIVE = frozenset(vocabulary.STATIVE.split())


def _verb(entry: str, frame: str, subjects: str, objects: str, scene: str) -> Verb:
    lemma, _, particle = entry.partition("_")
    forms = morphology.verb_forms(lemma)
    return Verb(lemma, forms, frame, tuple(subjects.split()), tuple(objects.strip("-").split()), scene, particle)


def _read_verbs() -> list[tuple[list[Verb], list[Verb]]]:
    """Return known and held-back verbs for every row of the vocabulary."""
    lines: list[tuple[list[str], list[str]]] = []
    for line in vocabulary.VERBS.strip().splitlines():
        if "|" in line:
            lines.append(([field.strip() for field in line.split("|")[:4]], []))
        else:
            lines[-1][1].extend(line.split())
    derived = [_derived_verbs(fields, entries) for fields, entries in lines]
    hand_written = [entry for _, entries in lines for entry in entries]
    _, held_back = map(frozenset, _hold_back([verb for row in derived for verb in row], hand_written))
    rows = []
    for (fields, entries), new in zip(lines, derived, strict=True):
        known = entries + [verb for verb in new if verb not in held_back and verb not in hand_written]
        rows.append(([_verb(v, *fields) for v in known], [_verb(v, *fields) for v in new if v in held_back]))
    return rows


def _derived_verbs(fields: list[str], entries: list[str]) -> list[str]:
    """Return the prefixed verbs of a row: what people do to things can be redone, overdone or misdone."""
    frame, subjects, _, scene = fields
    prefixes = _PREFIXES.get(scene, ()) if frame == "vt" and "person" in subjects else ()
    stems = [entry for entry in entries if entry not in STATIVE and not entry.startswith(("re", "un", "e", "o"))]
    return [prefix + stem for stem in stems for prefix in prefixes]


_VERB_ROWS = _read_verbs()


def _verb_table(frame: str, subject: str = "", direct_object: str = "") -> WordTable[Verb] | None:
    """Return the verbs of a frame that take this subject or object, or None."""
    rows = [
        (known, held_back)
        for known, held_back in _VERB_ROWS
        if known[0].frame == frame
        and (not subject or subject in known[0].subjects)
        and (not direct_object or direct_object in known[0].objects)
    ]
    if not rows:
        return None
    known, held_back = zip(*rows, strict=True)
    return WordTable(zipf(_interleave(*known)), tuple(chain.from_iterable(held_back)))


FRAMES = tuple(dict.fromkeys(known[0].frame for known, _ in _VERB_ROWS))
KINDS = (*vocabulary.COUNT_NOUNS, "stuff")
VERBS_BY_SUBJECT = {
    (frame, kind): table for frame in FRAMES for kind in KINDS if (table := _verb_table(frame, subject=kind))
}
VERBS_BY_OBJECT = {kind: table for kind in KINDS if (table := _verb_table("vt", direct_object=kind))}


def _stems(scene: str) -> list[str]:
    """Return what people do to things in a scene, by lemma and without prefixed verbs."""
    verbs = [verb for known, _ in _VERB_ROWS for verb in known if verb.frame == "vt" and verb.scene == scene]
    lemmas = dict.fromkeys(verb.lemma for verb in verbs if "person" in verb.subjects)
    return [lemma for lemma in lemmas if lemma not in STATIVE and not lemma.startswith(("re", "over", "mis", "un"))]


# --- nouns ------------------------------------------------------------------------------------------------------------

_COMPOUNDS = {
    "person": ("hat clock candle goat pie boat bell rope sheep lamp bee kite cart soap", "maker seller keeper"),
    "animal": ("river snow moon marsh wood hill mud", "cat fox owl frog goat hen beetle"),
    "food": ("plum onion cherry honey pepper nut turnip", "cake pie bun tart loaf"),
    "tool": ("tea soup honey ink boot dust hay", "spoon brush knife fork"),
    "wear": ("rain snow wool straw ball dust", "hat coat glove boot cap"),
    "thing": ("hat tea letter bread egg coin bird", "stand rack case box cart"),
    "place": ("clock goat fish candle hat wool barrel", "shop house yard market"),
    "event": ("pie goat kite snow pumpkin cheese", "fest race day fight"),
    "idea": ("counter half under sub", "plan offer question story claim plot argument theory"),
}
_COMPOUND_STUFF = {
    "food": ("plum onion goat pear nut turnip rose", "jam soup milk juice bread"),
    "stuff": ("river silver goat horse rock bone", "dust water wool paper glue"),
}


def _count(word: str) -> Noun:
    return Noun(word, morphology.plural(word))


def _noun_table(kind: str) -> WordTable[Noun]:
    count = vocabulary.COUNT_NOUNS.get(kind, "").split()
    mass = vocabulary.MASS_NOUNS.get(kind, "").split()
    new_count = _compose(*_COMPOUNDS[kind]) if kind in _COMPOUNDS else []
    new_mass = _compose(*_COMPOUND_STUFF[kind]) if kind in _COMPOUND_STUFF else []
    if kind == "person":
        agents = [morphology.agent(verb) for verb in _stems("handling") + _stems("social") + _stems("thinking")]
        new_count = _interleave(new_count, agents)
    if kind == "idea":
        new_mass = [
            morphology.ness(word)
            for word in _all_adjectives()
            if not word.endswith(("ic", "al", "ed", "ful", "ing", "nt", "ble"))
        ]
    # These have other meanings: a drawer is furniture, tamer is a comparative.
    other_nouns = [word for words in vocabulary.COUNT_NOUNS.values() for word in words.split()]
    degrees = [degree for word in _all_adjectives() for degree in morphology.comparison(word) or ()]
    more_count, held_count = _hold_back(new_count, other_nouns + degrees)
    more_mass, held_mass = _hold_back(new_mass, mass)
    known = _interleave(list(map(_count, count + more_count)), list(map(Noun, mass + more_mass)))
    return WordTable(zipf(known), (*map(_count, held_count), *map(Noun, held_mass)))


def _all_adjectives() -> list[str]:
    return list(dict.fromkeys(word for words in vocabulary.ADJECTIVES.values() for word in words.split()))


NOUNS = {kind: _noun_table(kind) for kind in KINDS}

# --- adjectives and adverbs -------------------------------------------------------------------------------------------

_ADJECTIVES_OF = {
    **dict.fromkeys(("tool", "container", "furniture", "wear", "stuff"), "thing"),
    **dict.fromkeys(("trait", "time"), "any"),
    "group": "person",
}


def _adjective(word: str) -> Adjective:
    comparative, superlative = morphology.comparison(word) or ("", "")
    return Adjective(word, comparative, superlative)


def _derived_adjectives(kind: str) -> list[str]:
    """Return adjectives in un-, -less, -like, -ish and -able that suit the kind."""
    if kind in ("person", "animal"):
        stems = (vocabulary.COUNT_NOUNS["wear"] + " " + vocabulary.COUNT_NOUNS["trait"]).split()
        likenesses = [word + ending for word in vocabulary.COUNT_NOUNS["animal"].split() for ending in ("like", "ish")]
        usable = [word for word in likenesses if not word.endswith(("eish", "yish", "xish", "tish", "gish"))]
        negative = ["un" + word for word in vocabulary.UN_PERSON.split()]
        return _interleave([stem + "less" for stem in stems], usable, negative)
    if kind in ("thing", "food"):
        handling = _stems("handling")
        stems = handling if kind == "thing" else [stem for stem in _stems("eating") if stem not in handling]
        return _interleave([morphology.able(v) for v in stems], ["un" + morphology.able(v) for v in stems])
    if kind == "place":
        return [noun + "less" for noun in vocabulary.LESS_PLACE.split()]
    return ["un" + word for word in vocabulary.UN_IDEA.split()]


def _adjective_table(kind: str) -> WordTable[Adjective]:
    source = _ADJECTIVES_OF.get(kind, kind)
    everything = vocabulary.ADJECTIVES["any"].split()
    if source == "any":
        return WordTable(zipf(map(_adjective, everything)))
    own = vocabulary.ADJECTIVES[source].split()
    more, held_back = _hold_back(_derived_adjectives(source), own)
    known = dict.fromkeys(_interleave(own + more, everything))
    return WordTable(zipf(map(_adjective, known)), tuple(map(_adjective, held_back)))


ADJECTIVES = {kind: _adjective_table(kind) for kind in KINDS}

_NO_ADVERB = frozenset(vocabulary.WITHOUT_ADVERB.split())


def _adverb_table(use: str) -> WordTable[str]:
    known = vocabulary.ADVERBS[use].split()
    if use != "manner":
        return WordTable(zipf(known))
    stems = [word for word in vocabulary.ADJECTIVES["person"].split() if word not in _NO_ADVERB]
    in_other_uses = [word for words in vocabulary.ADVERBS.values() for word in words.split()]
    derived = [morphology.adverb(stem) for stem in stems if not stem.endswith(("ly", "ed"))]
    more, held_back = _hold_back(derived, in_other_uses)
    return WordTable(zipf(known + more), tuple(held_back))


ADVERBS = {use: _adverb_table(use) for use in vocabulary.ADVERBS}

# --- names ------------------------------------------------------------------------------------------------------------


def _name_table(beginnings: str, endings: str, n_known: int) -> WordTable[str]:
    """Mix all compositions by a stride, so that names of neighboring ranks start differently."""
    clashes = ("aa", "ae", "ea", "ei", "ee", "oa", "oe", "oi", "dd", "kk", "ll", "mm", "nn", "rr", "tt", "ww")
    names = [name for name in _compose(beginnings, endings) if not any(pair in name[1:] for pair in clashes)]
    assert len(names) % 37, "the stride must meet every name"
    mixed = [names[i * 37 % len(names)] for i in range(len(names))]
    return WordTable(zipf(mixed[:n_known]), tuple(mixed[n_known:]))


GIVEN_NAMES = _name_table(*vocabulary.GIVEN_NAMES, n_known=80)
FAMILY_NAMES = _name_table(*vocabulary.FAMILY_NAMES, n_known=80)
PLACE_NAMES = _name_table(*vocabulary.PLACE_NAMES, n_known=60)
