"""Universal tags of words, from their Penn tags and relations."""

_UPOS = {
    **dict.fromkeys(("NN", "NNS"), "NOUN"),
    **dict.fromkeys(("NNP", "NNPS"), "PROPN"),
    **dict.fromkeys(("JJ", "JJR", "JJS"), "ADJ"),
    **dict.fromkeys(("RB", "RBR", "RBS", "WRB"), "ADV"),
    **dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), "VERB"),
    **dict.fromkeys(("DT", "PDT"), "DET"),
    **dict.fromkeys(("PRP", "PRP$", "WP", "WP$", "WDT", "EX"), "PRON"),
    **dict.fromkeys((".", ",", ":", "``", "''", "-LRB-", "-RRB-"), "PUNCT"),
    **dict.fromkeys(("$", "#", "SYM"), "SYM"),
    **dict.fromkeys(("IN", "RP", "TO"), "ADP"),
    "MD": "AUX",
    "CC": "CCONJ",
    "CD": "NUM",
    "POS": "PART",
    "UH": "INTJ",
}


def universal_tag(tag: str, relation: str, word: str) -> str:
    """Return the universal tag; the relation decides where the Penn tag alone cannot."""
    if tag.startswith("VB") and relation.split(":")[0] in ("aux", "cop"):
        return "AUX"
    if relation == "mark" and tag in ("IN", "TO"):
        return "SCONJ" if tag == "IN" else "PART"
    if tag == "WDT" and relation.split(":")[0] == "det":
        return "DET"
    if tag == "RB" and word.lower() in ("not", "n't"):
        return "PART"
    return _UPOS.get(tag, "X")
