"""``trelliswork demo``: the first minutes, on the bundled corpus."""

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from trelliswork.cli.options import JsonOption, QuietOption


def demo(
    out: Annotated[str, typer.Option("--out", "-o", help="Directory for the page and the models.")] = "demo",
    sentences: Annotated[int, typer.Option(min=20, max=3000, help="Learn from so many sentences.")] = 3000,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a tagger, a parser and a language model, ask them questions, and write a page with pictures.

    Needs no data: a small corpus comes with the package. The models are saved beside the page, to be explored.

    Example: trelliswork demo --out demo
    """
    from rich.console import Console

    from trelliswork.cli.demo.models import train
    from trelliswork.cli.demo.page import demo_page
    from trelliswork.cli.demo.questions import blank, doubtful_parse, neighbours, telling_evidence
    from trelliswork.cli.demo.tables import result_rows, show_evidence, show_parse, show_results, show_words

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)  # a place that cannot be written to is told before the work
    console = Console(quiet=json, highlight=False)
    found = train(sentences, quiet, console.print)
    evidence, parse, near = telling_evidence(found), doubtful_parse(found), neighbours(found)
    sentence, fills = blank(found)
    show_evidence(console, found, evidence)
    show_parse(console, found, parse)
    show_words(console, near, sentence, fills)
    rows = result_rows(found)
    show_results(console, found, rows)
    for name, model in (("tagger", found.tagger), ("parser", found.parser), ("words", found.language_model)):
        model.save(folder / name)
    page = folder / "report.html"
    demo_page(found, evidence, parse, near, sentence, fills).write(page)
    if json:
        figures = {
            "sentences": len(found.train.sentences),
            "accuracy": found.tagging.accuracy,
            "unknown_accuracy": found.tagging.unknown_accuracy,
            "uas": found.parsing.uas,
            "las": found.parsing.las,
            "perplexity": found.perplexity,
            "evidence_probability": evidence.probability,
            "seconds": found.seconds,
            "report": str(page),
        }
        print(json_module.dumps(figures))
        return
    console.print(f"The page with all pictures: {page}")
    console.print(f"Go on with a model: trelliswork explore {folder / 'tagger'} --open")
