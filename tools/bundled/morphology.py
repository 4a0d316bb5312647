"""English spelling rules: plurals, verb forms, comparison, derivation by suffix and prefix, and a or an."""

import re

_VOWELS = frozenset("aeiou")

_IRREGULAR_PLURALS = """child:children goose:geese mouse:mice ox:oxen tooth:teeth foot:feet piano:pianos human:humans
    moose:moose sheep:sheep deer:deer fish:fish"""
_PLURALS = dict(pair.split(":") for pair in _IRREGULAR_PLURALS.split())
_F_TO_VES = ("thief", "knife", "wolf", "leaf", "loaf", "shelf", "scarf", "calf")

# lemma: past tense and past participle
_IRREGULAR = {
    lemma: (past, participle)
    for lemma, past, participle in (
        row.split()
        for row in """
        be was been / have had had / do did done / eat ate eaten / drink drank drunk / go went gone / see saw seen
        give gave given / take took taken / write wrote written / ride rode ridden / drive drove driven
        steal stole stolen / break broke broken / choose chose chosen / hide hid hidden
        bite bit bitten / fall fell fallen / forget forgot forgotten / know knew known / throw threw thrown
        draw drew drawn / fly flew flown / grow grew grown / sing sang sung / swim swam swum / sink sank sunk
        begin began begun / ring rang rung / run ran run / come came come / become became become
        sleep slept slept / keep kept kept / feel felt felt / leave left left / lose lost lost / meet met met
        feed fed fed / read read read / lead led led / find found found / hold held held / tell told told
        sell sold sold / buy bought bought / bring brought brought / think thought thought / catch caught caught
        teach taught taught / fight fought fought / seek sought sought / say said said / pay paid paid
        make made made / hear heard heard / build built built / send sent sent / lend lent lent / spend spent spent
        win won won / sit sat sat / stand stood stood / understand understood understood / put put put / cut cut cut
        cost cost cost / shut shut shut / hit hit hit / let let let / set set set / wake woke woken / tear tore torn
        wear wore worn / swear swore sworn / shake shook shaken / kneel knelt knelt / creep crept crept
        sweep swept swept / dig dug dug / hang hung hung / stick stuck stuck / shine shone shone / light lit lit
        overhear overheard overheard / bend bent bent / blow blew blown / sew sewed sewn / spin spun spun
        spread spread spread / speak spoke spoken
        """.replace("\n", "/").split("/")
        if row.strip()
    )
}
_DOUBLED = frozenset(("admit", "prefer", "regret", "begin", "forget", "permit"))
_PREFIXES = ("re", "over", "mis", "under", "out", "un")
_AN_BEFORE = ("hour", "honest", "heir", "honour", "unim", "unin", "8")
_A_BEFORE = ("uni", "use", "usu", "eu", "ewe", "one")


def takes_an(word: str) -> bool:
    """Return whether the indefinite article before ``word`` is *an*."""
    lower = word.lower()
    if lower.startswith(_AN_BEFORE) or lower in ("11", "18"):
        return True
    return lower[0] in _VOWELS and not lower.startswith(_A_BEFORE)


def plural(noun: str) -> str:
    """Return the plural of a noun; ``"fisherman"`` gives ``"fishermen"``."""
    if noun in _PLURALS:
        return _PLURALS[noun]
    if noun.endswith("man"):
        return noun[:-2] + "en"
    if noun.endswith(_F_TO_VES):
        return (noun[:-2] if noun.endswith("fe") else noun[:-1]) + "ves"
    return third_person(noun)


def third_person(word: str) -> str:
    """Add -s, -es or -ies: the third person singular of a verb, the plural of a regular noun."""
    if word == "have":
        return "has"
    if word.endswith(("s", "x", "z", "ch", "sh")) or (word.endswith("o") and word[-2] not in _VOWELS):
        return word + "es"
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def _doubles(stem: str) -> bool:
    """Return whether a final consonant doubles before a vowel: one vowel and one consonant at the end, stressed."""
    for prefix in _PREFIXES:
        if stem.startswith(prefix) and len(stem) - len(prefix) > 2:
            stem = stem.removeprefix(prefix)
    if stem in _DOUBLED:
        return True
    if len(stem) < 3 or stem[-1] in "aeiouwxy" or stem[-2] not in _VOWELS:
        return False
    return not any(letter in "aeiouy" for letter in stem[:-2].removeprefix("qu"))


