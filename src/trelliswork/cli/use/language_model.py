"""``trelliswork fill``, ``neighbors`` and ``embeddings``: questions to a Markov random field language model."""

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import JsonOption
from trelliswork.cli.use.tag import Model
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.models import MRFLanguageModel

Many = Annotated[int, typer.Option("--n", "-n", min=1, help="How many words.")]


def fill(
    model: Model,
    sentence: Annotated[str, typer.Argument(help="A sentence with a blank ___.")],
    n: Many = 10,
    json: JsonOption = False,
) -> None:
    """The most probable words for the blank of a sentence, given the words on both sides: exact probabilities.

    Example: trelliswork fill model "the ___ of the company"
    """
    found = _able(model, "fill", "fills blanks: a mrf-lm is wanted").fill(sentence, n)
    if json:
        print(json_module.dumps([{"word": word, "p": p} for word, p in found], ensure_ascii=False))
        return
    for word, p in found:
        print(f"{p:.4f}  {word}")


def neighbors(
    model: Model,
    words: Annotated[list[str], typer.Argument(help="Words.")],
    n: Many = 10,
    json: JsonOption = False,
) -> None:
    """The words whose embeddings are nearest to those of some words, by the cosine.

    Example: trelliswork neighbors model company dollar -n 5
    """
    learned = _able(model, "neighbors", "has embeddings of words: a mrf-lm is wanted")
    found = {word: learned.neighbors(word, n) for word in words}
    if json:
        print(json_module.dumps(found, ensure_ascii=False))
        return
    for word, near in found.items():
        print(f"{word}: " + "  ".join(f"{other} {cosine:.3f}" for other, cosine in near))


def embeddings(
    model: Model,
    out: Annotated[str, typer.Argument(help="File to write: word2vec's text format.")],
    json: JsonOption = False,
) -> None:
    """Write the embeddings of a model as text that gensim and others read.

    Example: trelliswork embeddings model vectors.txt
    """
    learned = _able(model, "export_word2vec", "has embeddings to export: a mrf-lm is wanted")
    learned.export_word2vec(out)
    n, size = learned.embeddings_.shape
    if json:
        print(json_module.dumps({"file": out, "words": n - 1, "dimensions": size}))
    else:
        print(f"{n - 1:,} words, {size} dimensions: {out}")


def inspect_mrf(model: "MRFLanguageModel", n: int, json: bool) -> None:
    """Print what a Markov random field has learned: its shape, how training ended, frequent words' neighbours."""
    field = model.field_
    frequent = model.vocabulary_.items[1 : n + 1]
    shown: dict[str, Any] = {
        "kind": model.kind,
        "words": len(model.vocabulary_) - 1,
        "distances": model.K,
        "form": model.form,
        "rank": None if model.form == "full" else model.rank,
        "unary": model.unary,
        "bias": model.bias,
        "algorithm": model.algorithm,
        "bound": model.bound_,
        "weights": field.weights.tolist(),
        "positions": model.n_positions_,
        "tokens": model.n_tokens_,
        "objective": model.report_.value,
        "per": "position" if model.algorithm == "lifted" else "word",
        "converged": model.report_.converged,
        "reason": model.report_.reason,
        "neighbors": {} if model.form == "full" else {word: model.neighbors(word, 5) for word in frequent},
    }
    if json:
        print(json_module.dumps(shown, ensure_ascii=False))
        return
    size = "full rank" if model.form == "full" else f"rank {model.rank} ({model.form})"
    rho = ", ".join(f"{value:.3g}" for value in shown["weights"])
    print(f"Markov random field, {shown['words']:,} words, {model.K} distance{'s' * (model.K > 1)}, {size}")
    print(
        f"{model.algorithm}, bound {shown['bound']}, weights {rho}; "
        f"objective {shown['objective']:.4f} a {shown['per']} ({shown['reason']})"
    )
    for word, near in shown["neighbors"].items():
        print(f"{word}: " + "  ".join(f"{other} {cosine:.2f}" for other, cosine in near))


def _able(path: str, ability: str, what: str) -> Any:
    """A model with a method; an error that names what is wanted without it."""
    from trelliswork.models import load

    model = load(path)
    if not hasattr(type(model), ability):
        raise DataError(f"{path}: no model of kind {model.kind!r} {what}.")
    return model
