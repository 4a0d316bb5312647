"""Components for spaCy: ``trelliswork_tagger``, ``trelliswork_ner`` and ``trelliswork_parser``.

Each uses a saved model (``config={"model": DIR}``), or trains one when the pipeline is initialized, as ``spacy train``
does. Installing trelliswork registers them; without entry points, importing this module does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import srsly
from spacy.attrs import DEP, HEAD
from spacy.language import Language
from spacy.scorer import Scorer, get_ner_prf
from spacy.tokens import Doc, Span, Token
from spacy.training import Example, biluo_to_iob
from spacy.util import SimpleFrozenList, minibatch

from trelliswork.answers import Answer, Want, ask, layers_with_spans
from trelliswork.data.tokenize import Piece, sentence_ends
from trelliswork.errors import DataError, NotFittedError
from trelliswork.models import CRF, DependencyParser, Estimator, load
from trelliswork.models.tasks import LayeredTagger, Tagger

ATTRIBUTES = {"form": "text", "upos": "pos_", "xpos": "tag_", "lemma": "lemma_", "deprel": "dep_"}
KEEP = {"tag": "tag_", "pos": "pos_"}
for _kind, _name in ((Token, "tag_p"), (Token, "arc_p"), (Token, "label_p"), (Span, "p")):
    if not _kind.has_extension(_name):
        _kind.set_extension(_name, default=None)
if not Doc.has_extension("rules_p"):
    Doc.set_extension("rules_p", default={})

Sentences = list[list[Any]]


class Component:
    """A component of a pipeline: documents in, the same documents with annotation out.

    Parameters
    ----------
    name : str
    model : str, optional
        Directory of a saved model. Without it, the component is trained by ``nlp.initialize``.
    columns : list of str
        Attributes of tokens that the model reads, such as ``["text", "tag_"]``; by default those of its training file,
        or the words alone.
    settings : dict
        Parameters of the estimator that is trained.
    """

    task: ClassVar[type[Estimator]] = Estimator
    want: ClassVar[Want] = Want(marginals=True)
    rules: str | None = None

    def __init__(
        self,
        nlp: Language,
        name: str,
        model: str | None = None,
        columns: list[str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.columns, self.settings = name, list(columns or ()), dict(settings or {})
        self.model: Any = None
        if model is not None:
            self._set(load(model), str(model))

    def _set(self, model: Any, source: str) -> None:
        if not isinstance(model, self.task):
            raise DataError(
                f"{source}: {self.name} needs a {self.task.__name__}, got a model of kind {model.family!r}."
            )
        if isinstance(model, LayeredTagger):
            raise DataError(f"{source}: {self.name} sets one label per token, but this model has several layers.")
        self.model = model
        if not self.columns:
            named = [ATTRIBUTES.get(c) for c in getattr(model, "input_", {}).get("columns") or []]
            self.columns = [c for c in named if c is not None] or ["text"]

    def __call__(self, doc: Doc) -> Doc:
        """Annotate one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 256) -> Iterator[Doc]:
        """Annotate documents, batch by batch."""
        if self.model is None:
            raise NotFittedError(
                f"{self.name} has no model: pass config={{'model': DIR}}, or train it with nlp.initialize."
            )
        for docs in minibatch(stream, batch_size):
            batch = list(docs)
            found = [_sentences(doc) for doc in batch]
            rows = [self._row(sentence) for sentences in found for sentence in sentences]
            answers = iter(ask(self.model, rows, self.want, rules=self.rules))
            for doc, sentences in zip(batch, found, strict=True):
                own = [(sentence, next(answers)) for sentence in sentences]
                self._annotate(doc, own)
                if self.rules is not None:
                    doc._.rules_p = doc._.rules_p | {self.name: [answer.rules_probability for _, answer in own]}
            yield from batch

    def initialize(self, get_examples: Callable[[], Iterable[Example]], *, nlp: Language | None = None) -> None:
        """Train the model of the component on gold annotation, unless it has a model."""
        if self.model is None:
            self._train(list(get_examples()))

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = SimpleFrozenList()) -> None:
        """Write the model and the settings to a directory."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        srsly.write_json(folder / "component.json", {"columns": self.columns, "settings": self.settings})
        if self.model is not None:
            self.model.save(folder / "model")

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = SimpleFrozenList()) -> Self:
        """Read what ``to_disk`` has written."""
        folder = Path(path)
        plain: Any = srsly.read_json(folder / "component.json")
        self.columns, self.settings = list(plain["columns"]), dict(plain["settings"])
        if (folder / "model").is_dir():
            self._set(load(folder / "model"), str(folder / "model"))
        return self

    def to_bytes(self, *, exclude: Iterable[str] = SimpleFrozenList()) -> bytes:
        """Return model and settings as bytes."""
        plain: dict[str, Any] = {"columns": self.columns, "settings": self.settings}
        if self.model is not None:
            state = self.model.__getstate__()
            plain |= {"kind": self.model.family, "plain": state["plain"], "arrays": state["arrays"]}
        return srsly.msgpack_dumps(plain)

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = SimpleFrozenList()) -> Self:
        """Read what ``to_bytes`` has returned."""
        import trelliswork.models as models
        from trelliswork.models import FAMILIES

        plain: Any = srsly.msgpack_loads(data)
        self.columns, self.settings = list(plain["columns"]), dict(plain["settings"])
        if "kind" in plain:
            names = {kind: name for name, kind, _ in FAMILIES}
            cls = getattr(models, names[plain["kind"]])
            self._set(cls._restored("bytes", json.loads(plain["plain"]), plain["arrays"]), "bytes")
        return self

    def _row(self, sentence: Span) -> list[Any]:
        """Return a sentence for the model: words, or tuples of columns."""
        if len(self.columns) == 1:
            return [getattr(token, self.columns[0]) for token in sentence]
        return [tuple(getattr(token, column) for column in self.columns) for token in sentence]

    def _annotate(self, doc: Doc, answers: list[tuple[Span, Answer]]) -> None:
        raise AssertionError("each component annotates documents")

    def _train(self, examples: list[Example]) -> None:
        raise AssertionError("each component trains its model")

    def score(self, examples: Iterable[Example], **options: Any) -> dict[str, Any]:
        """Return scores of annotated examples."""
        raise AssertionError("each component scores examples")


def _sentences(doc: Doc) -> list[Span]:
    """Return the sentences of a document; by our own rules if it has none."""
    if not len(doc):
        return []
    if doc.has_annotation("SENT_START"):
        return list(doc.sents)
    pieces = [Piece(token.text, token.idx, token.idx + len(token)) for token in doc]
    return [doc[start:stop] for start, stop in pairwise([0, *sentence_ends(pieces, doc.text), len(doc)])]


@Language.factory("trelliswork_tagger", assigns=["token.tag"], default_score_weights={"tag_acc": 1.0})
class TaggerComponent(Component):
    """``trelliswork_tagger``: sets ``token.tag_`` (or ``pos_``), and its probability in ``token._.tag_p``.

    With ``rules``, a text as `trelliswork.rules.parse` reads it, labels satisfy them in every sentence, and
    ``doc._.rules_p`` has by the name of the component the probability that they hold, for each sentence.
    """

    task = Tagger

    def __init__(
        self,
        nlp: Language,
        name: str,
        model: str | None = None,
        columns: list[str] | None = None,
        settings: dict[str, Any] | None = None,
        attribute: str = "tag",
        rules: str | None = None,
    ) -> None:
        if attribute not in KEEP:
            raise DataError(f"the attribute of {name} must be tag or pos, got {attribute!r}.")
        self.attribute, self.rules = attribute, rules
        super().__init__(nlp, name, model, columns, settings)

    def _annotate(self, doc: Doc, answers: list[tuple[Span, Answer]]) -> None:
        for sentence, answer in answers:
            for token, label, p in zip(sentence, answer.value, answer.probabilities, strict=True):
                setattr(token, KEEP[self.attribute], label)
                token._.tag_p = p

    def _train(self, examples: list[Example]) -> None:
        attribute = self.attribute.upper()
        X, y = _parts(examples, lambda example: example.get_aligned(attribute, as_string=True), self)
        self._set(CRF(**({"features": "pos", "scheme": None} | self.settings)).fit(X, y), "training")

    def score(self, examples: Iterable[Example], **options: Any) -> dict[str, Any]:
        """Return the accuracy of the attribute."""
        return Scorer.score_token_attr(examples, self.attribute, **options)


@Language.factory("trelliswork_ner", assigns=["doc.ents"], default_score_weights={"ents_f": 1.0})
class EntityComponent(Component):
    """``trelliswork_ner``: sets ``doc.ents``; ``span._.p`` is the probability that exactly this entity is there.

    With ``rules`` as in `TaggerComponent`, everything is given that they hold.
    """

    task = Tagger
    want = Want(marginals=True, spans=True)

    def __init__(
        self,
        nlp: Language,
        name: str,
        model: str | None = None,
        columns: list[str] | None = None,
        settings: dict[str, Any] | None = None,
        rules: str | None = None,
    ) -> None:
        self.rules = rules
        super().__init__(nlp, name, model, columns, settings)

    def _set(self, model: Any, source: str) -> None:
        super()._set(model, source)
        if not layers_with_spans(model):
            raise DataError(f"{source}: {self.name} needs labels of spans in BIO or BIOES, such as B-PER.")

    def _annotate(self, doc: Doc, answers: list[tuple[Span, Answer]]) -> None:
        entities = []
        for sentence, answer in answers:
            for token, p in zip(sentence, answer.probabilities, strict=True):
                token._.label_p = p
            for entity, p in answer.spans:
                span = Span(doc, sentence.start + entity.start, sentence.start + entity.stop, label=entity.type)
                span._.p = float(p)
                entities.append(span)
        doc.set_ents(entities)

    def _train(self, examples: list[Example]) -> None:
        def gold(example: Example) -> list[str | None]:
            tags: list[Any] = example.get_aligned_ner()
            known = biluo_to_iob([tag or "O" for tag in tags])
            return [None if tag is None or tag == "-" else label for tag, label in zip(tags, known, strict=True)]

        X, y = _parts(examples, gold, self)
        self._set(CRF(**({"features": "ner"} | self.settings)).fit(X, y), "training")

    def score(self, examples: Iterable[Example], **options: Any) -> dict[str, Any]:
        """Return precision, recall and F1 of entities."""
        return get_ner_prf(examples, **options)


@Language.factory(
    "trelliswork_parser", assigns=["token.dep", "token.head", "doc.sents"], default_score_weights={"dep_las": 1.0}
)
class ParserComponent(Component):
    """``trelliswork_parser``: sets heads, ``dep_`` and sentences; ``token._.arc_p`` is the probability of the arc."""

    task = DependencyParser

    def _set(self, model: Any, source: str) -> None:
        super()._set(model, source)
        if model.tagger is not None:
            self.columns = self.columns[:1]

    def _annotate(self, doc: Doc, answers: list[tuple[Span, Answer]]) -> None:
        heads, labels = np.zeros(len(doc), np.int64), [""] * len(doc)
        for sentence, answer in answers:
            arcs = zip(sentence, answer.value, answer.probabilities, strict=True)
            for t, (token, (head, label), p) in enumerate(arcs):
                heads[token.i] = head - 1 - t if head else 0
                labels[token.i] = label or ("ROOT" if not head else "dep")
                token._.arc_p = p
        codes = np.array([doc.vocab.strings.add(label) for label in labels], np.uint64)
        doc.from_array([HEAD, DEP], np.stack([heads.astype(np.uint64), codes], axis=1))

    def _train(self, examples: list[Example]) -> None:
        tagged = all(e.reference.has_annotation("TAG") for e in examples)
        self.columns = self.columns or (["text", "tag_"] if tagged else ["text"])
        settings = {"tagger": "crf"} if len(self.columns) > 1 else {}

        def gold(example: Example) -> list[tuple[int | None, str | None]]:
            heads, labels = example.get_aligned_parse(projectivize=False)
            return [(None if h is None else int(h), name or None) for h, name in zip(heads, labels, strict=True)]

        X, y = _parts(examples, gold, self, of_reference=True)
        trees = []
        for words, arcs in zip(X, y, strict=True):
            first = words.pop()  # index of the first token in its document
            trees.append([_arc(t, arc, first, len(words)) for t, arc in enumerate(arcs)])
        model = DependencyParser(**(settings | self.settings))
        self._set(model.fit(X, trees), "training")

    def score(self, examples: Iterable[Example], **options: Any) -> dict[str, Any]:
        """Return attachment scores and those of sentences."""

        def label(token: Token, _: str) -> str:
            return token.dep_

        return Scorer.score_deps(examples, "dep", getter=label, ignore_labels=("p", "punct"), **options)


def _arc(t: int, arc: tuple[int | None, str | None], first: int, n: int) -> tuple[int | None, str | None]:
    """Return head (0 is the root) and label of a word of a sentence, from the head's index in the document."""
    head, label = arc
    if head is None:
        return None, label
    place = head - first
    if place == t:
        return 0, label
    return (place + 1, label) if 0 <= place < n else (None, label)


