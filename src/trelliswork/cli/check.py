"""``trelliswork check``: what labeled files hold, and what is odd about them, before anything is trained."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.inputs import inputs_of
from trelliswork.cli.options import FormatOption, JsonOption, LabelOption, SchemeOption, SeparatorOption, named, tell
from trelliswork.compute.display import plural
from trelliswork.data.reading import FileFormat, LabelReading, Layout, file_layout, read_labeled
from trelliswork.data.reading.inputs import Inputs

if TYPE_CHECKING:
    from trelliswork.data import Corpus

SHOWN = 5  # examples in a line of text
LONG = 250  # tokens of a sentence


@dataclass
class Part:
    """The sentences of a file."""

    name: str
    corpus: "Corpus"
    words: list[list[str]]
    labels: list[list[str]]

    def place(self, sentence: int, token: int = 0) -> str:
        """Return file and line of a token."""
        return self.corpus.place(sentence, token) or self.name


def check(
    files: Annotated[
        list[str], named("Labeled files: those of training first, then development and test files to compare.")
    ],
    format: FormatOption = FileFormat.auto,
    column: Annotated[str | None, typer.Option(help="Column of the words.", show_default="0, or form")] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    scheme: SchemeOption = "auto",
    json: JsonOption = False,
) -> None:
    """Check labeled files: sizes, labels, labels that break their scheme, and suspicious lines.

    Each further file is compared with the first: unseen words and labels, and sentences that are in both. The files
    are only read. --json lists every place, the text the first ones.

    Example: trelliswork check train.txt dev.txt
    """
    parts: list[Part] = []
    results: list[dict[str, Any]] = []
    for file in inputs_of(files).files:
        source = Inputs((file,))
        layout = file_layout(source, format, column, label, separator, words=True)
        parts.append(_read(str(file), source, layout))
        results.append(_described(parts[-1], None if scheme == "none" else scheme))
        if len(parts) > 1:
            results[-1] |= _compared(parts[-1], parts[0])
    lines = [line for result in results for line in _text(result, parts[0].name)]
    tell(json, {"files": results}, "\n".join(lines))


def _read(name: str, source: Inputs, layout: Layout) -> Part:
    corpus: Any
    corpus, labels = read_labeled(source, layout, LabelReading(None))
    return Part(name, corpus, corpus.sentences(0), labels)


def _described(part: Part, scheme: str | None) -> dict[str, Any]:
    """Return what a file holds."""
    from trelliswork.data.schemes import standard_labels

    found = standard_labels(part.labels, scheme)  # type: ignore[arg-type]
    errors = [
        {"place": part.place(n, t), "label": part.labels[n][t], "expected": found.repaired[n][t]}
        for n, t in found.breaks
    ]
    return {
        "file": part.name,
        "sentences": len(part.words),
        "tokens": part.corpus.n_tokens,
        "words": len({word for row in part.words for word in row}),
        "labels": dict(Counter(label for row in part.labels for label in row).most_common()),
        "scheme": found.scheme,
        "scheme_errors": errors,
        "suspicious": list(_suspicious(part)),
    }


def _suspicious(part: Part) -> Iterator[dict[str, str]]:
    """Yield places with what is odd there."""
    first: dict[tuple[str, ...], int] = {}
    spelled: dict[str, set[str]] = {}
    for label in {label for row in part.labels for label in row}:
        spelled.setdefault(label.lower(), set()).add(label)
    odd = {label for some in spelled.values() if len(some) > 1 for label in some}
    for n, (words, labels) in enumerate(zip(part.words, part.labels, strict=True)):
        if len(words) > LONG:
            yield {"place": part.place(n), "what": f"a sentence of {len(words)} tokens: is a blank line missing?"}
        for t, (word, label) in enumerate(zip(words, labels, strict=True)):
            if "\ufffd" in word or not word.isprintable():
                yield {"place": part.place(n, t), "what": f"{word!r} has a character that cannot be printed"}
            if label in odd:
                others = ", ".join(sorted(spelled[label.lower()] - {label}))
                yield {"place": part.place(n, t), "what": f"the label {label} is also written {others}"}
        earlier = first.setdefault(tuple(words), n)
        if earlier != n and part.labels[earlier] != labels and len(words) > 1:
            yield {"place": part.place(n), "what": f"the sentence of {part.place(earlier)} with other labels"}


def _compared(part: Part, train: Part) -> dict[str, Any]:
    """Return what a file has that the training file does not, and the sentences that both have."""
    known, labels = {word for row in train.words for word in row}, {label for row in train.labels for label in row}
    unseen = Counter(word for row in part.words for word in row if word not in known)
    earlier: dict[tuple[str, ...], int] = {}
    for n, row in enumerate(train.words):
        earlier.setdefault(tuple(row), n)
    return {
        "unseen_tokens": unseen.total(),
        "unseen_words": dict(unseen.most_common()),
        "unseen_labels": dict(Counter(x for row in part.labels for x in row if x not in labels)),
        "duplicates": [
            {"place": part.place(n), "of": train.place(earlier[tuple(row)])}
            for n, row in enumerate(part.words)
            if tuple(row) in earlier and len(row) > 1
        ],
    }


def _text(result: dict[str, Any], train: str) -> Iterator[str]:
    """Yield the lines of text about a file."""
    sizes = f"{plural(result['sentences'], 'sentences')}, {plural(result['tokens'], 'tokens')}"
    yield f"{result['file']}: {sizes}, {plural(result['words'], 'different words')}"
    counts = [f"{name} {count:,}" for name, count in result["labels"].items()]
    yield f"  {plural(len(counts), 'labels')}: {_some(counts, 12)}"
    yield f"  scheme: {(result['scheme'] or 'none').upper()}"
    if result["scheme_errors"]:
        some = [f"{one['place']} {one['label']}, expected {one['expected']}" for one in result["scheme_errors"]]
        yield f"  labels that break the scheme: {len(some):,}: {_some(some, SHOWN, '; ')}"
    for one in result["suspicious"][:SHOWN]:
        yield f"  {one['place']}: {one['what']}"
    if len(result["suspicious"]) > SHOWN:
        yield f"  and {plural(len(result['suspicious']) - SHOWN, 'further suspicious places')} (--json lists all)"
    if "unseen_words" not in result:
        return
    share = result["unseen_tokens"] / max(1, result["tokens"])
    yield f"  not in {train}: {share:.1%} of the tokens" + (
        f", such as {_some(list(result['unseen_words']), SHOWN)}" if share else ""
    )
    if result["unseen_labels"]:
        yield f"  labels not in {train}: {_some([f'{k} {n:,}' for k, n in result['unseen_labels'].items()], 12)}"
    if result["duplicates"]:
        some = [f"{one['place']} = {one['of']}" for one in result["duplicates"]]
        yield f"  {plural(len(some), 'sentences')} also in {train}: {_some(some, SHOWN)}"


def _some(items: list[str], n: int, between: str = ", ") -> str:
    return between.join(items[:n]) + (f"{between}..." if len(items) > n else "")
