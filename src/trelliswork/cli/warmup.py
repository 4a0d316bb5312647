"""``trelliswork warmup``: compile all kernels now."""

import sys
import time


def warmup() -> None:
    """Compile every kernel once, so that nobody waits at the first sentence.

    Takes a minute or two after an installation or an upgrade, and a second when nothing is left to compile.
    """
    from rich.console import Console
    from rich.progress import Progress

    from trelliswork.inference import warmup as inference
    from trelliswork.models import warmup as models

    began = time.perf_counter()
    todo = [*inference.tasks(), *models.tasks()]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("compiling", total=len(todo))
        for name, work in todo:
            progress.update(bar, description=name)
            work()
            progress.advance(bar)
    print(f"kernels ready ({len(todo)} checks, {time.perf_counter() - began:.1f} s)", file=sys.stderr)
