"""What a model can be asked on the page: each kind of model has an object that answers."""

from collections.abc import Callable
from typing import Any, Protocol

from trelliswork.errors import DataError
from trelliswork.explore.requests import Body
from trelliswork.explore.tokens import TokenReader

Answer = dict[str, Any]
Abilities = dict[str, Callable[[Body], Answer]]
TITLES = {
    "crf": "Linear-chain CRF",
    "factorial-crf": "Factorial CRF",
    "hmm": "Hidden Markov model",
    "hmm-lm": "HMM language model",
    "kneser-ney": "Kneser-Ney n-gram model",
    "lbl": "Log-bilinear language model",
    "mrf-lm": "Markov random field language model",
    "mrf-tagger": "Markov random field tagger",
    "parser": "Dependency parser",
    "pcfg": "Probabilistic grammar",
}


class Explorer(Protocol):
    """A model behind the page.

    Attributes
    ----------
    reader : TokenReader
        How lines are read.
    abilities : dict of str to callable
        By name what answers: a ``Body`` in, plain data for JSON out.
    """

    reader: TokenReader
    abilities: Abilities

    def facts(self) -> Answer:
        """What the page must know of the model beyond its reader: labels, layers, whether evidence can be given."""
        ...


def explorer_of(model: Any) -> Explorer:
    """The object that answers for a model."""
    if model.kind in ("crf", "hmm", "mrf-tagger"):
        from trelliswork.explore.tagging import TaggerExplorer

        return TaggerExplorer(model)
    if model.kind == "factorial-crf":
        from trelliswork.explore.layers import LayersExplorer

        return LayersExplorer(model)
    if model.kind == "parser":
        from trelliswork.explore.parsing import ParserExplorer

        return ParserExplorer(model)
    if model.kind == "pcfg":
        from trelliswork.explore.grammar import GrammarExplorer

        return GrammarExplorer(model)
    if model.kind in ("hmm-lm", "kneser-ney", "lbl", "mrf-lm"):
        from trelliswork.explore.text import TextExplorer

        return TextExplorer(model)
    raise DataError(f"a model of kind {model.kind!r} has no page to explore it: {', '.join(TITLES)} have one.")


def describe(model: Any, explorer: Explorer, name: str) -> Answer:
    """All that ``/api/model`` tells."""
    facts = explorer.facts()
    reason = str(getattr(getattr(model, "report_", None), "reason", ""))
    about = [["kind", model.kind], *facts.pop("about", [])]
    words = model.known_words() if hasattr(model, "known_words") else None
    if words is not None:
        about.append(["known words", f"{len(words):,}"])
    if reason:
        about.append(["training", reason])
    return {
        "name": name,
        "kind": model.kind,
        "title": TITLES[model.kind],
        "about": about,
        "parameters": {key: _text(value) for key, value in model.get_params().items()},
        "abilities": list(explorer.abilities),
        "input": {
            "hint": explorer.reader.hint(),
            "example": explorer.reader.example(),
            "max_words": explorer.reader.max_words,
        },
        **facts,
    }


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."
