"""Invariants of the bundled corpus: shape of every layer, agreement, ambiguity, unknown words, and its fingerprint."""

import hashlib
import io
import lzma
import os
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tools.bundled import corpus, generate, lexicon, morphology
from tools.bundled.nodes import annotate, leaf, phrase
from trelliswork.data import bundled
from trelliswork.data.writers import write_columns, write_conllu, write_trees

# The fingerprint of all three parts. It changes with any change of words or grammar, and published results change with
# it. When the change is meant, put in the value that `python tests/tools/test_bundled.py` prints.
FINGERPRINT = "cee63e9742acf73dc8509d844cc5dbf8672415165af75dd1e036f283b65c78bf"

ROOT = Path(__file__).resolve().parents[2]
CHUNKS = "NP VP PP ADJP ADVP SBAR PRT O"
PRONOUNS = "i he she we they me him her us them"


def fingerprint():
    digest = hashlib.sha256()
    for split in bundled.SPLITS:
        for write in (write_conllu, write_columns, write_trees):
            file = io.StringIO()
            write(bundled.load(split), file)
            digest.update(file.getvalue().encode("utf-8"))
    return digest.hexdigest()


@pytest.fixture(scope="module")
def train():
    return bundled.load("train")


@pytest.fixture(scope="module")
def everything():
    return [sentence for split in bundled.SPLITS for sentence in bundled.load(split)]


def dependents(sentence, head, *relations):
    """Return 1-based positions that hang from ``head`` by one of the relations."""
    arcs = zip(sentence.heads, sentence.relations, strict=True)
    return [i for i, (h, relation) in enumerate(arcs, start=1) if h == head and relation in relations]


def has_crossing_arcs(sentence):
    arcs = [(min(i, h), max(i, h)) for i, h in enumerate(sentence.heads, start=1) if h]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


# --- the corpus as a whole --------------------------------------------------------------------------------------------


def test_sizes():
    assert bundled.SPLITS == {"train": 3000, "dev": 500, "test": 500}
    for split, size in bundled.SPLITS.items():
        assert len(bundled.load(split)) == size


def test_unknown_split_raises():
    with pytest.raises(ValueError, match="split must be one of 'train', 'dev', 'test', got 'validation'"):
        bundled.load("validation")


def test_load_returns_a_new_list():
    mine = bundled.load("dev")
    mine.clear()
    assert len(bundled.load("dev")) == 500


def test_the_corpus_has_not_changed():
    assert fingerprint() == FINGERPRINT


def test_corpus_does_not_depend_on_the_hash_seed():
    code = "import hashlib, tools.bundled; print(hashlib.sha256(tools.bundled.corpus()).hexdigest())"
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    child = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == hashlib.sha256(corpus()).hexdigest()


def test_the_data_file_is_what_the_grammar_writes():
    assert lzma.decompress(bundled.FILE.read_bytes()) == corpus()


def test_generate_is_determined_by_the_seed():
    assert generate(40, seed=7)[:20] == generate(20, seed=7)
    assert generate(20, seed=7) != generate(20, seed=8)
    assert generate(0) == []


@pytest.mark.parametrize(("arguments", "complaint"), [((-1, 0.0), "n_sentences"), ((1, 1.5), "unseen")])
def test_generate_rejects_invalid_arguments(arguments, complaint):
    n_sentences, unseen = arguments
    with pytest.raises(ValueError, match=f"{complaint} must be"):
        generate(n_sentences, unseen=unseen)


def test_parts_do_not_share_sentences():
    parts = [[sentence.words for sentence in bundled.load(split)] for split in bundled.SPLITS]
    together = [words for part in parts for words in part]
    assert len(set(together)) > 0.99 * len(together)
    assert not set(parts[2]) & set(parts[0]) - {words for words in parts[0] if len(words) < 6}


# --- layers -----------------------------------------------------------------------------------------------------------


