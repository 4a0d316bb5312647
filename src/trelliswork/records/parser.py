"""`RecordParser`: texts to fields with probabilities, by a tokenizer, a CRF and rules."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Corpus
from trelliswork.data.files import shorten
from trelliswork.data.schemes import Span, joined_labels, labels_from_spans
from trelliswork.data.storage import read_description
from trelliswork.errors import DataError, NotFittedError, ValueRangeError
from trelliswork.inference.chain.segments import SegmentKinds
from trelliswork.metrics.calibration import ConfidenceReport, align, evaluate_confidence
from trelliswork.metrics.tagging import Score
from trelliswork.models.calibration import calibrate
from trelliswork.models.crf import CRF
from trelliswork.models.spans import Found, found_spans
from trelliswork.records.reading import Example
from trelliswork.records.tokens import Places, token_spans, tokenizer
from trelliswork.rules import AtMostOnce, Rule, parse

LONGEST = 100_000  # characters of a record: what is longer is no record
ENOUGH = 10  # records that show that a field is never repeated
BATCH = 5_000  # records that are answered together
TRIMMED = " ,;"  # around a field
JOINT = " | "  # between fields of one name


class Field(NamedTuple):
    """A field: its name and text, where it is in the record, and its probability."""

    name: str
    text: str
    start: int
    stop: int
    probability: float


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a text.

    Attributes
    ----------
    text : str
    fields : tuple of Field
        From left to right.
    probability : float
        That all fields are right; ``nan`` with a problem.
    rules_probability : float
        That the labels satisfy the rules, by the model without them; 1 if it was not asked for.
    problem : str
        Why there are no fields; empty if there are.
    """

    text: str
    fields: tuple[Field, ...]
    probability: float
    rules_probability: float = 1.0
    problem: str = ""

    @property
    def values(self) -> dict[str, str]:
        """The text of each field by its name; those of a repeated one with ``|`` between them."""
        texts: dict[str, str] = {}
        for field in self.fields:
            texts[field.name] = f"{texts[field.name]}{JOINT}{field.text}" if field.name in texts else field.text
        return texts


@dataclass(frozen=True)
class RecordReport:
    """Result of ``RecordParser.evaluate``.

    Attributes
    ----------
    n_records : int
    accuracy : float
        Fraction of the records whose fields are all right, and that have no others.
    fields : Score
        All fields together: one is right if gold has a field of its name with the same tokens.
    by_name : dict of str to Score
    repeated : int
        Number of records in which the fields of a name are more than once.
    confidence, record_confidence : ConfidenceReport
        Probabilities of fields and of records.
    """

    n_records: int
    accuracy: float
    fields: Score
    by_name: dict[str, Score]
    repeated: int
    confidence: ConfidenceReport
    record_confidence: ConfidenceReport

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = asdict(self) | {"fields": self.fields.to_dict()}
        plain["by_name"] = {name: score.to_dict() for name, score in self.by_name.items()}
        return plain | {name: getattr(self, name).to_dict() for name in ("confidence", "record_confidence")}

    def summary(self) -> str:
        """Return the figures as text."""
        head = (
            f"{self.n_records:,} records: {self.accuracy:.4f} with all fields right, {self.repeated:,} repeat a field"
        )
        rows = [(name, *(s.precision, s.recall, s.f1, s.support)) for name, s in self.by_name.items()]
        every = ("all fields", self.fields.precision, self.fields.recall, self.fields.f1, self.fields.support)
        table = align([("field", "precision", "recall", "F1", "gold"), *rows, every])
        return "\n\n".join([head, table, self.confidence.summary(), self.record_confidence.summary()])