def _parts(
    examples: list[Example], gold: Callable[[Example], Sequence[Any]], component: Component, of_reference: bool = False
) -> tuple[Sentences, list[list[Any]]]:
    """Return the sentences of examples as a model reads them, and their gold annotation.

    Words are those of the pipeline's tokenizer, other columns are gold. With ``of_reference`` each sentence gets the
    index of its first token as a last item.
    """
    columns = component.columns or ["text"]
    X: Sentences = []
    y: list[list[Any]] = []
    for example in examples:
        answers = list(gold(example))
        rows = []
        for column in columns:
            if column == "text":
                rows.append([token.text for token in example.predicted])
            else:
                name = column.rstrip("_").upper()
                rows.append([value or "_" for value in example.get_aligned(name, as_string=True)])
        tokens: list[Any] = rows[0] if len(rows) == 1 else list(zip(*rows, strict=True))
        starts: list[Any] = example.get_aligned("SENT_START")
        bounds = [t for t in range(len(tokens)) if t == 0 or starts[t] == 1] + [len(tokens)]
        for first, stop in pairwise(bounds):
            if stop > first:
                X.append([*tokens[first:stop], first] if of_reference else list(tokens[first:stop]))
                y.append(answers[first:stop])
    if not X:
        raise DataError(f"{component.name}: the examples have no tokens to learn from.")
    component.columns = columns
    return X, y