def test_lengths(everything):
    lengths = [len(sentence) for sentence in everything]
    assert min(lengths) >= 3
    assert max(lengths) <= 35
    assert 10 <= sum(lengths) / len(lengths) <= 14


def test_every_layer_has_one_entry_per_word(everything):
    for sentence in everything:
        layers = (sentence.tags, sentence.chunks, sentence.heads, sentence.relations)
        assert {len(layer) for layer in layers} == {len(sentence)}


def test_heads_make_a_tree_with_one_root(everything):
    for sentence in everything:
        n = len(sentence)
        assert sentence.heads.count(0) == 1
        assert [h == 0 for h in sentence.heads] == [relation == "root" for relation in sentence.relations]
        assert all(0 <= h <= n and h != i for i, h in enumerate(sentence.heads, start=1))
        for i in range(1, n + 1):
            steps = 0
            while i:
                i, steps = sentence.heads[i - 1], steps + 1
                assert steps <= n, f"a cycle in: {sentence}"


def test_leaves_are_the_words_and_preterminals_the_tags(everything):
    for sentence in everything:
        assert sentence.tree.leaves() == sentence.words
        assert tuple(node.label for node in sentence.tree.preterminals()) == sentence.tags
        phrases = [node for node in sentence.tree.subtrees() if not isinstance(node.children[0], str)]
        assert all(node.label.isupper() and node.children for node in phrases)


def test_chunks_are_well_formed(everything):
    for sentence in everything:
        for before, chunk in pairwise(("O", *sentence.chunks)):
            assert chunk == "O" or chunk[:2] in ("B-", "I-")
            if chunk.startswith("I-"):
                assert before[1:] == chunk[1:], f"{chunk} after {before} in: {sentence}"


def test_chunks_fit_their_tags(everything):
    kinds = defaultdict(Counter)
    for sentence in everything:
        for tag, chunk in zip(sentence.tags, sentence.chunks, strict=True):
            kinds[tag][chunk[2:] or "O"] += 1
    assert set(kinds["."]) == set(kinds[","]) == {"O"}
    assert all(set(kinds[tag]) == {"NP"} for tag in ("NNS", "NNP", "PRP", "PRP$", "POS", "EX", "CD"))
    assert all(set(kinds[tag]) == {"VP"} for tag in ("VBD", "VBZ", "VBP", "VB", "MD"))
    assert set(kinds["IN"]) == {"PP", "SBAR"}
    assert {chunk for counts in kinds.values() for chunk in counts} == set(CHUNKS.split())


def test_inventories(train):
    assert 25 <= len({tag for sentence in train for tag in sentence.tags}) <= 32
    relations = Counter(relation for sentence in train for relation in sentence.relations)
    expected = """nsubj obj iobj det amod case nmod nmod:poss obl advmod aux aux:pass cop mark root punct conj cc
        compound ccomp xcomp advcl acl acl:relcl nummod appos csubj expl flat vocative nsubj:pass"""
    assert not set(expected.split()) - set(relations)


def test_few_sentences_have_crossing_arcs(everything):
    crossing = [sentence for sentence in everything if has_crossing_arcs(sentence)]
    assert 0.005 < len(crossing) / len(everything) < 0.03
    assert sum("acl:relcl" in sentence.relations for sentence in crossing) > 10
    assert sum(sentence.words[-1] == "?" for sentence in crossing) > 10


# --- English ----------------------------------------------------------------------------------------------------------


def agreement(sentence, position):
    """Return "1s", "3s" or "pl" of the noun at a 1-based position."""
    word, tag = sentence.words[position - 1], sentence.tags[position - 1]
    if dependents(sentence, position, "conj") or tag in ("NNS", "NNPS"):
        return "pl"
    if tag == "PRP":
        return {"i": "1s", "we": "pl", "you": "pl", "they": "pl"}.get(word.lower(), "3s")
    return "3s"


