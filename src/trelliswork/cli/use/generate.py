"""``trelliswork score`` and ``sample``: what a generative model thinks of text, and text it makes up."""

import json as json_module
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, Layout, guess_format, read_words, words_layout
from trelliswork.cli.options import OtherBeamOption, set_beam
from trelliswork.cli.reporting import judged_part, report_evaluation
from trelliswork.cli.use.tag import Model
from trelliswork.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trelliswork.data import Corpus


def score(
    model: Model,
    file: Annotated[
        str,
        typer.Argument(
            help="Text, or a directory of such files; '-' is standard input; or test, dev of the bundled corpus."
        ),
    ] = "-",
    format: Annotated[
        FileFormat, typer.Option(help="Layout of the file; by default that of training.")
    ] = FileFormat.auto,
    beam: OtherBeamOption = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="One line a sentence.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Log evidence of a text under a model, and its perplexity per token (ends of sentences count as tokens).

    A grammar has no tree for a sentence of one word: such sentences are left out and counted.
    A model that judges new words by their endings only estimates their probabilities: compare its figures between
    texts, not with those of other models.

    Example: echo 'We tag words .' | trelliswork score tagger --format text
    """
    _, corpus, evidence, figures = _scored(model, file, format, beam)
    if json:
        listed = {"log_evidence_of_sentences": _possible(evidence)} if sentences else {}
        print(json_module.dumps(figures | listed))
        return
    if sentences:
        for value, words in zip(evidence.tolist(), corpus.sentences(0), strict=True):
            print(f"{value:.4f}\t{' '.join(words)}")
        return
    print(_told(figures, float(evidence.sum())))


def evaluate_text(model: str, file: str, format: FileFormat, beam: str | None, json: bool, page: str | None) -> None:
    """``evaluate`` of a language model: the figures of ``score``, and a page about them."""
    found, corpus, evidence, figures = _scored(model, file, format, beam)
    more = figures | {"log_evidence_of_sentences": evidence.tolist()}
    told = report_evaluation(page, found, more, file=file, name=model, sample=lambda: judged_part(corpus, None))
    print(json_module.dumps(figures | told) if json else _told(figures, float(evidence.sum())))


def _scored(
    model: str, file: str, format: FileFormat, beam: str | None
) -> "tuple[Any, Corpus, NDArray[np.float64], dict[str, Any]]":
    """A model, a text, the log evidence of its sentences, and the figures that are told."""
    found = _generative(model, "log_evidence")
    set_beam(found, beam)
    given = getattr(found, "input_", {})
    layout = Layout(**given) if given else Layout("text", [], None)
    if format != FileFormat.auto or layout.format not in ("columns", "conllu", "text"):
        layout = words_layout(file, guess_format(file, format), None, None)
    corpus, n_short = _long_enough(_words(file, layout), getattr(found, "shortest", 1), file)
    evidence = found.log_evidence(corpus)
    kind, bound = _kind(found), getattr(found, "evidence_bound", None)
    n_events = corpus.n_tokens + (len(corpus) if getattr(found, "end", True) else 0)
    total = float(evidence.sum())
    figures = {
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        **({"too_short": n_short} if n_short else {}),
        "kind": kind,
        **({} if bound is None else {"bound": bound}),
        "log_evidence": total if total > -math.inf else None,
        "perplexity": math.exp(-total / n_events) if -total / n_events < 700 else None,  # of the impossible: none
        "per": "token",
    }
    return found, corpus, evidence, figures


def _possible(evidence: "NDArray[np.float64]") -> list[float | None]:
    """None for -inf: JSON has no infinity."""
    return [value if value > -math.inf else None for value in evidence.tolist()]


def _told(figures: dict[str, Any], total: float) -> str:
    named = f" ({figures['bound']})" if "bound" in figures else ""
    kind = {"exact": "", "lower": f"a lower bound{named}, ", "estimate": "an estimate, "}[figures["kind"]]
    perplexity = figures["perplexity"]
    told = f"{figures['sentences']:,} sentences, {figures['tokens']:,} tokens: log evidence {total:.2f}, {kind}" + (
        "impossible" if perplexity is None else f"perplexity {perplexity:.2f} per token"
    )
    return told + (f"; left out, too short for a tree: {figures['too_short']:,}" if "too_short" in figures else "")


def _long_enough(corpus: "Corpus", shortest: int, file: str) -> "tuple[Corpus, int]":
    """The sentences that a model can make at all, and how many are too short for it."""
    from trelliswork.data import Corpus

    if shortest <= 1:
        return corpus, 0
    kept = [words for words in corpus.sentences(0) if len(words) >= shortest]
    if not kept and len(corpus):
        raise DataError(f"{file}: no sentence has {shortest} words or more, as this model wants.")
    return (corpus, 0) if len(kept) == len(corpus) else (Corpus.from_sentences(kept), len(corpus) - len(kept))


def _words(path: str, layout: Layout) -> "Corpus":
    """The words of a file, of a part of the bundled corpus, or of all files of a directory by name."""
    from trelliswork.data import Corpus, bundled
    from trelliswork.data.moments.files import files_of

    if path in bundled.SPLITS or not Path(path).is_dir():
        return read_words(path, layout)
    parts = [read_words(str(file), layout).sentences(0) for file in files_of(path) or []]
    return replace(Corpus.from_sentences([sentence for part in parts for sentence in part]), source=path)


def sample(
    model: Model,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many sentences.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same sentences.")] = 0,
    max_length: Annotated[int, typer.Option(min=1, help="Cut longer sentences.")] = 200,
    states: Annotated[bool, typer.Option("--states", help="Write word/state.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a sentence.")] = False,
) -> None:
    """Make up sentences, by an HMM, a language model or a grammar.

    The draws are exact, but for Markov random fields with more than one distance, which walk (Gibbs sampling).

    Example: trelliswork sample tagger -n 3 --seed 1
    """
    generative = _generative(model, "sample")
    draw = getattr(generative, "sample_with_states", generative.sample)
    for drawn in draw(n, seed=seed, max_length=max_length):
        words, names = drawn if isinstance(drawn, tuple) else (drawn, None)
        if names is None:
            if states:
                raise typer.BadParameter("this model has no states: leave --states out.")
            print(json_module.dumps({"words": words}, ensure_ascii=False) if json else " ".join(words))
        elif json:
            print(json_module.dumps({"words": words, "states": names}, ensure_ascii=False))
        elif states:
            print(" ".join(f"{word}/{name}" for word, name in zip(words, names, strict=True)))
        else:
            print(" ".join(map(str, words)))


def _generative(path: str, ability: str) -> Any:
    """A model that scores or makes up text: one with ``log_evidence`` (sentences -> logarithms), or ``sample``.

    ``sample`` gives sentences, or pairs of a sentence and its states. Besides, a model may say in ``evidence_kind``
    whether its evidence is "exact" (as without it), "lower" or "estimate", in ``evidence_bound`` which bound it is, in
    ``end`` whether the end of a sentence is an event (as without it), and in ``input_`` how the files of its training
    were laid out.
    """
    from trelliswork.models import load

    model = load(path)
    if not hasattr(model, ability):
        raise DataError(
            f"{path}: a model of kind {model.kind!r} is not one of text: an hmm or a language model is wanted."
        )
    return model


def _kind(model: Any) -> str:
    """Whether the log evidence is exact."""
    from trelliswork.models import HMM

    if isinstance(model, HMM):
        from trelliswork.models.hmm.decoding import state_beam

        return "exact" if state_beam(model.beam, len(model.labels_), model.order) is None else "lower"
    return str(getattr(model, "evidence_kind", "exact"))
