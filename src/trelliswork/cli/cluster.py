"""``trelliswork cluster``: Brown clusters of the words of raw text."""

import time
from typing import Annotated, Any

import typer

from trelliswork.cli.inputs import inputs_of
from trelliswork.cli.options import ForceOption, JsonOption, QuietOption, named, tell
from trelliswork.cli.progress import bar
from trelliswork.cli.running import current
from trelliswork.cli.saving import check_out_file
from trelliswork.data.reading.inputs import own_text


def cluster(
    files: Annotated[list[str], named("Text files, plain or gzip, one sentence per line, or directories of them.")],
    out: Annotated[str, typer.Option("--out", "-o", help="File for the clusters.")] = "clusters.txt",
    n_clusters: Annotated[
        int | None, typer.Option(min=1, help="Number of clusters.", show_default="1000, at most a tenth of the words")
    ] = None,
    max_words: Annotated[int, typer.Option(min=1, help="Number of words to cluster, the most frequent ones.")] = 50_000,
    min_count: Annotated[int, typer.Option(min=1, help="Words that occur less often are not clustered.")] = 1,
    max_iter: Annotated[int, typer.Option(min=1, help="Maximum number of passes over the words.")] = 20,
    tokenize: Annotated[
        bool, typer.Option("--tokenize", help="Split running text into sentences and words, by rules for English.")
    ] = False,
    force: ForceOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Cluster the words of raw text, for features of taggers and parsers.

    Words with similar neighbors are in one cluster; similar clusters have bit strings with a long common prefix. Each
    line of the output has a bit string, a word and its count, separated by tabs: the format of other programs, and of
    the option --clusters of train crf and train parser.

    Example: trelliswork cluster text.txt.gz --tokenize --n-clusters 500 --out clusters.txt
    """
    from trelliswork.data.ids import files_of
    from trelliswork.data.moments import count_moments
    from trelliswork.data.tokenize import raw_sentences
    from trelliswork.features.brown import BrownClusters

    check_out_file(out, force=force)
    started = time.perf_counter()
    given = inputs_of(files)
    own: Any = own_text(given)
    tokenize = tokenize and not given.part
    with bar("reading", max_iter, quiet) as show:

        def reading(step: Any) -> None:
            show(0, f"reading: {step.n_tokens:,} tokens" if step.n_tokens else "reading")

        source = raw_sentences(files_of(own) or []) if tokenize else own
        counts = count_moments(source, 1, min_count=min_count, max_words=max_words, callback=reading)
        counted = time.perf_counter()

        def passed(done: int, moved: int, objective: float) -> None:
            show(done, f"pass {done}: {moved:,} words moved")

        learned = BrownClusters(n_clusters, max_words=max_words, min_count=min_count, max_iter=max_iter)
        learned.fit(counts, callback=passed)
    if current().rank > 0:
        return
    learned.save(out)
    outcome = {
        "file": out,
        "tokens": counts.n_tokens,
        "words": len(learned.paths_),
        "clusters": len(set(learned.paths_.values())),
        "log_likelihood": learned.objective_,
        "counting_seconds": round(counted - started, 3),
        "seconds": round(time.perf_counter() - started, 3),
    }
    text = (
        f"{outcome['tokens']:,} tokens; {outcome['words']:,} words in {outcome['clusters']:,} clusters, "
        f"log-likelihood {learned.objective_:.4f} per token; {outcome['seconds']:.1f} s. Saved in {out}"
    )
    tell(json, outcome, text)