def subject_agreement(sentence, verb):
    """Return the agreement of the subject of a finite verb, found through auxiliaries, conjuncts and relatives."""
    clause = verb
    if sentence.relations[verb - 1].split(":")[0] in ("aux", "cop"):
        clause = sentence.heads[verb - 1]
    while not (subjects := dependents(sentence, clause, "nsubj", "nsubj:pass", "csubj")):
        assert sentence.relations[clause - 1] == "conj", f"no subject of {sentence.words[verb - 1]!r} in: {sentence}"
        clause = sentence.heads[clause - 1]
    assert len(subjects) == 1
    subject = subjects[0]
    if sentence.relations[subject - 1] == "csubj":
        return "3s"
    if sentence.tags[subject - 1] in ("WP", "WDT") and sentence.relations[clause - 1] == "acl:relcl":
        subject = sentence.heads[clause - 1]
    return agreement(sentence, subject)


def test_verbs_agree_with_their_subjects(everything):
    checked = Counter()
    for sentence in everything:
        for i, (word, tag) in enumerate(zip(sentence.words, sentence.tags, strict=True), start=1):
            if tag not in ("VBZ", "VBP", "VBD"):
                continue
            number = subject_agreement(sentence, i)
            where = f"{word!r} in: {sentence}"
            if tag != "VBD":
                assert (tag == "VBZ") == (number == "3s"), where
                assert (word.lower() in ("am", "'m")) <= (number == "1s"), where
            elif word.lower() in ("was", "were"):
                assert (word.lower() == "were") == (number == "pl"), where
            checked[tag, number] += 1
    assert min(checked["VBZ", "3s"], checked["VBP", "pl"], checked["VBD", "pl"]) > 300
    assert checked["VBP", "1s"] > 20


def test_determiners_agree_with_their_nouns(everything):
    checked = Counter()
    for sentence in everything:
        for word, head, relation in zip(sentence.words, sentence.heads, sentence.relations, strict=True):
            if relation not in ("det", "det:predet", "amod", "nummod"):
                continue
            tag, word = sentence.tags[head - 1], word.lower()
            if word in ("a", "an", "this", "that", "every", "each", "another", "much"):
                assert tag == "NN", f"{word!r} in: {sentence}"
                checked[word] += 1
            elif word in ("these", "those", "many", "several", "few", "all") or relation == "nummod":
                assert tag == "NNS", f"{word!r} in: {sentence}"
                checked[word] += 1
    assert min(checked[word] for word in ("a", "an", "this", "that", "every", "these", "those", "several")) > 20


def test_pronouns_have_the_case_of_their_place(everything):
    checked = Counter()
    for sentence in everything:
        for word, tag, relation in zip(sentence.words, sentence.tags, sentence.relations, strict=True):
            if tag == "PRP" and word.lower() not in ("it", "you"):
                is_nominative = word.lower() in ("i", "he", "she", "we", "they")
                assert is_nominative == (relation in ("nsubj", "nsubj:pass")), f"{word!r} in: {sentence}"
                checked[word.lower()] += 1
    assert min(checked[word] for word in PRONOUNS.split()) > 5


def test_a_and_an(everything):
    for sentence in everything:
        for word, after in pairwise(sentence.words):
            if word.lower() in ("a", "an"):
                vowel = after[0].lower() in "aeiou" and not after.startswith(("use", "usu", "uniform"))
                vowel = vowel or after.startswith(("hour", "honest"))
                assert (word.lower() == "an") == vowel, f"{word} {after}"


def test_capitals_and_punctuation(everything):
    for sentence in everything:
        assert not sentence.words[0][0].islower()
        assert sentence.words[-1] in (".", "?", "!")
        assert sentence.tags.count(".") == 1
        for before, after in pairwise(sentence.tags):
            assert not {before, after} <= {".", ","}, f"two marks in: {sentence}"
        for word, tag in zip(sentence.words[1:], sentence.tags[1:], strict=True):
            assert word[0].isupper() == (tag in ("NNP", "NNPS") or word == "I"), f"{word!r} in: {sentence}"
        assert not any(not word or " " in word for word in sentence.words)


