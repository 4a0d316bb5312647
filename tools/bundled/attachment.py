"""Preferences of nouns and verbs for prepositional phrases.

The two tables overlap on purpose: *with* and a tool may belong to the man who is seen or to the seeing, *in* and a
place to nearly anything. The words make one attachment more likely, but rarely certain.
"""

from tools.bundled.sampling import Table, weighted

Preference = Table[tuple[str, str]]


def preferences(text: str) -> Preference:
    """Read ``"with tool 5, in place 4"``."""
    entries = [entry.split() for entry in text.split(",")]
    return weighted({(preposition, kind): int(weight) for preposition, kind, weight in entries})


NOUN_PPS = {
    "person": preferences(
        "with wear 4, with trait 3, with tool 5, in wear 4, from place 6, in place 4, at place 2, near place 2, "
        "on animal 1, of place 1, at event 2"
    ),
    "animal": preferences("in place 5, with wear 3, from place 4, on furniture 3, near place 2, under furniture 1"),
    "group": preferences("from place 5, of person 5, in place 3, with tool 2"),
    "food": preferences("with food 8, on furniture 4, from place 4, for person 4, in container 3, from person 2"),
    "tool": preferences("on furniture 4, from place 3, for person 3, in container 4, of person 2"),
    "wear": preferences("from place 3, for person 2, on furniture 2, of person 3, in container 2"),
    "thing": preferences(
        "in place 4, on furniture 4, from place 4, for person 4, of person 3, near place 2, from person 2, with wear 1"
    ),
    "furniture": preferences("in place 6, near thing 2, from place 3, for person 2, with thing 2"),
    "container": preferences("of stuff 4, with food 4, on furniture 5, in place 2, for person 2, from place 2"),
    "place": preferences("in place 3, near place 5, with thing 5, for person 2, behind place 2"),
    "event": preferences("in place 5, for person 5, at place 4, with person 4, near place 1, on time 2"),
    "idea": preferences(
        "about animal 3, about place 2, about person 4, about thing 2, about event 2, for person 4, from person 4, "
        "of person 3, in thing 2, on idea 1"
    ),
    "stuff": preferences("in container 4, on furniture 3, from place 4, for person 3, from container 1"),
}
VERB_PPS = {
    "eating": preferences("with tool 6, with person 5, in place 4, at event 3, from container 2, for person 4"),
    "handling": preferences(
        "with tool 6, in place 4, for person 6, from place 3, from person 5, with person 2, on furniture 3, at event 1"
    ),
    "seeing": preferences("with tool 7, in place 3, from place 6, at event 4, with person 2, on furniture 1"),
    "social": preferences("in place 5, at event 4, with idea 2, about idea 2, near place 1, for idea 2"),
    "telling": preferences("about idea 6, about person 3, about event 2, in place 2, at event 2"),
    "thinking": preferences("with person 4, in place 3, for person 5, at event 3, from place 1, about thing 1"),
    "moving": preferences("with person 5, with tool 2, from place 2, for idea 1, on animal 2"),
    "giving": preferences("in place 3, at event 4, with trait 2, on time 1"),
    "being": preferences("in place 6, with person 4, near place 3, on furniture 4, at event 2, behind place 1"),
    "happening": preferences("in place 6, near place 3, at event 2, on furniture 2, behind place 1"),
    "affecting": preferences("at event 3, in place 3, with idea 2, during event 2"),
}
# Probability in percent that a noun takes a phrase after it, by depth; deeper levels are simpler.
NOUN_PP_PERCENT = (34, 16, 6, 0)
