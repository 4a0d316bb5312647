"""UAI files: reading, and errors with file and line."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.data.written import uai_text
from trelliswork.data.uai import UaiGraph, read_uai
from trelliswork.errors import DataError

EXAMPLE = """MARKOV
3
2 2 3
2
2 0 1
2 1 2

4
 4.000 2.400
 1.000 0.000

6
 2.2500 3.2500 3.7500
 0.0000 0.0000 10.0000
"""


def saved(tmp_path, text, name="graph.uai"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_example_of_the_format(tmp_path):
    graph = read_uai(saved(tmp_path, EXAMPLE))
    assert graph.n_states.tolist() == [2, 2, 3]
    assert [scope.tolist() for scope in graph.scopes] == [[0, 1], [1, 2]]
    assert_allclose(np.exp(graph.log_tables[0]), [[4, 2.4], [1, 0]], rtol=1e-15)
    assert_allclose(np.exp(graph.log_tables[1]), [[2.25, 3.25, 3.75], [0, 0, 10]], rtol=1e-15)
    assert graph.log_tables[0][1, 1] == -np.inf


def test_line_ends_are_ignored_and_gzip_is_read(tmp_path):
    expected = read_uai(saved(tmp_path, EXAMPLE))
    path = tmp_path / "graph.uai.gz"
    path.write_bytes(gzip.compress(" ".join(EXAMPLE.split()).encode()))
    got = read_uai(path)
    for a, b in zip(expected.log_tables, got.log_tables, strict=True):
        assert_array_equal(a, b)


def test_bayes_files_have_the_same_layout(tmp_path):
    graph = read_uai(saved(tmp_path, "BAYES 2 2 2 2 1 0 2 0 1  2 0.4 0.6  4 0.1 0.9 0.5 0.5"))
    assert_allclose(np.exp(graph.log_tables[1]), [[0.1, 0.9], [0.5, 0.5]], rtol=1e-15)


def test_constants_and_empty_graphs(tmp_path):
    graph = read_uai(saved(tmp_path, "MARKOV 1 2 1 0 1 3.5"))
    assert graph.scopes[0].shape == (0,)
    assert graph.log_tables[0].shape == ()
    assert_allclose(np.exp(graph.log_tables[0]), 3.5, rtol=1e-15)
    empty = read_uai(saved(tmp_path, "MARKOV 0 0"))
    assert len(empty.n_states) == len(empty.scopes) == 0


@st.composite
def graphs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_states = rng.integers(1, 5, draw(st.integers(1, 6)))
    scopes, log_tables = [], []
    for _ in range(draw(st.integers(0, 6))):
        scope = rng.permutation(len(n_states))[: rng.integers(0, 5)]
        table = rng.normal(size=tuple(n_states[scope])) * draw(st.sampled_from([0.0, 1.0, 100.0]))
        scopes.append(scope)
        log_tables.append(np.where(rng.random(table.shape) < 0.2, -np.inf, table))
    return UaiGraph(n_states, scopes, log_tables)


@given(graph=graphs())
def test_graphs_are_read_as_they_were_written(tmp_path_factory, graph):
    path = tmp_path_factory.mktemp("uai") / "graph.uai"
    path.write_text(uai_text(graph))
    back = read_uai(path)
    assert_array_equal(back.n_states, graph.n_states)
    assert len(back.scopes) == len(graph.scopes)
    for scope, other, table, expected in zip(back.scopes, graph.scopes, back.log_tables, graph.log_tables, strict=True):
        assert_array_equal(scope, other)
        assert_allclose(table, expected, rtol=1e-14, atol=1e-15)
    path.write_text(uai_text(back))
    again = read_uai(path)
    for table, expected in zip(again.log_tables, back.log_tables, strict=True):
        assert_allclose(table, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("MARKOV", "MARKOW"), 1, "expected MARKOV .* at the start, got 'MARKOW'"),
        (("MARKOV\n3", "MARKOV\nthree"), 2, "expected the number of variables.*got 'three'"),
        (("2 2 3\n", "2 0 3\n"), 3, "number of states of variable 1, an integer from 1, got '0'"),
        (("2 0 1", "2 0 3"), 5, "expected a variable of factor 0, an integer from 0 to 2, got '3'"),
        (("2 0 1", "2 1 1"), 5, "factor 0 names a variable twice"),
        (("2 0 1", "4 0 1"), 5, "number of variables of factor 0, an integer from 0 to 3, got '4'"),
        (("\n4\n", "\n5\n"), 8, "must have 4 entries by their numbers of states, got 5"),
        (("2.400", "two"), 9, "4 numbers for the table of factor 0, finite and 0 or more .*, got 'two'"),
        (("1.000", "-1.000"), 10, "factors, not logarithms, got '-1.000'"),
        (("3.2500", "nan"), 13, "got 'nan'"),
        (("3.2500", "inf"), 13, "got 'inf'"),
        (("3.2500", "3_2"), 13, "got '3_2'"),
        ((" 10.0000", ""), 14, "expected 6 numbers for the table of factor 1, but the file ends here"),
        (("10.0000", "10.0000\n7"), 15, "expected the end of the file .* got '7'"),
        ((EXAMPLE[9:], ""), 2, "expected the number of states of variable 0, but the file ends here"),
    ],
)
def test_errors_name_file_and_line(tmp_path, change, line, message):
    assert change[0] in EXAMPLE
    path = saved(tmp_path, EXAMPLE.replace(*change, 1))
    with pytest.raises(DataError, match=message) as raised:
        read_uai(path)
    assert str(raised.value).startswith(f"{path}:{line}: ")


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_uai(tmp_path / "none.uai")
    with pytest.raises(DataError, match="MARKOV"):
        read_uai(saved(tmp_path, ""))


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "text",
    [
        "MARKOV 1 500000000 0",
        f"MARKOV 1 {DIGITS} 0",
        f"MARKOV {DIGITS}",
        "MARKOV 400 " + "999999999999999999 " * 400 + "1 30 " + " ".join(map(str, range(30))) + " 5",
        "MARKOV 70 " + "1 " * 70 + "1 70 " + " ".join(map(str, range(70))) + " 1 1.0",
        "MARKOV 2 2 2 999999999999999999",
    ],
)
def test_absurd_sizes(text, tmp_path):
    path = tmp_path / "graph.uai"
    path.write_text(text)
    with pytest.raises(DataError, match=r"graph.uai:1: ") as caught:
        read_uai(path)
    assert len(str(caught.value)) < 400
