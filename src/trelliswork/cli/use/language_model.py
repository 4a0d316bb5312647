"""``trelliswork sample``, ``fill`` and ``embeddings``: queries of language models."""

import secrets
from typing import Annotated, Any

import typer

from trelliswork.cli.options import JsonOption, tell
from trelliswork.cli.use.loading import Model, load_for

Many = Annotated[int, typer.Option("--n", "-n", min=1, help="Number of words.")]


def sample(
    model: Model,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Number of sentences.")] = 5,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the random numbers.", show_default="a new one, which --json prints"),
    ] = None,
    max_length: Annotated[int, typer.Option(min=1, help="Maximum number of words; longer sentences are cut.")] = 200,
    states: Annotated[bool, typer.Option("--states", help="Print word/state.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per sentence and line.")] = False,
) -> None:
    """Draw random sentences from a language model, an HMM or a grammar.

    Draws are exact, except for Markov random fields with a window of 2 and more, which use Gibbs sampling.

    Example: trelliswork sample tagger -n 3 --seed 1
    """
    fitted = load_for(model, "sample", "generate text: expected a language model, an HMM or a grammar")
    seed = secrets.randbits(32) if seed is None else seed
    options: Any = {"seed": seed, "max_length": max_length}
    if hasattr(fitted, "sample_with_states"):
        drawn = [{"words": words, "states": names} for words, names in fitted.sample_with_states(n, **options)]
    elif states:
        raise typer.BadParameter("this model has no states: leave --states out.")
    else:
        drawn = [{"words": words} for words in fitted.sample(n, **options)]
    for one in drawn:
        pairs = [f"{word}/{name}" for word, name in zip(*one.values(), strict=True)] if states else one["words"]
        tell(json, {**one, "seed": seed}, " ".join(map(str, pairs)))


def fill(
    model: Model,
    sentence: Annotated[str, typer.Argument(help="A sentence with ___ for each blank.")],
    n: Many = 10,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="List <unk>, which stands for all words outside the vocabulary, too.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print the most probable words for each blank of a sentence, given the words on both sides.

    Probabilities are those of the model: without --unknown they sum to 1 minus that of <unk>.

    Example: trelliswork fill model "the ___ of the company"
    """
    from trelliswork.answers import Want, ask
    from trelliswork.models.tasks import blanks

    fitted = load_for(model, "fill", "fill blanks: expected a language model")
    words = blanks(sentence.lower() if fitted.input_.get("lower") else sentence)
    (answer,) = ask(fitted, [words], Want(n=n, unknown=unknown), "fill")
    lines = []
    for number, best in enumerate(answer.value, start=1):
        lines += [f"blank {number}"] * (len(answer.value) > 1) + [f"{p:.4f}  {word}" for word, p in best]
    tell(json, answer.result()["blanks"], "\n".join(lines))


def embeddings(
    model: Model,
    out: Annotated[
        str, typer.Option("--out", "-o", help="File for the vectors in word2vec's text format.")
    ] = "vectors.txt",
    scaling: Annotated[
        float | None,
        typer.Option(
            help="Write singular vectors of the tables times their singular values to this power, such as 0 or 0.5.",
            show_default="the vectors as learned",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write the embeddings of a model in word2vec's text format, which gensim and others read.

    A model for vectors: trelliswork train mrf-lm TEXT --algorithm spectral --window 5 --rank 100 --out model

    Example: trelliswork embeddings model --out vectors.txt
    """
    learned = load_for(model, "export_word2vec", "have embeddings: expected a Markov random field (train mrf-lm)")
    learned.export_word2vec(out, scaling=scaling)
    n, size = learned.vectors().shape
    outcome = {"file": out, "words": n - 1, "dimensions": size}
    tell(json, outcome, f"{n - 1:,} words, {size} dimensions: {out}")
