"""Rules judged by the spans of labels, one sentence at a time: the ground truth of automata. Random rules."""

import re
from itertools import groupby, pairwise

import numpy as np

from trelliswork.data.schemes import Span, lenient_spans
from trelliswork.rules import AtMostOnce, Before, Count, Exactly, Forbidden, IsSpan, Length, Pattern
from trelliswork.rules.values import AllOf, AnyOf, Not

PLAIN = ("A", "B", "C")
BIO = ("O", "B-X", "I-X", "B-Y", "I-Y")
BIOES = ("O", "B-X", "I-X", "E-X", "S-X", "S-Y")


def spans_of(labels: list[str]) -> list[Span]:
    """Return the spans of labels with a scheme, or the runs of plain tags."""
    if any(label[1:2] == "-" for label in labels) or set(labels) == {"O"}:
        return lenient_spans(labels)
    ends = np.cumsum([0, *(len(list(run)) for _, run in groupby(labels))]).tolist()
    return [Span(labels[a], a, b) for a, b in pairwise(ends)]


def satisfies(rule, labels: list[str]) -> bool:
    """Return whether labels satisfy a rule, without automata."""
    spans = spans_of(labels)
    n = {name: sum(span.type == name for span in spans) for name in rule.names}
    starts = {name: [span.start for span in spans if span.type == name] for name in rule.names}
    match rule:
        case AllOf():
            return all(satisfies(one, labels) for one in rule.rules)
        case AnyOf():
            return any(satisfies(one, labels) for one in rule.rules)
        case Not():
            return not satisfies(rule.rules[0], labels)
        case AtMostOnce():
            return all(count <= 1 for count in n.values())
        case Exactly():
            return all(n[name] == count for name, count in rule.spans.items())
        case Count():
            (name,) = rule.names
            own = n[name] if rule.of == "spans" else sum(label in (name, f"{label[:1]}-{name}") for label in labels)
            return rule.minimum <= own and (rule.maximum is None or own <= rule.maximum)
        case Before(names=(a, b)):
            return all(x < y for x in starts[a] for y in starts[b])
        case Forbidden(names=(a, b)):
            return not any(x < y for x in starts[a] for y in starts[b])
        case Length(names=(name,)):
            sizes = [span.stop - span.start for span in spans if span.type == name]
            return all(rule.minimum <= size <= (rule.maximum or size) for size in sizes)
        case IsSpan(names=(name,)):
            return Span(name, rule.start, rule.stop) in spans
        case Pattern():
            return re.fullmatch(expression(rule.text, labels), text_of(labels)) is not None
    raise AssertionError(rule)


def text_of(labels: list[str]) -> str:
    """Return each token as < or -, for the start of a span or not, and the label in brackets."""
    first = {span.start for span in spans_of(labels)} | {t for t, label in enumerate(labels) if label == "O"}
    return "".join(f"{'<' if t in first else '-'}[{label}]" for t, label in enumerate(labels))


def expression(pattern: str, labels: list[str]) -> str:
    """Return a pattern as an expression over `text_of`."""
    plain = not any(label[1:2] == "-" for label in labels) and set(labels) != {"O"}

    def written(token: str) -> str:
        if token == ".":
            return r"(?:[<-]\[[^]]*\])"
        if token[0] in "()|*+?{":
            return token
        if plain or token == "O" or token[1:2] == "-":
            return rf"(?:[<-]\[{token}\])"
        of_type = rf"\[[BIES]-{token}\]"
        return rf"(?:<{of_type}(?:-{of_type})*(?!-{of_type}))"

    return "".join(map(written, re.findall(r"\{[^}]*\}|[()|*+?.]|[\w-]+", pattern)))


PATTERNS = {
    PLAIN: (".* A B .*", "A+ (B | C)*", "(A B?){1,2} .*", ".{2,3}", "(A | B | C)* C", "A{2,} .*", "(A? B?)* C"),
    BIO: (".* X Y .*", "O* (X O*){1,2}",
        "(O | X | Y)* Y", ".* B-X O .*", "X .* | Y+ O", ".* I-X", "(O | B-X)+", "X I-X"),
    BIOES: (".* X X .*", "(O | X | Y)*", "O? X .*", ".* S-X O", "Y* (X | O)+", ".* E-X . .*"),
}  # fmt: skip


def random_rule(rng: np.random.Generator, labels: tuple[str, ...] = PLAIN, depth: int = 2):
    """Return a random rule over labels, of all kinds and combinations."""
    if depth and rng.random() < 0.55:
        parts = [random_rule(rng, labels, depth - 1) for _ in range(2)]
        return [lambda: parts[0] & parts[1], lambda: parts[0] | parts[1], lambda: ~parts[0]][rng.integers(3)]()
    names = list(labels) if labels == PLAIN else ["X", "Y"]
    a, b = rng.permutation(names)[:2].tolist()
    low, more, start = int(rng.integers(3)), int(rng.integers(3)), int(rng.integers(4))
    return [
        lambda: AtMostOnce(*names[: rng.integers(1, 4)]),
        lambda: Count(a, low, low + more),
        lambda: Count(a, low, of="tokens"),
        lambda: Before(a, b),
        lambda: Forbidden(a, [a, b][rng.integers(2)]),
        lambda: Length(a, low + more + 1, low + 1),
        lambda: IsSpan(a, start, start + 1 + more),
        lambda: Exactly({a: low, b: more}),
        lambda: Pattern(PATTERNS[labels][rng.integers(len(PATTERNS[labels]))]),
    ][rng.integers(9)]()