@pytest.mark.parametrize(
    ("lemma", "forms"),
    [
        ("carry", "carries carried carried carrying"),
        ("stop", "stops stopped stopped stopping"),
        ("visit", "visits visited visited visiting"),
        ("bake", "bakes baked baked baking"),
        ("watch", "watches watched watched watching"),
        ("write", "writes wrote written writing"),
        ("rebuild", "rebuilds rebuilt rebuilt rebuilding"),
        ("rewrap", "rewraps rewrapped rewrapped rewrapping"),
        ("repeat", "repeats repeated repeated repeating"),
    ],
)
def test_verb_forms(lemma, forms):
    made = morphology.verb_forms(lemma)
    assert [made[tag] for tag in ("VBZ", "VBD", "VBN", "VBG")] == forms.split()


def test_noun_and_adjective_forms():
    nouns = "cat church cherry monkey potato fisherman child thief hatbox soupknife sheep"
    plurals = "cats churches cherries monkeys potatoes fishermen children thieves hatboxes soupknives sheep"
    assert [morphology.plural(noun) for noun in nouns.split()] == plurals.split()
    assert morphology.comparison("happy") == ("happier", "happiest")
    assert morphology.comparison("big") == ("bigger", "biggest")
    assert morphology.comparison("wide") == ("wider", "widest")
    assert morphology.comparison("dangerous") is None
    assert [morphology.adverb(word) for word in ("quiet", "happy", "gentle")] == ["quietly", "happily", "gently"]


# --- how layers follow from a phrase ----------------------------------------------------------------------------------


def test_all_layers_follow_from_marked_heads():
    cook = phrase("NP", leaf("DT", "a").as_("det"), leaf("NN", "uncle"), leaf("POS", "'s").as_("case"))
    cat = phrase("NP", cook.as_("nmod:poss"), leaf("JJ", "old").as_("amod"), leaf("NN", "cat"))
    see = phrase("VP", leaf("VB", "see"), phrase("NP", leaf("PRP", "it")).as_("obj"))
    to_see = phrase("S", phrase("VP", leaf("TO", "to").as_("mark"), see)).as_("xcomp")
    still = phrase("ADVP", leaf("RB", "still")).as_("advmod")
    want = phrase("VP", leaf("MD", "may").as_("aux"), still, phrase("VP", leaf("VB", "want"), to_see))
    who = phrase("WHNP", leaf("WP", "who")).as_("nsubj")
    relative = phrase("SBAR", who, phrase("S", phrase("VP", leaf("VBZ", "sings"))))
    want.children.append(relative.as_("acl:relcl", of=cook))
    sentence = annotate(phrase("S", cat.as_("nsubj"), want, leaf(".", ".").as_("punct")))
    assert str(sentence) == "An uncle 's old cat may still want to see it who sings ."
    assert " ".join(sentence.chunks) == "B-NP I-NP B-NP I-NP I-NP B-VP I-VP I-VP I-VP I-VP B-NP B-NP B-VP O"
    assert sentence.heads == (2, 5, 2, 5, 8, 8, 8, 0, 10, 8, 10, 13, 2, 8)
    assert sentence.relations[1] == "nmod:poss"
    assert sentence.relations[12] == "acl:relcl"
    assert has_crossing_arcs(sentence)
    assert str(sentence.tree).startswith("(S (NP (NP (DT An) (NN uncle) (POS 's)) (JJ old) (NN cat)) (VP (MD may) ")


def test_a_phrase_needs_one_head():
    with pytest.raises(AssertionError, match="NP needs one child without a role"):
        annotate(phrase("NP", leaf("DT", "the"), leaf("NN", "cat")))


