"""``trelliswork data count``: the pairs of words of a text, for language models that learn from them."""

import json as json_module
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import JsonOption, QuietOption

if TYPE_CHECKING:
    from trelliswork.data.moments import Moments


def count(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Text files, plain or gzip, one sentence a line, or directories of them."),
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="Directory for the counts.")] = "moments",
    distances: Annotated[
        int | None, typer.Option(min=1, help="Count pairs of words up to so far apart.", show_default="2")
    ] = None,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Only the so many most frequent words.", show_default="all")
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Only words seen as often; others are <unk>.")] = 1,
    vocabulary: Annotated[
        str | None, typer.Option(help="Directory of other counts: use their words, as for a development text.")
    ] = None,
    merge: Annotated[
        list[str] | None,
        typer.Option(help="Add these counts of the same words, which then are those of the files; may be repeated."),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(min=1, help="Megabytes to sort in; beyond, temporary files.", show_default="1024")
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Count words and pairs of words in one pass over any amount of text; language models can learn from the counts.

    Example: trelliswork data count shards/ --distances 2 --max-words 20000 --out counts
    """
    from trelliswork.data.moments import Moments, count_moments

    if not files and not merge:
        raise typer.BadParameter("give text files, or counts to --merge.")
    chosen = {"--max-words": max_words is not None, "--min-count": min_count > 1}
    if vocabulary is not None and any(chosen.values()):
        raise typer.BadParameter("--vocabulary says which words there are: leave --max-words and --min-count out.")
    chosen |= {"--vocabulary": vocabulary is not None, "--distances": distances is not None}
    if merge and any(chosen.values()):
        given = " and ".join(name for name, is_given in chosen.items() if is_given)
        raise typer.BadParameter(f"--merge says which words and distances there are: leave {given} out.")
    if not files and memory is not None:
        raise typer.BadParameter("--memory is for reading files, and there are none: leave it out.")
    began = time.perf_counter()
    found = [Moments.load(path) for path in merge or []]
    words = Moments.load(vocabulary).vocabulary if vocabulary is not None else found[0].vocabulary if found else None
    K = found[0].K if found else 2 if distances is None else distances
    if files:
        with reading_progress(quiet) as callback:
            fresh = count_moments(
                files,
                K,
                vocabulary=words,
                min_count=min_count,
                max_words=max_words,
                callback=callback,
                memory_limit=(1024 if memory is None else memory) << 20,
            )
        found.append(fresh)
    total = found[0]
    for other in found[1:]:
        total = total.merged(other)
    total.save(out)
    _tell(total, out, time.perf_counter() - began, json)


def _tell(moments: "Moments", out: str, seconds: float, json: bool) -> None:
    outcome: dict[str, Any] = {
        "counts": out,
        "sentences": moments.n_sentences,
        "tokens": moments.n_tokens,
        "positions": moments.n_positions,
        "distances": moments.K,
        "words": len(moments.vocabulary),
        "pairs": moments.n_pairs,
        "seconds": round(seconds, 3),
    }
    if json:
        print(json_module.dumps(outcome))
    else:
        print(
            f"{outcome['sentences']:,} sentences, {outcome['tokens']:,} tokens, {outcome['words']:,} words (with <s>), "
            f"{outcome['pairs']:,} distinct pairs at distances 1 to {moments.K}. Saved in {out}"
        )


@contextmanager
def reading_progress(quiet: bool) -> Iterator[Callable[[Any], None]]:
    """A bar of the bytes read, on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    shown = not quiet and sys.stderr.isatty()
    parts = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task("reading", total=None)

        def callback(step: Any) -> None:
            about = "reading"
            if step.n_tokens:
                about = f"pairs of {step.n_tokens:,} tokens, {step.n_tokens / max(step.seconds, 1e-9):,.0f} tokens/s"
            bar.update(task, completed=step.done, total=step.total, description=about)

        yield callback
