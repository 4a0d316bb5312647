"""Declarations of estimator parameters: ``__init__``, checks, documentation and options of ``train`` come from them.

A parameter is declared once, as an attribute of its class: its type and a `Parameter` in ``Annotated``, and its
default. The first is positional, the others are keywords. Those declared with `option` are rarely set: they are passed
by name in the parameter ``options``. Parameters that several estimators share are defined here, so that a name means
the same everywhere.
"""

import inspect
import numbers
import operator
import re
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from trelliswork.data.files import shorten
from trelliswork.errors import ValueRangeError
from trelliswork.features.brown import BrownClusters
from trelliswork.features.lexicon import Lexicon
from trelliswork.features.vectors import WordVectors

MODEL, TRAINING = "Model", "Training"
_PLAIN: dict[Any, tuple[Any, str]] = {  # types that are checked, what their values are, and how these are called
    bool: (bool, "True or False"),
    int: (numbers.Integral, "an integer"),
    float: (numbers.Real, "a number"),
    str: (str, "a string"),
}


@dataclass(frozen=True)
class Parameter:
    """Meaning and limits of a parameter; ``minimum`` and ``maximum`` are inclusive, ``above`` and ``below`` not."""

    text: str  # meaning with the unit, as one or more sentences
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    panel: str = MODEL  # group of the option in ``train NAME --help``
    unset: str = ""  # meaning of ``None``, for a parameter whose default is ``None``
    parse: Callable[[str], Any] | None = None  # converts the text of an option, for types that a command line lacks
    option: bool = True  # whether ``train NAME`` has an option for it


@dataclass(frozen=True)
class Declared:
    """A parameter of one estimator: name, type without ``Annotated`` and ``None``, default, meaning."""

    name: str
    types: tuple[Any, ...]
    default: Any
    parameter: Parameter
    shown: bool = True  # False: an item of ``options``, and of the command's ``--help-all``

    @property
    def optional(self) -> bool:
        """Whether ``None`` is a value."""
        return type(None) in self.types

    @property
    def choices(self) -> tuple[str, ...]:
        """The strings that are allowed, for a ``Literal`` type."""
        return tuple(c for t in self.types if get_origin(t) is Literal for c in get_args(t))

    def check(self, value: Any) -> None:
        """Raise `ValueRangeError` if a value has the wrong type or is out of range."""
        p, kinds = self.parameter, [t for t in self.types if t is not type(None)]
        if value is None and self.optional:
            return
        if all(get_origin(t) is Literal for t in kinds):
            if value not in self.choices:
                names = [repr(c) for c in self.choices] + (["None"] if self.optional else [])
                raise ValueRangeError(f"{self.name} must be {_either(names)}, got {value!r}.")
        elif all(t in _PLAIN for t in kinds):
            fits = any(isinstance(value, _PLAIN[t][0]) for t in kinds)
            if not fits or (isinstance(value, bool) and bool not in kinds):
                raise ValueRangeError(f"{self.name} must be {_either([_PLAIN[t][1] for t in kinds])}, got {value!r}.")
        if isinstance(value, int | float) and not isinstance(value, bool):
            for limit, holds, words in (
                (p.minimum, operator.ge, "at least"),
                (p.maximum, operator.le, "at most"),
                (p.above, operator.gt, "greater than"),
                (p.below, operator.lt, "less than"),
            ):
                if limit is not None and not holds(value, limit):
                    raise ValueRangeError(f"{self.name} must be {words} {limit:g}, got {value!r}.")

    @property
    def type_name(self) -> str:
        """Type as the documentation shows it."""
        names = [f"{{{', '.join(map(repr, self.choices))}}}"] if self.choices else []
        for kind in self.types:
            if kind is not type(None) and get_origin(kind) is not Literal:
                names.append(getattr(kind, "__name__", str(kind)))
        return " or ".join([*dict.fromkeys(names), *(["None"] if self.optional else [])])


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


