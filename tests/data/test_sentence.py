"""The constituent tree and its bracketing, and the annotated sentence."""

import dataclasses

import pytest

from trelliswork.data import Tree, TreebankSentence

CAT = Tree("S", (Tree("NP", (Tree("DT", ("The",)), Tree("NN", ("cat",)))), Tree("VP", (Tree("VBD", ("slept",)),))))


def test_str_is_the_penn_bracketing():
    assert str(CAT) == "(S (NP (DT The) (NN cat)) (VP (VBD slept)))"


def test_leaves_and_preterminals_run_from_left_to_right():
    assert CAT.leaves() == ("The", "cat", "slept")
    assert [node.label for node in CAT.preterminals()] == ["DT", "NN", "VBD"]
    assert [node.label for node in CAT.subtrees()] == ["S", "NP", "DT", "NN", "VP", "VBD"]


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (DT The) (NN cat)) (VP (VBD slept)))",
        "(S\n  (NP (DT The)\n      (NN cat))\n  (VP (VBD slept)))\n",
        "( (S (NP (DT The) (NN cat)) (VP (VBD slept))) )",
        "(S(NP(DT The)(NN cat))(VP(VBD slept)))",
    ],
)
def test_parse_reads_any_layout(text):
    assert Tree.parse(text) == CAT


def test_brackets_in_words_are_escaped():
    tree = Tree("NP", (Tree("SYM", ("(",)), Tree("NN", ("f(x)",)), Tree("SYM", (")",))))
    assert str(tree) == "(NP (SYM -LRB-) (NN f-LRB-x-RRB-) (SYM -RRB-))"
    assert Tree.parse(str(tree)) == tree


def test_reading_and_writing_do_not_depend_on_the_recursion_limit():
    depth = 5000
    text = "(X " * depth + "(NN deep)" + ")" * depth
    tree = Tree.parse(text)
    assert str(tree) == text
    assert len(tree.subtrees()) == depth + 1
    assert tree.leaves() == ("deep",)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty text"),
        ("  \n", "empty text"),
        ("cat", r"must start with '\(', got 'cat'"),
        (") (NN cat)", r"must start with '\(', got '\)'"),
        ("(S (NN cat)", r"1 bracket\(s\) left open"),
        ("(NN cat))", "more text after it"),
        ("(NN cat) (NN dog)", "more text after it"),
        ("(NN)", "'NN' that ends at character 3 has no children"),
        ("()", "has no label"),
        ("((NN cat) (NN dog))", "has no label"),
        ("(NP the (NN cat))", "either one word or only subtrees"),
        ("(NP the cat)", "either one word or only subtrees"),
    ],
)
def test_malformed_bracketings_raise(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        Tree.parse(text)


def test_sentences_are_immutable_and_comparable():
    parts = (("Go", "!"), ("VB", "."), ("B-VP", "O"), (0, 1), ("root", "punct"))
    tree = Tree.parse("(S (VP (VB Go)) (. !))")
    sentence = TreebankSentence(*parts, tree, ("VERB", "PUNCT"))
    assert len(sentence) == 2
    assert str(sentence) == "Go !"
    assert sentence == TreebankSentence(*parts, tree, ("VERB", "PUNCT"))
    assert hash(sentence) == hash(TreebankSentence(*parts, tree, ("VERB", "PUNCT")))
    with pytest.raises(dataclasses.FrozenInstanceError):
        sentence.words = ()