def _before_vowel(stem: str) -> str:
    """Return the stem before -ed, -er or -est: doubled, without a silent e, with i for y."""
    if stem.endswith("e"):
        return stem[:-1]
    if stem.endswith("y") and stem[-2] not in _VOWELS:
        return stem[:-1] + "i"
    return stem + stem[-1] if _doubles(stem) else stem


def _irregular(lemma: str) -> tuple[str, str] | None:
    """Look up past and participle, also below a prefix: *rebuild* goes like *build*."""
    for prefix in ("", *_PREFIXES):
        stem = lemma.removeprefix(prefix)
        if lemma == prefix + stem and stem in _IRREGULAR and (len(stem) > 2 or not prefix):
            past, participle = _IRREGULAR[stem]
            return prefix + past, prefix + participle
    return None


def verb_forms(lemma: str) -> dict[str, str]:
    """Return the forms of a verb (other than *be*) by their Penn tags."""
    regular = _before_vowel(lemma) + "ed"
    past, participle = _irregular(lemma) or (regular, regular)
    return {
        "VB": lemma,
        "VBP": lemma,
        "VBZ": third_person(lemma),
        "VBD": past,
        "VBN": participle,
        "VBG": gerund(lemma),
    }


def gerund(lemma: str) -> str:
    """Return the -ing form."""
    if lemma.endswith("ie"):
        return lemma[:-2] + "ying"
    if lemma.endswith("e") and not lemma.endswith(("ee", "oe", "ye")) and len(lemma) > 2:
        return lemma[:-1] + "ing"
    return lemma + (lemma[-1] if _doubles(lemma) else "") + "ing"


def _n_syllables(word: str) -> int:
    """Count groups of vowels, without a silent e at the end."""
    return max(len(re.findall("[aeiouy]+", word.removesuffix("e"))), 1)


_COMPARISON = {
    "good": ("better", "best"),
    "bad": ("worse", "worst"),
    "shy": ("shyer", "shyest"),
    **dict.fromkeys(("loyal", "daily", "burnt", "human", "nearby")),
}


def comparison(adjective: str) -> tuple[str, str] | None:
    """Return comparative and superlative in -er and -est, or None where English says *more* and *most*."""
    if adjective in _COMPARISON:
        return _COMPARISON[adjective]
    n = _n_syllables(adjective)
    if n == 1 or (n == 2 and adjective.endswith("y")):
        stem = _before_vowel(adjective)
        return stem + "er", stem + "est"
    return None


_ADVERBS = {"good": "well", "true": "truly", "public": "publicly"}


def adverb(adjective: str) -> str:
    """Return the adverb in -ly."""
    if adjective in _ADVERBS:
        return _ADVERBS[adjective]
    if adjective.endswith("y") and _n_syllables(adjective) > 1:
        return adjective[:-1] + "ily"
    if adjective.endswith("le"):
        return adjective[:-1] + "y"
    if adjective.endswith("ic"):
        return adjective + "ally"
    return adjective + ("y" if adjective.endswith("ll") else "ly")


def ness(adjective: str) -> str:
    """Return the quality: *happy* gives *happiness*."""
    return (adjective[:-1] + "i" if adjective.endswith("y") else adjective) + "ness"


def agent(verb: str) -> str:
    """Return who does it: *paint* gives *painter*, *inspect* gives *inspector*."""
    return _before_vowel(verb) + ("or" if verb.endswith(("ate", "ct", "it")) else "er")


def able(verb: str) -> str:
    """Return what can be done to a thing: *wash* gives *washable*."""
    stem = _before_vowel(verb)
    return (stem if not verb.endswith(("ce", "ge")) else verb) + "able"