class Option:
    """A parameter that is an item of ``options``; as an attribute of an estimator it can be read."""

    def __init__(self, default: Any) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type) -> Any:
        return self if model is None else (model.options or {}).get(self.name, self.default)

    def __set__(self, model: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is one of the options: call set_params(options__{self.name}=...).")


def option(default: Any, *, init: Literal[False] = False) -> Any:
    """Declare a parameter that is passed in ``options``; ``init`` tells so to type checkers."""
    return Option(default)


def later(default: Any = inspect.Parameter.empty, *, init: Literal[False] = False) -> Any:
    """Declare an attribute that is no parameter, with the value that it has before a fit, if any."""
    return _Later(default)


class _Later(NamedTuple):
    """A marker with the value of an attribute before a fit."""

    default: Any


Class = TypeVar("Class", bound=type)


@dataclass_transform(eq_default=False, field_specifiers=(option, later))
def estimator(cls: Class) -> Class:
    """Give a class of estimators an ``__init__`` that stores the declared parameters, and their documentation."""
    declarations: dict[str, Declared] = {}
    arguments: list[inspect.Parameter] = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for name, annotation in inspect.get_annotations(cls).items():
        default: Any = vars(cls).get(name, inspect.Parameter.empty)
        origin: Any = get_origin(annotation)
        if isinstance(default, _Later):
            delattr(cls, name)
            if default.default is not inspect.Parameter.empty:
                setattr(cls, name, default.default)
        elif annotation == KW_ONLY:
            kind = inspect.Parameter.KEYWORD_ONLY
        elif ClassVar not in (origin, annotation):
            plain, parameter = annotation, Parameter("")
            if origin is Annotated:
                plain, *metadata = get_args(annotation)
                parameter = next((m for m in metadata if isinstance(m, Parameter)), parameter)
            shown = not isinstance(default, Option)
            if shown:
                arguments.append(inspect.Parameter(name, kind, default=default, annotation=plain))
                delattr(cls, name)
            if name != "options":
                kinds = get_args(plain) if get_origin(plain) in (Union, types.UnionType) else (plain,)
                value = default if shown else default.default
                declarations[name] = Declared(name, kinds, value, parameter, shown)
    signature = inspect.Signature(arguments)

    def __init__(self: Any, *values: Any, **named: Any) -> None:  # noqa: N807
        if unknown := [name for name in named if name not in signature.parameters]:
            raise TypeError(unknown_parameter(cls, unknown[0]))
        if len(values) > 1:
            second = arguments[1].name if len(arguments) > 1 else ""
            raise TypeError(
                f"{cls.__name__} takes one argument by position, {arguments[0].name}: "
                f"name the others, as in {second}=..."
            )
        bound = signature.bind(*values, **named)
        bound.apply_defaults()
        self.__dict__.update(bound.arguments)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([own, *arguments])  # type: ignore[attr-defined]
    __init__.__qualname__, __init__.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    cls.__init__ = __init__  # type: ignore[misc]
    cls._declared = declarations  # type: ignore[attr-defined]
    cls.__signature__ = signature  # type: ignore[attr-defined]
    cls.__doc__ = _documented(cls)
    return cls


def declared(estimator: Any) -> dict[str, Declared]:
    """Return the declared parameters of an estimator class by name, shown ones first."""
    declarations: dict[str, Declared] = estimator._declared
    return declarations


def arranged(estimator: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for an estimator class from values of its declared parameters; some go to ``options``."""
    hidden = {name: d.default for name, d in declared(estimator).items() if not d.shown}
    options = {k: v for k, v in values.items() if k in hidden and not (type(v) is type(hidden[k]) and v == hidden[k])}
    return {k: v for k, v in values.items() if k not in hidden} | ({"options": options} if options else {})


_ELSEWHERE = {  # our names, and those of CRFsuite, sklearn-crfsuite, scikit-learn and hmmlearn
    "l1": ("c1",),
    "l2": ("c2", "alpha", "C"),
    "max_iter": ("max_iterations", "n_iter", "epochs", "n_epochs"),
    "min_count": ("feature.minfreq", "minfreq", "min_freq", "min_df"),
    "feature_set": ("all_possible_states", "all_possible_transitions"),
    "tol": ("epsilon", "delta"),
    "seed": ("random_state",),
    "n_states": ("n_components",),
    "n_restarts": ("n_init",),
    "learning_rate": ("eta0",),
    "transition_prior": ("transmat_prior", "startprob_prior"),
}


def unknown_parameter(estimator: Any, name: str) -> str:
    """Return a message about a parameter that an estimator does not have; other packages may have it."""
    known, own = declared(estimator), estimator.__name__
    for here, names in _ELSEWHERE.items():
        if name in names and here in known:
            inverse = ", and large values regularize more: about 1 / (2 C)" if name == "C" else ""
            return f"{own}: {name} is called {here} here{inverse}." + _in_options(known[here])
    if name in known:
        return f"{own}: {name} is one of the options." + _in_options(known[name])
    if name == "max_minutes":
        return f"{own}: max_minutes is an argument of fit."
    return f"{own} has no parameter {name!r}; it has {', '.join(known)}."


def _in_options(d: Declared) -> str:
    return "" if d.shown else f" Pass options={{'{d.name}': ...}}, or set_params(options__{d.name}=...)."


def _documented(estimator: Any) -> str:
    """Return the docstring of an estimator with a section on its parameters, made from their declarations."""
    text = inspect.cleandoc(estimator.__doc__ or "")
    lines = ["Parameters", "----------"]
    for shown in (True, False):
        entries = [d for d in declared(estimator).values() if d.shown == shown]
        if entries and not shown:
            lines.append("options : dict or None, default None")
            lines.append("    Further parameters by name, such as ``options={'" + entries[0].name + "': ...}``:")
            lines.append("")
        for d in entries:
            head = f"{d.name} : {d.type_name}, default {d.default!r}"
            sentences = d.parameter.text + (f" None: {d.parameter.unset}." if d.parameter.unset else "")
            if shown:
                lines += [head, *textwrap.wrap(sentences, 110, initial_indent="    ", subsequent_indent="    ")]
            else:
                lines += textwrap.wrap(f"- {head}. {sentences}", 110, initial_indent="    ", subsequent_indent="      ")
    section = re.search(r"^(Attributes|Notes|Examples|References)\n-+$", text, re.MULTILINE)
    at = len(text) if section is None else section.start()
    return "\n\n".join(part for part in (text[:at].rstrip(), "\n".join(lines), text[at:].strip()) if part) + "\n"


FIT = {  # arguments of ``fit`` that mean the same everywhere
    "sample_weight": ("ndarray (n_sentences,), optional", "Weight of each sentence in the objective."),
    "checkpoint": (
        "path, optional",
        "A file for the state of training, written twice a minute. If it exists, training resumes from it and ends "
        "with the result of an uninterrupted run. ``save`` deletes it.",
    ),
    "callback": (
        "callable, optional",
        "Called with a `Step` after each iteration or epoch; a true result stops training.",
    ),
    "max_minutes": ("float, optional", "Time limit: stop before an iteration that would end later."),
}


def documented_fit(fit: Callable[..., Any]) -> str:
    """Return the docstring of a ``fit`` with the arguments in `FIT` that it takes and leaves out."""
    text = inspect.cleandoc(fit.__doc__ or "")
    for name, (kind, meaning) in FIT.items():
        if name in inspect.signature(fit).parameters and f"\n{name} : " not in text:
            text += f"\n{name} : {kind}\n{textwrap.indent(textwrap.fill(meaning, 110), '    ')}"
    return text + "\n"


def parse_beam(text: str) -> str | None:
    """Return the beam of an option; ``none`` is no beam."""
    from trelliswork.inference.chain.beam import Beam

    if text not in ("auto", "none"):
        Beam.parse(text)
    return None if text == "none" else text


def parse_weights(text: str) -> dict[str, float]:
    """Return weights by name from text such as ``B-LOC=5,B-MISC=2``."""
    weights = {}
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise ValueRangeError(f"weights must be NAME=NUMBER, such as B-LOC=2, got {shorten(part)}.")
    return weights


def parse_names(text: str) -> tuple[str, ...]:
    """Return names separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of names from text such as ``pos-chunk,chunk-entity``."""
    pairs = [tuple(pair.split("-")) for pair in text.split(",")]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueRangeError(f"pairs must be NAME-NAME separated by commas, such as pos-chunk, got {shorten(text)}.")
    return tuple((a, b) for a, b in pairs)


def parse_numbers(text: str) -> list[float]:
    """Return numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueRangeError(f"expected numbers separated by commas, such as 0.8,0.2, got {shorten(text)}.") from None


# The shared vocabulary: one name, one meaning.
FurtherOptions = Mapping[str, Any] | None
L1 = Annotated[float, Parameter("L1 penalty: l1 * sum |w|.", minimum=0, panel=TRAINING)]
L2 = Annotated[float, Parameter("L2 penalty: l2 * |w|^2.", minimum=0, panel=TRAINING)]
MaxIter = Annotated[int, Parameter("Maximum number of iterations.", minimum=1, panel=TRAINING)]
Tol = Annotated[
    float,
    Parameter("Relative change of the objective at which training stops.", minimum=0, panel=TRAINING),
]
LearningRate = Annotated[float, Parameter("Step size.", above=0, panel=TRAINING)]
BatchSize = Annotated[int, Parameter("Sentences per update.", minimum=1, panel=TRAINING)]
Patience = Annotated[
    int,
    Parameter(
        "With development data: stop after this many iterations without an improvement.", minimum=1, panel=TRAINING
    ),
]
Seed = Annotated[int, Parameter("Seed of the random numbers.", minimum=0, panel=TRAINING)]
MinCount = Annotated[int, Parameter("Words that occur less often are treated as unknown.", minimum=1)]
MaxWords = Annotated[
    int | None, Parameter("Maximum size of the vocabulary; the rarest words are dropped.", minimum=1, unset="no limit")
]
Unknown = Annotated[
    Literal["symbol", "error"],
    Parameter(
        "Words that do not occur in training: symbol scores them as <unk>, which stands for every second word that "
        "occurs once, unless the text has <unk> or words are left out anyway; error keeps every word and refuses "
        "others."
    ),
]
MinAttributeCount = Annotated[int, Parameter("Attributes that occur less often are dropped.", minimum=1)]
HashBits = Annotated[
    int | None,
    Parameter(
        "Map attributes to 2^hash_bits ids by a fixed hash instead of storing them.",
        minimum=1,
        maximum=30,
        unset="store all attributes",
    ),
]
Clusters = Annotated[
    BrownClusters | str | Path | None,
    Parameter(
        "Brown clusters of words as features: a file of bit strings and words, such as the output of the command "
        "cluster.",
        unset="none",
        parse=str,
    ),
]
Vectors = Annotated[
    WordVectors | str | Path | None,
    Parameter(
        "Word vectors as real-valued features: a file of word2vec (text or binary), GloVe or fastText.",
        unset="none",
        parse=str,
    ),
]
LexiconOption = Annotated[
    Lexicon | str | Path | None,
    Parameter(
        "Lexicon of words and phrases as features: files of entries with their classes, separated by commas.",
        unset="none",
        parse=str,
    ),
]