class RecordParser:
    """Splits short texts into fields.

    Parameters
    ----------
    tokens : str
        ``words``: punctuation stays with the word before it; ``punctuation``: each mark is a token; ``blanks``: what is
        between white space; or a regular expression.
    rules : Rule or str, optional
        What the fields of every record satisfy, see `trelliswork.rules`; ``"once"``: each field that ten records of
        the training data have, and none repeats, occurs at most once.
    features : str
        Feature set of the CRF: a preset or templates over words.
    l1, l2, max_iter : as for `CRF`

    Attributes
    ----------
    fields_ : tuple of str
        Names of the fields.
    rules_ : Rule or None
    model_ : CRF
        Labels are names of fields, and ``O`` outside; in BIO if fields of one name touch each other.

    Examples
    --------
    >>> from trelliswork.data.schemes import Span
    >>> examples = [Example("12 Oak St, Salem", [Span("street", 0, 9), Span("city", 11, 16)])] * 3
    >>> record = RecordParser(l2=0.1).fit(examples).parse("7 Oak St, Salem")
    >>> record.values
    {'street': '7 Oak St', 'city': 'Salem'}
    """

    def __init__(
        self, *, tokens: str = "words", rules: Rule | str | None = None, features: str = "records", l1: float = 0.0,
        l2: float = 0.02, max_iter: int | None = None,
    ) -> None:  # fmt: skip
        self.tokens, self.rules, self.features = tokens, rules, features
        self.l1, self.l2, self.max_iter = l1, l2, max_iter
        self.rules_: Rule | None = None
        self._model: CRF | None = None
        self._split = tokenizer(tokens)

    def fit(self, examples: Sequence[Example], **options: Any) -> Self:
        """Train on labeled records; ``options`` are those of ``CRF.fit``, such as ``callback``."""
        places, spans = self._placed(examples)
        touching = any(a.type == b.type and a.stop == b.start for some in spans for a, b in pairwise(some))
        y = [_labels(some, len(own), touching) for some, own in zip(spans, places, strict=True)]
        X = [_words(example.text, own) for example, own in zip(examples, places, strict=True)]
        rules = parse(self.rules) if isinstance(self.rules, str) and self.rules != "once" else self.rules
        if rules == "once":
            counts = [Counter(span.type for span in some) for some in spans]
            several = {name for own in counts for name, n in own.items() if n > 1}
            names = Counter(name for own in counts for name in own)
            once = [name for name, n in names.items() if n >= ENOUGH and name not in several]
            rules = AtMostOnce(*once) if once else None
        scheme: Any = "bio" if touching else None
        model = CRF(self.features, scheme=scheme, l1=self.l1, l2=self.l2, max_iter=self.max_iter)
        self._model, self.rules_ = model.fit(X, y, **options), rules  # type: ignore[assignment]
        return self._prepared()

    def calibrate(self, examples: Sequence[Example]) -> Self:
        """Fit the probabilities to held-out records, see `calibrate`."""
        places, spans = self._placed(examples)
        spanned = self.model_._learned.scheme is not None
        y = [_labels(some, len(own), spanned) for some, own in zip(spans, places, strict=True)]
        calibrate(self.model_, [_words(e.text, own) for e, own in zip(examples, places, strict=True)], y)
        return self._prepared()

    def parse(self, texts: Any, *, rules_probability: bool = False) -> Any:
        """Return the fields of a text, or of many.

        Parameters
        ----------
        texts : str, or list of str
            ``None`` and other values that are no texts give records with a ``problem``.
        rules_probability : bool
            Whether to compute the probability that the rules hold, which takes much longer than the fields.

        Returns
        -------
        Record, or list of Record
        """
        if isinstance(texts, str):
            return self.parse([texts], rules_probability=rules_probability)[0]
        return [
            record for table in self.tables(texts, rules_probability=rules_probability) for record in table.records()
        ]

    def tables(self, texts: Iterable[Any], *, rules_probability: bool = False) -> "Iterable[Table]":
        """Yield the fields of many texts as tables of a few thousand each, in order; an empty one without texts."""
        rest, n = iter(texts), 0
        while (batch := list(islice(rest, BATCH))) or not n:
            yield self._table(batch, rules_probability)
            n += 1

    def _table(self, texts: list[Any], hold: bool) -> "Table":
        places, problems, split = [], {}, self._split
        for n, text in enumerate(texts):
            own: Places = []
            if not isinstance(text, str):
                problems[n] = "no text"
            elif len(text) > LONGEST:
                problems[n] = f"longer than {LONGEST:,} characters"
            else:
                own = split(text)
                if not own:
                    problems[n] = "empty"
            places.append(own)
        which = np.array([n for n, own in enumerate(places) if own], np.int64)
        lengths = np.array([len(places[n]) for n in which.tolist()], np.int64)
        words = [texts[n][a:b] for n in which.tolist() for a, b in places[n]]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        model, kinds = self.model_, self._kinds
        if len(which):
            found = found_spans(model, Corpus([words], offsets), kinds, self.rules_, hold=hold)
        else:
            found = Found(np.empty((0, 4), np.int64), *(np.empty(0),) * 3)
        flat = np.array(list(chain.from_iterable(chain.from_iterable(places))), np.int64).reshape(-1, 2)
        first = offsets[found.rows[:, 0]]
        starts, stops = flat[first + found.rows[:, 2], 0], flat[first + found.rows[:, 3] - 1, 1]
        log_prob, rules = np.full(len(texts), np.nan), np.full(len(texts), np.nan)
        log_prob[which], rules[which] = found.log_prob, found.rules
        columns = which[found.rows[:, 0]], found.rows[:, 1], starts, stops, found.p
        return Table(texts, self.fields_, *columns, np.exp(log_prob), rules, problems)

    def evaluate(self, examples: Sequence[Example]) -> RecordReport:
        """Compare the fields of labeled records with those that the parser finds."""
        places, spans = self._placed(examples)
        X = [_words(e.text, own) for e, own in zip(examples, places, strict=True)]
        found = found_spans(self.model_, X, self._kinds, self.rules_)
        predicted: list[dict[Span, float]] = [{} for _ in X]
        for (n, kind, start, stop), p in zip(found.rows.tolist(), found.p.tolist(), strict=True):
            predicted[n][Span(self.fields_[kind], start, stop)] = p
        counts: dict[str, Counter[str]] = {name: Counter() for name in ("right", "found", "gold")}
        for gold, own in zip(spans, predicted, strict=True):
            counts["gold"].update(span.type for span in gold)
            counts["found"].update(span.type for span in own)
            counts["right"].update(span.type for span in own if span in gold)
        names = sorted(counts["gold"] | counts["found"])
        by_name = {name: Score(*(counts[k][name] for k in ("right", "found", "gold"))) for name in names}
        right = [set(gold) == set(own) for gold, own in zip(spans, predicted, strict=True)]
        repeated = sum(max(Counter(s.type for s in own).values(), default=0) > 1 for own in predicted)
        judged = [
            [(p, s in gold, p if s in gold else 1 - p) for s, p in own.items()]
            for gold, own in zip(map(set, spans), predicted, strict=True)
        ]
        whole = [[(p, ok, p if ok else 1 - p)] for p, ok in zip(np.exp(found.log_prob).tolist(), right, strict=True)]
        return RecordReport(
            len(X), sum(right) / len(X), Score(*(c.total() for c in counts.values())), by_name, repeated,
            evaluate_confidence(judged, what="fields", support=[len(gold) for gold in spans]),
            evaluate_confidence(whole, what="records"),
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the parser to a directory: that of its CRF, which knows tokenizer and rules."""
        model = self.model_
        rules = None if self.rules_ is None else repr(self.rules_)
        model.input_ = {"format": "records", "tokens": self.tokens, "rules": rules}
        model.save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a parser that ``save`` has written."""
        plain = read_description(path)
        made = plain.get("input") or {}
        if plain["kind"] != CRF.family or made.get("format") != "records":
            raise DataError(f"{path}: expected a model of records train, got one of kind {shorten(plain['kind'])}.")
        model = CRF.load(path)
        rules = None if made.get("rules") is None else parse(made["rules"])
        self = cls(tokens=str(made.get("tokens")), rules=rules, l1=model.l1, l2=model.l2, max_iter=model.max_iter)
        self._model, self.rules_, self.features = model, rules, model.features  # type: ignore[assignment]
        return self._prepared()

    @property
    def model_(self) -> CRF:
        """The fitted CRF."""
        if self._model is None:
            raise NotFittedError("this RecordParser is not fitted: call fit or load first.")
        return self._model

    @property
    def fields_(self) -> tuple[str, ...]:
        """Names of the fields."""
        return self._names_and_kinds[0]

    @property
    def _kinds(self) -> SegmentKinds:
        return self._names_and_kinds[1]

    @cached_property
    def _names_and_kinds(self) -> tuple[tuple[str, ...], SegmentKinds]:
        labels = self.model_.labels_
        if self.model_._learned.scheme is not None:
            names, kinds, joins = joined_labels(labels, "bio")
            return tuple(names), SegmentKinds(kinds, joins)
        names = [label for label in labels if label != "O"]
        kinds = np.array([names.index(label) if label != "O" else -1 for label in labels], np.int64)
        return tuple(names), SegmentKinds(kinds, np.diag(kinds >= 0))

    def _prepared(self) -> Self:
        self.__dict__.pop("_names_and_kinds", None)
        self.model_.freeze()
        return self

    def _placed(self, examples: Sequence[Example]) -> tuple[list[Places], list[list[Span]]]:
        """Return the places of the tokens of examples, and their fields as spans of tokens."""
        if not examples:
            raise ValueRangeError("expected at least one labeled record, got none.")
        places = [self._split(example.text) for example in examples]
        empty = [n for n, own in enumerate(places) if not own]
        if empty:
            raise DataError(f"record {empty[0] + 1} has no token: leave empty records out.")
        return places, token_spans(examples, places)


class Table(NamedTuple):
    """The fields of a batch of texts, as arrays."""

    texts: list[Any]
    names: tuple[str, ...]
    record: NDArray[np.int64]  # (n_fields,) number of the text
    kind: NDArray[np.int64]  # (n_fields,) number of the name
    starts: NDArray[np.int64]  # (n_fields,) first character
    stops: NDArray[np.int64]
    p: NDArray[np.float64]  # (n_fields,)
    probability: NDArray[np.float64]  # (n_texts,) nan where there is a problem
    rules: NDArray[np.float64]  # (n_texts,)
    problems: dict[int, str]

    def values(self) -> list[list[str | None]]:
        """Return for each name the text of its field in each record, ``None`` where there is none."""
        columns: list[list[str | None]] = [[None] * len(self.texts) for _ in self.names]
        texts = self.texts
        rows = (self.record.tolist(), self.kind.tolist(), self.starts.tolist(), self.stops.tolist())
        for n, k, start, stop in zip(*rows, strict=True):
            column = columns[k]
            value = texts[n][start:stop].strip(TRIMMED)
            column[n] = value if column[n] is None else f"{column[n]}{JOINT}{value}"
        return columns

    def records(self) -> list[Record]:
        """Return the records one by one."""
        texts, names = self.texts, self.names
        fields: list[list[Field]] = [[] for _ in texts]
        rows = (array.tolist() for array in (self.record, self.kind, self.starts, self.stops, self.p))
        for n, k, start, stop, p in zip(*rows, strict=True):
            whole = texts[n][start:stop]
            text = whole.strip(TRIMMED)
            if text is not whole:
                start += len(whole) - len(whole.lstrip(TRIMMED))
                stop = start + len(text)
            fields[n].append(Field(names[k], text, start, stop, p))
        both = zip(self.probability.tolist(), self.rules.tolist(), strict=True)
        return [
            Record(text, tuple(own), p, hold, self.problems.get(n, ""))
            for n, (text, own, (p, hold)) in enumerate(zip(texts, fields, both, strict=True))
        ]

    def columns(self, *, rules: bool = False) -> dict[str, list[Any]]:
        """Return a column for each field, and ``probability``, with ``rules`` also theirs, and ``problem``."""
        made: dict[str, list[Any]] = dict(zip(self.names, self.values(), strict=True))
        made["probability"] = self.probability.tolist()
        if rules:
            made["rules_probability"] = self.rules.tolist()
        made["problem"] = [""] * len(self.texts)
        for n, problem in self.problems.items():
            made["problem"][n] = problem
        return made


def _words(text: str, places: Places) -> list[str]:
    return [text[a:b] for a, b in places]


def _labels(spans: list[Span], n: int, touching: bool) -> list[str]:
    """Return the labels of n tokens: in BIO, or the names of fields."""
    if touching:
        return labels_from_spans(spans, n)
    labels = ["O"] * n
    for name, start, stop in spans:
        labels[start:stop] = [name] * (stop - start)
    return labels
