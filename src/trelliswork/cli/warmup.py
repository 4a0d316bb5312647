"""``trelliswork warmup``: compile all kernels."""

import json as json_module
import sys
import time

from trelliswork.cli.options import JsonOption


def warmup(json: JsonOption = False) -> None:
    """Compile all kernels now instead of when they are first used.

    Takes minutes after an installation or an upgrade, and seconds when nothing is left to compile.

    Example: trelliswork warmup
    """
    from rich.console import Console
    from rich.progress import Progress

    from trelliswork.inference import warmup as inference
    from trelliswork.models import warmup as models

    started = time.perf_counter()
    todo = [*inference.tasks(), *models.tasks()]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("compiling", total=len(todo))
        for name, work in todo:
            progress.update(bar, description=name)
            work()
            progress.advance(bar)
    seconds = time.perf_counter() - started
    if json:
        print(json_module.dumps({"checks": len(todo), "seconds": round(seconds, 3)}))
    else:
        print(f"kernels ready ({len(todo)} checks, {seconds:.1f} s)", file=sys.stderr)
