"""What a served model can do, such as tag, parse, score or fill: the fields of a request, and the answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from trelliswork.answers import Want, ask, number, ranked, word_of
from trelliswork.data.vocabulary import END
from trelliswork.models.tasks import LanguageModel, LayeredTagger, NextWord, Tagger, TreeParser
from trelliswork.report.learned import embeddings, neighbors
from trelliswork.serve import posterior
from trelliswork.serve.requests import RequestError, read_json

MAX_BEST = 100  # labelings or words in a list
MAX_TREES = 20  # structures of a posterior
MAX_SAMPLES, MAX_LENGTH, MAX_SEED = 50, 200, 2**31 - 1
Options = tuple[Any, ...]
Answers = list[dict[str, Any]]
Named = dict[str, dict[str, "Ability"]]


STRING, NUMBER = {"type": "string"}, {"type": "number"}


def array(of: Any, **limits: Any) -> dict[str, Any]:
    """Return the JSON schema of a list."""
    return {"type": "array", "items": of, **limits}


def record(required: Sequence[str] = (), /, **properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object."""
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


@dataclass(frozen=True)
class Option:
    """A field of a request beside the sentences: a switch, a number between two limits, or another value of JSON."""

    name: str
    help: str
    default: Any = 0
    most: int = 1  # 1 is a switch, 0 another value of JSON
    least: int = 1
    types: tuple[str, ...] = ("array", "object")  # of other values

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        kind: dict[str, Any] = {"type": "integer", "minimum": self.least, "maximum": self.most, "default": self.default}
        if self.most < 2:
            kind = {"type": "boolean", "default": bool(self.default)} if self.most else {"type": list(self.types)}
        return kind | {"description": self.help}

    def read(self, value: Any) -> Any:
        """Return the value of a field of JSON."""
        if self.most == 0:
            return value
        if self.most == 1:
            if not isinstance(value, bool):
                raise RequestError(f"field {self.name!r}", "true or false", value)
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise RequestError(f"field {self.name!r}", f"an integer from {self.least} to {self.most}", value)
        return value

    def parse(self, text: str) -> Any:
        """Return the value of a parameter in an address: text, or JSON in brackets."""
        if self.most == 0:
            return read_json(text.encode(), f"field {self.name!r}") if text[:1] in "[{" else text
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
    together: bool = False
    blanks: bool = False
    schema: Mapping[str, Any] | None = None  # properties of an answer
    sentences: bool = True  # whether a request has any
    max_words: int | None = None  # of a sentence

    def read_options(self, fields: Mapping[str, Any], *, text: bool = False) -> Options:
        """Return the values of the options; other fields are an error. With ``text`` the fields are of an address."""
        names = {option.name: option for option in self.options}
        if unknown := [name for name in fields if name not in names]:
            expected = f"no other fields than {', '.join([*['sentences'] * self.sentences, *names])}"
            raise RequestError("the fields of the request", expected, ", ".join(map(repr, unknown)))
        read = {name: (names[name].parse if text else names[name].read)(value) for name, value in fields.items()}
        return tuple(read.get(name, option.default) for name, option in names.items())


def abilities_of(cls: Any, page: bool = False) -> dict[str, Ability]:
    """Return the abilities of a class of models by name; with ``page`` also those that only its page needs."""
    found, more = [], []
    if issubclass(cls, LayeredTagger):
        found, more = [TAG_LAYERS], [POSTERIOR_LAYERS]
    elif issubclass(cls, Tagger):
        found, more = [TAG], [POSTERIOR]
    elif issubclass(cls, TreeParser):
        found, more = ([PARSE_TREES], [POSTERIOR_TREES]) if cls.constituents else ([PARSE], [POSTERIOR_ARCS])
    if issubclass(cls, LanguageModel):
        any_word = page and type(None) in cls._tokens
        found += [replace(SCORE, blanks=True) if any_word else SCORE, FILL]
        more += [NEXT] if issubclass(cls, NextWord) else []
        more += [SAMPLE, *([NEIGHBORS] if callable(getattr(cls, "vectors", None)) else [])]
        hidden = hasattr(cls, "predict_marginals") and not issubclass(cls, Tagger | TreeParser)
        more += [POSTERIOR_STATES] if hidden else []
    return {ability.name: ability for ability in [*found, *(more if page else [])]}