# --- what makes it worth learning -------------------------------------------------------------------------------------


def test_size_of_the_vocabulary(train):
    counts = Counter(word for sentence in train for word in sentence.words)
    assert len(counts) > 1500
    assert sum(n == 1 for n in counts.values()) > 0.25 * len(counts)
    assert sum(n for _, n in counts.most_common(100)) > 0.4 * sum(counts.values())


@pytest.mark.parametrize("split", ["dev", "test"])
def test_unknown_words(train, split):
    known = {word for sentence in train for word in sentence.words}
    words = [word for sentence in bundled.load(split) for word in sentence.words]
    unknown = [word for word in words if word not in known]
    assert 0.04 <= len(unknown) / len(words) <= 0.09
    telling = ("ness", "less", "like", "ly", "able", "er", "ers", "ed", "ing", "s", "ish")
    assert sum(word.endswith(telling) for word in unknown) > 0.5 * len(unknown)


def test_held_back_words_are_not_in_training(train):
    held_back = {noun.singular for table in lexicon.NOUNS.values() for noun in table.held_back}
    held_back |= {adjective.base for table in lexicon.ADJECTIVES.values() for adjective in table.held_back}
    held_back |= {verb.lemma for table in lexicon.VERBS_BY_SUBJECT.values() for verb in table.held_back}
    for table in (lexicon.ADVERBS["manner"], lexicon.GIVEN_NAMES, lexicon.FAMILY_NAMES, lexicon.PLACE_NAMES):
        held_back |= set(table.held_back)
    assert len(held_back) > 500
    assert sorted(held_back & {word for sentence in train for word in sentence.words}) == []


def test_most_frequent_tags_are_ambiguous(train):
    seen = defaultdict(Counter)
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            seen[word][tag] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    test = [pair for s in bundled.load("test") for pair in zip(s.words, s.tags, strict=True)]
    accuracy = sum(best.get(word, "NN") == tag for word, tag in test) / len(test)
    assert 0.88 <= accuracy <= 0.94
    assert set(seen["that"]) == {"DT", "IN", "WDT"}
    assert set(seen["her"]) == {"PRP", "PRP$"}
    assert set(seen["'s"]) == {"POS", "VBZ"}
    nouns, verbs = {"NN", "NNS"}, {"VB", "VBP", "VBZ"}
    assert sum(bool(nouns & set(tags)) and bool(verbs & set(tags)) for tags in seen.values()) > 40
    assert sum({"VBD", "VBN"} <= set(tags) for tags in seen.values()) > 40
    assert sum({"JJ", "NN"} <= set(tags) for tags in seen.values()) > 5


@pytest.mark.parametrize("preposition", ["with", "in", "on", "for", "from"])
def test_prepositional_phrases_attach_both_ways(everything, preposition):
    sites = Counter()
    for sentence in everything:
        for i, (word, relation) in enumerate(zip(sentence.words, sentence.relations, strict=True), start=1):
            # verb, object noun, preposition: the phrase may go with either of them
            if word != preposition or relation != "case" or sentence.relations[i - 2] != "obj":
                continue
            noun_after = sentence.heads[i - 1]
            if sentence.heads[noun_after - 1] == i - 1:
                sites["noun"] += 1
            elif sentence.heads[noun_after - 1] == sentence.heads[i - 2]:
                sites["verb"] += 1
    assert sites.total() > 50
    assert min(sites["noun"], sites["verb"]) / sites.total() >= 0.25, sites


def test_coordination_has_two_scopes(everything):
    flat, phrasal = 0, 0
    for sentence in everything:
        for node in sentence.tree.subtrees():
            labels = [child.label for child in node.children if not isinstance(child, str)]
            if node.label == "NP" and "CC" in labels:
                flat += labels[-1] == "NNS"
                phrasal += labels[0] == "NP"
    assert min(flat, phrasal) > 20


if __name__ == "__main__":
    print(fingerprint())
