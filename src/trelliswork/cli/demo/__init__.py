"""``trelliswork demo``: three models on the bundled corpus."""

import json as json_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.errors import MissingExtraError


def demo(
    out: Annotated[str, typer.Option("--out", "-o", help="Directory for the page and the models.")] = "demo",
    sentences: Annotated[int, typer.Option(min=20, max=3000, help="Number of training sentences.")] = 3000,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a tagger, a parser and a language model, query them, and write a page with plots.

    Needs no data: a small corpus is part of the package. The models are saved in the same directory as the page.

    Example: trelliswork demo --out demo
    """
    from rich.console import Console

    from trelliswork.cli.demo.models import train
    from trelliswork.cli.demo.output import demo_page, show_evidence, show_parse, show_results, show_words
    from trelliswork.cli.demo.questions import best_evidence, blank, neighbors, uncertain_parse

    if missing := [name for name in ("torch", "matplotlib") if find_spec(name) is None]:
        raise MissingExtraError(f"'demo' needs {' and '.join(missing)}. Run: pip install 'trelliswork[all]'")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)  # fails now rather than after training
    console = Console(quiet=json, highlight=False)
    trained = train(sentences, quiet, console.print)
    evidence, parse, near = best_evidence(trained), uncertain_parse(trained), neighbors(trained)
    sentence, fills = blank(trained)
    show_evidence(console, trained, evidence)
    show_parse(console, trained, parse)
    show_words(console, near, sentence, fills)
    show_results(console, trained)
    for name, model in (("tagger", trained.tagger), ("parser", trained.parser), ("words", trained.language_model)):
        model.save(folder / name)
    page = folder / "report.html"
    demo_page(trained, evidence, parse, near, sentence, fills).write(page)
    if json:
        figures = {
            "sentences": len(trained.train.sentences),
            "accuracy": trained.tagging.accuracy,
            "unknown_accuracy": trained.tagging.unknown_accuracy,
            "uas": trained.parsing.uas,
            "las": trained.parsing.las,
            "perplexity": trained.perplexity,
            "evidence_probability": evidence.probability,
            "seconds": trained.seconds,
            "report": str(page),
        }
        print(json_module.dumps(figures))
        return
    console.print(f"Page with all plots: {page}")
    console.print(f"Explore a model: trelliswork explore {folder / 'tagger'} --open")
