"""Bracketed trees: reading, pruning, and errors with file and line."""

import gzip

import pytest

from trelliswork.data import Tree, bundled, read_trees
from trelliswork.data.trees import prune, tree_spans
from trelliswork.errors import DataError

TEXT = """( (S
    (NP-SBJ-1 (NNP Kim) )
    (VP (VBZ sleeps)
      (NP (-NONE- *T*-1) )
      (ADVP (RB here) ))
    (. .) ))
(S (NP (PRP It)) (VP (VBZ rains)))  (X (-NONE- 0))
"""


def test_several_lines_and_several_on_a_line(tmp_path):
    path = tmp_path / "some.mrg"
    path.write_text(TEXT)
    trees = read_trees(path)
    assert [tree.leaves() for tree in trees] == [("Kim", "sleeps", "here", "."), ("It", "rains")]
    assert trees[0].children[0].label == "NP-SBJ-1"
    bare = read_trees(path, punctuation=False, functions=False, unary=False)
    assert str(bare[0]) == "(S (NNP Kim) (VP (VBZ sleeps) (RB here)))"


def test_folder_and_gzip(tmp_path):
    (tmp_path / "b.mrg").write_text("(S (A a) (B b))")
    (tmp_path / "a.mrg").write_bytes(gzip.compress(b"(S (A c) (B d))"))
    (tmp_path / "other.txt").write_text("(((")
    assert [tree.leaves() for tree in read_trees(tmp_path)] == [("c", "d"), ("a", "b")]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected a directory with \*\.mrg files"):
        read_trees(tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("(S (A a))\n(S (A a)\n(B b)", 2, "lacks 1 closing"),
        ("(S (A a))\n\n(S (A a)))", 3, "outside"),
        ("(S (A a))\nword (S (A a))", 2, "outside"),
        ("(S (A a)) word", 1, "outside"),
        ("(S (A a))\n(S (A\na b))", 2, "one word"),
        ("(S (A a))\n(S ((A a) (B b)))", 2, "no label"),
        ("(S ())", 1, "label"),
    ],
)
def test_broken_trees_name_file_and_line(tmp_path, text, line, what):
    path = tmp_path / "broken.mrg"
    path.write_text(text)
    with pytest.raises(DataError, match=what) as error:
        read_trees(path)
    assert str(error.value).startswith(f"{path}:{line}: ")


def test_files_without_trees_raise(tmp_path):
    path = tmp_path / "empty.mrg"
    path.write_text("\n(X (-NONE- 0))\n")
    with pytest.raises(DataError, match="at least one sentence"):
        read_trees(path)


def test_prune_does_not_change_its_argument():
    tree = Tree.parse("(S (NP (NP (NN a))) (. .))")
    assert str(prune(tree)) == str(tree)
    assert str(prune(tree, punctuation=False, unary=False)) == "(NN a)"
    assert prune(Tree.parse("(S (. .))"), punctuation=False) is None
    assert str(prune(Tree.parse("(NP=2 (-LRB- x) (NN y))"), functions=False)) == "(NP (-LRB- x) (NN y))"


def test_spans():
    tree = Tree.parse("(S (NP (DT the) (NN cat)) (VP (V sees) (NP (NN it))))")
    assert tree_spans(tree) == [(0, 4, "S"), (0, 2, "NP"), (2, 4, "VP"), (3, 4, "NP")]
    for sentence in bundled.load("dev")[:50]:
        assert len(tree_spans(sentence.tree)) == len(sentence.tree.subtrees()) - len(sentence.words)
