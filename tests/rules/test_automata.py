"""Automata of rules against the spans of all label strings; minimal automata; patterns."""

from itertools import product

import numpy as np
import pytest

from tests.oracle.rules import BIO, BIOES, PLAIN, random_rule, satisfies
from trelliswork.errors import DataError, LimitError, TrellisworkError, ValueRangeError
from trelliswork.inference.chain.automata import Automaton
from trelliswork.rules import AtMostOnce, Before, Count, Exactly, Forbidden, Length, Pattern, parse, read


def accepted(automaton: Automaton, n: int) -> list[tuple[int, ...]]:
    return [s for s in product(range(automaton.step.shape[1]), repeat=n) if automaton.accepts(s)]


@pytest.mark.parametrize("labels", [PLAIN, BIO, BIOES], ids=["plain", "bio", "bioes"])
def test_rules_accept_what_the_spans_of_labels_say(labels):
    rng = np.random.default_rng(0)
    for _ in range(40):
        rule = random_rule(rng, labels)
        automaton = rule.automaton(labels)
        for n in range(1, 5 if labels == BIOES else 6):
            for ids in product(range(len(labels)), repeat=n):
                given = [labels[j] for j in ids]
                assert automaton.accepts(ids) == satisfies(rule, given), (rule, given)
        assert rule.holds(given) == satisfies(rule, given)


def test_automata_are_minimal():
    """No two states accept the same continuations, and equal languages have equal tables."""
    rng = np.random.default_rng(1)
    for _ in range(30):
        rule = random_rule(rng)
        automaton = rule.automaton(PLAIN)
        Q = len(automaton.final)
        strings = [s for n in range(min(Q, 6)) for s in product(range(3), repeat=n)]
        behavior = {tuple(automaton.final[_run(automaton, q, s)] for s in strings) for q in range(Q)}
        assert len(behavior) == Q or Q > 6
        twice = ~(~rule & ~rule)
        np.testing.assert_array_equal(twice.automaton(PLAIN).step, automaton.step)


def _run(automaton, state, symbols):
    for symbol in symbols:
        state = automaton.step[state, symbol]
    return state


def test_sizes_of_automata():
    assert len(AtMostOnce("A").automaton(PLAIN).final) == 4  # before, inside, after, dead
    assert len(Before("A", "B").automaton(PLAIN).final) == 3
    assert len(Count("X", maximum=3, of="tokens").automaton(BIO).final) == 5
    assert len(Length("X", 3).automaton(BIO).final) == 5
    both = AtMostOnce("A", "B")
    assert both.parts == (AtMostOnce("A"), AtMostOnce("B"))
    np.testing.assert_array_equal(both.automaton(PLAIN).step, (AtMostOnce("A") & AtMostOnce("B")).automaton(PLAIN).step)


def test_words_are_spans_of_their_own():
    rule = AtMostOnce("the") & Pattern(".* the dog .*")
    automaton = rule.automaton(["the", "dog", "ran"], "word")
    assert accepted(automaton, 2) == [(0, 1)]
    assert automaton.accepts((2, 0, 1))
    assert not automaton.accepts((0, 0, 1))


def test_bilou_labels_are_read_as_bioes():
    rule = Count("PER", 2, 2)
    assert rule.holds(["U-PER", "B-PER", "L-PER"])
    assert not rule.holds(["B-PER", "I-PER", "L-PER"])


def test_rules_are_values():
    rng = np.random.default_rng(2)
    for _ in range(100):
        rule = random_rule(rng, BIO, 3)
        assert parse(repr(rule)) == rule
        assert hash(parse(repr(rule))) == hash(rule)
    assert repr(AtMostOnce("A", "B") & (Before("A", "B") | ~Length("A", 3))) == (
        'AtMostOnce("A", "B") & (Before("A", "B") | ~Length("A", maximum=3))'
    )
    assert repr(Exactly(A=1) | Forbidden("A", "B")) == 'Exactly({"A": 1}) | Forbidden("A", "B")'
    assert AtMostOnce("A") != AtMostOnce("B")


def test_rules_in_files(tmp_path):
    path = tmp_path / "fields.rules"
    path.write_text('# addresses\nAtMostOnce(Zip, "Street Name")\n\nBefore(Street, City)  # usually\n', "utf-8")
    assert read(path) == parse('AtMostOnce("Zip", "Street Name") & Before("Street", "City")')
    path.write_text("AtMostOnce(Zip)\nAtMost(Zip)\n", "utf-8")
    with pytest.raises(DataError, match=r"fields.rules:2: there is no rule AtMost: did you mean AtMostOnce"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        read(path)


@pytest.mark.parametrize("text", [
    "", "A", "AtMostOnce", "AtMostOnce()", "Count(A", "Count(A, -1)", "Count(A, 2, 1)", "Count(A, 1, of=3)",
    "Count(A, b=3)", "Length(A, 0)", "IsSpan(A, 3, 3)", "Before(A, A)", "Exactly()", "Exactly({'A': 'B'})",
    "Count(A, 1.5)", "Count(A, 9999)",
    "Pattern('(A')", "Pattern('A)')", "Pattern('* A')", "Pattern('A{3,2}')", "Pattern('A*+')", "Pattern(3)",
    "__import__('os')", "AtMostOnce(A) + AtMostOnce(B)", "AtMostOnce(A) and AtMostOnce(B)", "(" * 500,
    "~" * 50_000 + "A", "AtMostOnce(A)\0", "Pattern('A' * 9)", "AtMostOnce(*A)", "AtMostOnce(**A)",
])  # fmt: skip
def test_what_is_no_rule_is_refused(text):
    with pytest.raises(TrellisworkError):
        parse(text)


def test_misspelled_labels_are_named():
    with pytest.raises(ValueRangeError, match="'Zipp' is not one of the labels: did you mean 'Zip'"):
        AtMostOnce("Zipp").automaton(["Zip", "City"])
    with pytest.raises(ValueRangeError, match="'PERS' is not one of the types of spans: did you mean 'PER'"):
        Pattern("O* PERS").automaton(["O", "B-PER", "I-PER"])


def test_rules_that_need_too_many_states_are_refused_soon():
    labels = [f"L{n}" for n in range(30)]
    with pytest.raises(LimitError, match="more than 5,000 states"):
        (AtMostOnce(*labels) | Count("L0", 5)).automaton(labels)
    with pytest.raises(LimitError, match="states"):
        Pattern("(L0 | L1)* L0 .{30}").automaton(labels)
    with pytest.raises(LimitError, match="more than 2,000 names"):
        Pattern("(L0{1000}){1000}").automaton(labels)
    assert len(Pattern("(((){2000}){2000}){2000}").automaton(labels).final) == 2
    assert len(Pattern(" ".join(f"{label}?" for label in labels * 20)).automaton(labels).final) == 602
