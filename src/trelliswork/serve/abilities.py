"""What a served model can do: tag, parse, score or fill; the fields of a request, and the answer to each sentence."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from trelliswork.models.tasks import LanguageModel, LayeredTagger, Tagger, TreeParser
from trelliswork.serve.requests import RequestError

MAX_BEST = 100  # labelings or words in a list
Options = tuple[int, ...]
Answers = list[dict[str, Any]]
Named = dict[str, dict[str, "Ability"]]


@dataclass(frozen=True)
class Option:
    """A field of a request beside the sentences: a switch, or a number up to a limit."""

    name: str
    help: str
    default: int = 0
    most: int = 1  # 1 is a switch

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        if self.most == 1:
            return {"type": "boolean", "default": bool(self.default), "description": self.help}
        limits = {"minimum": 1, "maximum": self.most, "default": self.default}
        return {"type": "integer", **limits, "description": self.help}

    def read(self, value: Any) -> int:
        """Return the value of a field of JSON."""
        if self.most == 1:
            if not isinstance(value, bool):
                raise RequestError(f"field {self.name!r}", "true or false", value)
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= self.most:
            raise RequestError(f"field {self.name!r}", f"an integer from 1 to {self.most}", value)
        return value

    def parse(self, text: str) -> int:
        """Return the value of a parameter in an address."""
        if self.most == 1:
            return self.read({"true": True, "false": False}.get(text, text))
        return self.read(int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else text)


@dataclass(frozen=True)
class Ability:
    """A question that a model can answer.

    ``answer(model, sentences, options)`` returns an answer for each sentence. With ``together`` the answer to a
    sentence does not depend on the other sentences, bit for bit, so requests may be answered by one call.
    """

    name: str
    summary: str
    answer: Callable[[Any, Sequence[Any], Options], Answers]
    options: tuple[Option, ...] = ()
    together: bool = True
    blanks: bool = False
    schema: Mapping[str, Any] | None = None  # properties of an answer

    def read_options(self, fields: Mapping[str, Any], *, text: bool = False) -> Options:
        """Return the values of the options; other fields are an error. With ``text`` the fields are of an address."""
        names = {option.name: option for option in self.options}
        if unknown := [name for name in fields if name not in names]:
            expected = f"no other fields than {', '.join(['sentences', *names])}"
            raise RequestError("the fields of the request", expected, ", ".join(map(repr, unknown)))
        read = {name: (names[name].parse if text else names[name].read)(value) for name, value in fields.items()}
        return tuple(read.get(name, option.default) for name, option in names.items())


def abilities_of(cls: Any) -> dict[str, Ability]:
    """Return the abilities of a class of models, by name."""
    found = []
    if issubclass(cls, LayeredTagger):
        found.append(TAG_LAYERS)
    elif issubclass(cls, Tagger):
        found.append(TAG)
    elif issubclass(cls, TreeParser):
        found.append(PARSE_CONSTITUENTS if cls.constituents else PARSE)
    if issubclass(cls, LanguageModel):
        found += [SCORE, FILL]
    return {ability.name: ability for ability in found}


def _tag(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    *how, known = options
    return _with_known(model, sentences, _labels(model, sentences, *how), known)


def _with_known(model: Any, sentences: Sequence[Any], answers: Answers, known: int) -> Answers:
    """Add to each answer which words the model has seen in training; null if it has not kept them."""
    if known:
        words = _words_of(model)
        for sentence, answer in zip(sentences, answers, strict=True):
            tokens = (token[0] if isinstance(token, list | tuple) else token for token in sentence)
            answer["known"] = None if words is None else [token in words for token in tokens]
    return answers


def _words_of(model: Any) -> set[str] | None:
    """Return the words that a model has seen in training, made once for each model."""
    if model not in _WORDS:
        _WORDS[model] = model.known_words()
    return _WORDS[model]


def _labels(model: Any, sentences: Sequence[Any], probabilities: int, k: int) -> Answers:
    if k > 1:
        lists = model.predict_topk(sentences, k)
        return [{"labelings": [{"labels": list(y), "probability": float(p)} for y, p in best]} for best in lists]
    labels = model.predict(sentences)
    if not probabilities:
        return [{"labels": row} for row in labels]
    rows = model.predict_marginals(sentences)
    return [
        {"labels": own, "probabilities": [float(p[label]) for p, label in zip(row, own, strict=True)]}
        for own, row in zip(labels, rows, strict=True)
    ]


def _tag_layers(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    layers = model.predict_layers(sentences)
    answers: Answers = [{"labels": {name: rows[n] for name, rows in layers.items()}} for n in range(len(sentences))]
    if options[0]:
        marginals = model.predict_marginals(sentences)
        for n, answer in enumerate(answers):
            answer["probabilities"] = {
                name: [float(p[label]) for p, label in zip(marginals[name][n], own, strict=True)]
                for name, own in answer["labels"].items()
            }
    return _with_known(model, sentences, answers, options[1])


def _parse(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    if options[0]:
        trees = model.parse(sentences)
        return [
            {"heads": [h for h, _, _ in t], "labels": [r for _, r, _ in t], "probabilities": [float(p) for *_, p in t]}
            for t in trees
        ]
    return [{"heads": [h for h, _ in t], "labels": [r for _, r in t]} for t in model.predict(sentences)]


def _constituents(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    for n, sentence in enumerate(sentences):
        if len(sentence) < 2:
            raise RequestError(f"sentence {n}", "at least two words: a tree has two words or more", "one word")
    return [{"tree": str(tree)} for tree in model.predict(sentences)]


def _score(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    return [{"log_p": p if math.isfinite(p) else None} for p in model.log_evidence(sentences).tolist()]


def _fill(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    answers = []
    for n, sentence in enumerate(sentences):
        if None not in sentence:
            raise RequestError(f"sentence {n}", "at least one blank: null or ___", "no blank")
        lists = model.fill(sentence, options[0])
        answers.append({"blanks": [[{"word": str(word), "p": float(p)} for word, p in best] for best in lists]})
    return answers


def _list(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


_STRING, _NUMBER = {"type": "string"}, {"type": "number"}
_PROBABILITIES = Option("probabilities", "Whether to add the probability of each label, or of each arc.")
_KNOWN = Option("known", "Whether to add which words the model has seen in training.")
_KNOWN_SCHEMA = {"type": ["array", "null"], "items": {"type": "boolean"}}
_WORDS: WeakKeyDictionary[Any, set[str] | None] = WeakKeyDictionary()  # of served models
_LABELING = {"type": "object", "properties": {"labels": _list(_STRING), "probability": _NUMBER}}
TAG = Ability(
    "tag",
    "Label the tokens of sentences.",
    _tag,
    (_PROBABILITIES, Option("topk", "Number of best labelings of each sentence.", 1, MAX_BEST), _KNOWN),
    schema={
        "labels": _list(_STRING),
        "probabilities": _list(_NUMBER),
        "labelings": _list(_LABELING),
        "known": _KNOWN_SCHEMA,
    },
)
TAG_LAYERS = Ability(
    "tag",
    "Label the tokens of sentences in several layers.",
    _tag_layers,
    (_PROBABILITIES, _KNOWN),
    together=False,  # belief propagation stops when the slowest sentence has converged
    schema={
        "labels": {"type": "object", "additionalProperties": _list(_STRING)},
        "probabilities": {"type": "object", "additionalProperties": _list(_NUMBER)},
        "known": _KNOWN_SCHEMA,
    },
)
PARSE = Ability(
    "parse",
    "Parse sentences: heads, counted from 1 with 0 for the root, and labels of arcs.",
    _parse,
    (_PROBABILITIES,),
    schema={
        "heads": _list({"type": "integer"}),
        "labels": _list({"type": ["string", "null"]}),
        "probabilities": _list(_NUMBER),
    },
)
PARSE_CONSTITUENTS = Ability(
    "parse", "Parse sentences: bracketed trees.", _constituents, together=False, schema={"tree": _STRING}
)
SCORE = Ability(
    "score",
    "Return the natural logarithm of the probability of sentences; null if it is zero.",
    _score,
    together=False,  # matrix products of other sizes round differently
    schema={"log_p": {"type": ["number", "null"]}},
)
FILL = Ability(
    "fill",
    "Return the most probable words of blanks: null, or ___.",
    _fill,
    (Option("n", "Number of words per blank.", 10, MAX_BEST),),
    together=False,
    blanks=True,
    schema={"blanks": _list(_list({"type": "object", "properties": {"word": _STRING, "p": _NUMBER}}))},
)