def _tag(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    probabilities, *topk, known, rules = options
    best = topk[0] if topk and topk[0] > 1 else 0
    want = Want(marginals=bool(probabilities) and not best, topk=best)
    answers = [answer.result() for answer in ask(model, sentences, want, rules=rules)]
    if best:
        answers = [{key: value for key, value in answer.items() if key != "labels"} for answer in answers]
    if known:
        words = _WORDS[model] if model in _WORDS else _WORDS.setdefault(model, model.known_words())
        for sentence, answer in zip(sentences, answers, strict=True):
            answer["known"] = None if words is None else [word_of(token) in words for token in sentence]
    return answers


def _parse(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    if model.constituents:
        posterior.check_trees(sentences)
    return [answer.result() for answer in ask(model, sentences, Want(marginals=any(options)))]


def _score(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    return [answer.result() for answer in ask(model, sentences, task="score")]


def _fill(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    if (n := next((n for n, sentence in enumerate(sentences) if None not in sentence), None)) is not None:
        raise RequestError(f"sentence {n}", "at least one blank: null or ___", "no blank")
    return [answer.result() for answer in ask(model, sentences, Want(n=options[0]), "fill")]


def _next(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    answers = []
    for answer in ask(model, sentences, Want(n=len(model.vocabulary_) + 1), "next"):
        following = [(word, p) for word, p in answer.value if word != END]
        answers.append({"next": ranked(following[: options[0]]), "end": number(dict(answer.value).get(END, 0.0))})
    return answers


def _sample(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    n, seed, max_length = options
    states = hasattr(model, "sample_with_states")
    drawn = (model.sample_with_states if states else model.sample)(n, seed=seed, max_length=max_length)
    pairs = drawn if states else [(words, None) for words in drawn]
    return [{"samples": [{"words": [str(word) for word in words], "states": own} for words, own in pairs]}]


def _neighbors(model: Any, sentences: Sequence[Any], options: Options) -> Answers:
    answers: Answers = []
    vocabulary = model.vocabulary_
    for n, words in enumerate(sentences):
        known = len(words) == 1 and words[0] in vocabulary[1:]
        if embeddings(model) is None or not known:
            expected = f"one of the {len(vocabulary) - 1:,} words of the model, if it has vectors"
            raise RequestError(f"sentence {n}", expected, " ".join(map(str, words)))
        near = neighbors(model, words[0], options[0])
        answers.append({"neighbors": [{"word": word, "cosine": number(cosine)} for word, cosine in near]})
    return answers


_PROBABILITIES = Option("probabilities", "Whether to add the probability of each label, or of each arc.")
_KNOWN = Option("known", "Whether to add which words the model has seen in training.")
_WORDS: WeakKeyDictionary[Any, set[str] | None] = WeakKeyDictionary()  # of served models
_WORD = record(word=STRING, p=NUMBER)
_N = Option("n", "Number of words.", 10, MAX_BEST)
_K = Option("k", "Number of most probable labelings or trees.", 5, MAX_TREES)
_EVIDENCE = Option("evidence", "What is known about the one sentence of the request.", None, 0)
_HOLD = {"rules_probability": NUMBER, "kind": STRING}
_MORE = {"known": {"type": ["array", "null"], "items": {"type": "boolean"}}} | _HOLD
_RULES = Option("rules", 'Rules such as AtMostOnce("PER"), or by layer.', None, 0, types=("string", "array", "object"))
_TAG = "tag", "Label the tokens of sentences.", _tag
_PARSE = "parse", "Parse sentences: heads, counted from 1 with 0 for the root, and labels of arcs.", _parse
_SCORE = "score", "Return the natural logarithm of the probability of sentences; null if it is zero.", _score
_NEXT = (
    "next",
    "Return the most probable next words after the starts of sentences, and the probability of the end.",
    _next,
)
_NEAR = "neighbors", "Return the words whose vectors are most similar to that of a word, the sentence.", _neighbors
_WHOLE = "posterior", "Return the most probable structures, and the probabilities of their parts, given what is known."
_SEED, _LENGTH = Option("seed", "Seed.", 0, MAX_SEED, 0), Option("max_length", "Most words.", 40, MAX_LENGTH, 2)
_LABELS = {"labels": array(STRING), "probabilities": array(NUMBER)}
_BEST = {"labelings": array(record(labels=array(STRING), probability=NUMBER))}
_TOPK = Option("topk", "Number of best labelings of each sentence.", 1, MAX_BEST)
TAG = Ability(*_TAG, (_PROBABILITIES, _TOPK, _KNOWN, _RULES), together=True, schema=_LABELS | _BEST | _MORE)
TAG_LAYERS = replace(
    TAG,
    summary="Label the tokens of sentences in several layers.",
    options=(_PROBABILITIES, _KNOWN, _RULES),
    together=False,  # belief propagation stops when the slowest sentence has converged
    schema={n: {"type": "object", "additionalProperties": own} for n, own in _LABELS.items()} | _MORE,
)
_ARCS = {
    "heads": array({"type": "integer"}),
    "labels": array({"type": ["string", "null"]}),
    "probabilities": array(NUMBER),
}
PARSE = Ability(*_PARSE, (_PROBABILITIES,), together=True, schema=_ARCS)
PARSE_TREES = Ability("parse", "Parse sentences: bracketed trees.", _parse, schema={"tree": STRING})
# Not together: matrix products of other sizes round differently.
SCORE = Ability(*_SCORE, schema={"log_prob": {"type": ["number", "null"]}})
FILL = Ability(
    "fill",
    "Return the most probable words of blanks: null, or ___.",
    _fill,
    (replace(_N, help="Number of words per blank."),),
    blanks=True,
    schema={"blanks": array(array(_WORD)), "kind": STRING},
)
NEXT = Ability(*_NEXT, (_N,), schema={"next": array(_WORD), "end": NUMBER})
SAMPLE = Ability(
    "sample",
    "Return random sentences; the same seed gives the same ones.",
    _sample,
    (Option("n", "Number of sentences.", 5, MAX_SAMPLES), _SEED, _LENGTH),
    schema={"samples": array(record(words=array(STRING)))},
    sentences=False,
)
NEIGHBORS = Ability(*_NEAR, (_N,), schema={"neighbors": array(record(word=STRING, cosine=NUMBER))})
POSTERIOR = Ability(*_WHOLE, posterior.labels, (_K, _EVIDENCE, _RULES), schema={"kind": STRING}, max_words=200)
POSTERIOR_LAYERS = replace(POSTERIOR, options=(_EVIDENCE, _RULES), max_words=100)
POSTERIOR_ARCS = replace(POSTERIOR, answer=posterior.arcs, options=(_K, _EVIDENCE), max_words=100)
POSTERIOR_TREES = replace(POSTERIOR_ARCS, answer=posterior.trees, max_words=40)
POSTERIOR_STATES = replace(POSTERIOR, answer=posterior.states, options=())
