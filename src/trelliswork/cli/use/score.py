"""``trelliswork score``: the log-probability of a text."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.inputs import AWAITED, inputs_of, say_what_is_awaited
from trelliswork.cli.options import Files, OtherBeamOption, TrainedFormatOption, bundled_option, named, set_beam, tell
from trelliswork.cli.running import alone, current
from trelliswork.cli.treebanks import read_as_trained
from trelliswork.cli.use.loading import Model, check_tokenized, load_for
from trelliswork.compute.display import plural
from trelliswork.data.reading import (
    FileFormat,
    Layout,
    file_layout,
    guess_format,
    naming_lines,
    read_words,
)
from trelliswork.data.reading.inputs import Inputs, totals
from trelliswork.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trelliswork.data import Corpus


def score(
    model: Model,
    files: Annotated[
        Files, named("Text files, plain or gzip, or directories of them. Default: standard input, '-'.")
    ] = None,
    bundled: Annotated[bool, bundled_option("test")] = False,
    format: TrainedFormatOption = FileFormat.auto,
    beam: OtherBeamOption = None,
    sentences: Annotated[bool, typer.Option("--per-sentence", help="One line per sentence.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Print the log-probability of a text under a model, and its perplexity per token (sentence ends count as tokens).

    Grammars have no trees for sentences of one word, which are skipped and counted.
    A model that scores unknown words by their endings estimates their probabilities: compare its results between
    texts, not with those of other models.

    Example: echo 'We tag words .' | trelliswork score tagger --format text
    """
    source = inputs_of(files, bundled, stdin=True)
    fitted = load_for(model, "perplexity", "score text: expected a language model, an HMM or a grammar")
    set_beam(fitted, beam)
    corpus, evidence, figures = scored(fitted, source, format)
    if not sentences:
        tell(json, figures, summary(figures))
        return
    own = list(zip(evidence.tolist(), corpus.sentences(0), strict=True))
    rows = [row for part in current().gather(own) for row in part]
    possible = [value if value > -math.inf else None for value, _ in rows]  # JSON has no infinity
    lines = [f"{value:.4f}\t{' '.join(words)}" for value, words in rows]
    tell(json, figures | {"log_prob_of_sentences": possible}, "\n".join(lines))


def scored(fitted: Any, source: Inputs, format: FileFormat) -> "tuple[Corpus, NDArray[np.float64], dict[str, Any]]":
    """Return the text of this process, the log-probability of its sentences, and the results for all text."""
    import numpy as np

    if getattr(fitted, "constituents", False):
        layout = Layout("text", [], None) if guess_format(source, format) == FileFormat.text else None
        say_what_is_awaited(source, AWAITED["text"])
        text = read_as_trained(fitted, source, format)
    else:
        layout = Layout(**fitted.input_) if "format" in fitted.input_ else Layout("text", [], None)
        if format != FileFormat.auto or layout.format not in ("columns", "conllu", "text"):
            layout = file_layout(source, guess_format(source, format), words=True, labeled=False)
        source = _without_directories(source)
        say_what_is_awaited(source, AWAITED[layout.format])
        text = read_words(source, layout)
        if layout.format == "text":
            check_tokenized(fitted, text)
    corpus, n_short = _long_enough(text, getattr(fitted, "shortest", 1), source.name)
    with naming_lines(source, corpus), alone():
        evidence = fitted.log_prob(corpus) if len(corpus) else np.zeros(0)
        counted = len(corpus) and hasattr(fitted, "unknown_words")
        n_unknown, log_unknown = fitted.unknown_words(corpus) if counted else (0, 0.0)
    n_sentences, n_tokens, n_short = totals(len(corpus), corpus.n_tokens, n_short)
    n_events = n_tokens + (n_sentences if getattr(fitted, "end", True) else 0)
    total = current().total(float(evidence.sum()))
    figures = {
        "sentences": n_sentences,
        "tokens": n_tokens,
        **({"too_short": n_short} if n_short else {}),
        "kind": fitted.kind,
        "log_prob": total if total > -math.inf else None,
        "perplexity": math.exp(-total / n_events) if -total / n_events < 700 else None,  # null for impossible text
        "per": "token",
    }
    (n_unknown,), log_unknown = totals(n_unknown), current().total(log_unknown)
    if n_unknown and n_events > n_unknown and total > -math.inf:
        mean = (total - log_unknown) / (n_events - n_unknown)
        figures |= {"unknown": n_unknown, "perplexity_known": math.exp(-mean) if -mean < 700 else None}
    return corpus, evidence, figures


def summary(figures: dict[str, Any]) -> str:
    """Return one line about the results of `scored`."""
    total = -math.inf if figures["log_prob"] is None else figures["log_prob"]
    kind = {"exact": "", "lower": "a lower bound, ", "estimate": "an estimate, "}[figures["kind"]]
    perplexity = figures["perplexity"]
    text = (
        f"{plural(figures['sentences'], 'sentences')}, {plural(figures['tokens'], 'tokens')}: "
        f"log-probability {total:.2f}, {kind}"
        + ("impossible" if perplexity is None else f"perplexity {perplexity:.2f} per token")
    )
    if figures.get("perplexity_known") is not None:
        text += f" ({figures['perplexity_known']:.2f} without {plural(figures['unknown'], 'unknown words')})"
    return text + (f"; left out, too short for a tree: {figures['too_short']:,}" if "too_short" in figures else "")


def _long_enough(corpus: "Corpus", shortest: int, file: str) -> "tuple[Corpus, int]":
    """Return the sentences that are long enough for a model, and the number of shorter ones."""
    from trelliswork.data import Corpus

    if shortest <= 1:
        return corpus, 0
    kept = [words for words in corpus.sentences(0) if len(words) >= shortest]
    if not current().any(bool(kept)):
        raise DataError(f"{file}: no sentence has at least {shortest} words, as this model needs.")
    return (corpus, 0) if len(kept) == len(corpus) else (Corpus.from_sentences(kept), len(corpus) - len(kept))


def _without_directories(source: Inputs) -> Inputs:
    """Return the input with the files of its directories instead of these."""
    from trelliswork.data.ids import files_of

    if source.part or not any(Path(str(file)).is_dir() for file in source.files):
        return source
    return Inputs(tuple(map(str, files_of([Path(str(file)) for file in source.files]) or ())))
