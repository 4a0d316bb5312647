"""``trelliswork warmup``: compile kernels before they are needed, by training and using a tiny model of each kind."""

import json as json_module
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.progress import bar
from trelliswork.compute.compilation import Kernel, watching
from trelliswork.errors import TrellisworkError

WITH_TORCH = ("hmm-lm", "distributions")  # these need the extra
NAMES = (
    "crf",
    "factorial-crf",
    "hmm",
    "kneser-ney",
    "log-bilinear",
    "mrf-lm",
    "mrf-tagger",
    "parser",
    "pcfg",
    *WITH_TORCH,
)


def warmup(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...", help="Models as in 'train', or distributions. Default: all.", show_default=False
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes.", show_default="one per core")] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Compile kernels now instead of when they are first used.

    A tiny model of each kind is trained and used; a large one may compile a few kernels more. All of them take some
    minutes after an installation or an upgrade, and seconds when nothing is left to compile. Kernels are kept when this
    is interrupted.

    Example: trelliswork warmup crf parser --jobs 2
    """
    names = list(dict.fromkeys(models or [n for n in NAMES if n not in WITH_TORCH or find_spec("torch")]))
    if unknown := [name for name in names if name not in NAMES]:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(NAMES)}.")
    began = time.perf_counter()
    compiled = 0
    jobs = min(jobs or os.cpu_count() or 1, len(names))
    with bar("compiling", len(names), quiet or json) as show, ThreadPoolExecutor(jobs) as pool:
        compile_one = _compiled if jobs == 1 else _in_process
        waiting = {pool.submit(compile_one, name): name for name in names}
        for n, done in enumerate(as_completed(waiting), start=1):
            compiled += done.result()
            show(n, f"{compiled} kernels, {waiting[done]}")
    seconds = time.perf_counter() - began
    if json:
        print(json_module.dumps({"compiled": compiled, "seconds": round(seconds, 3)}))
    else:
        print(f"kernels ready ({compiled} compiled, {seconds:.1f} s)", file=sys.stderr)


def _compiled(name: str) -> int:
    """Train and use the models of a name; return the number of kernels that were compiled."""
    kernels: list[Kernel] = []
    with watching(kernels.append), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are too short
        _use(name)
    return sum(kernel.seconds is not None for kernel in kernels)


def _in_process(name: str) -> int:
    """Return the result of `_compiled` in a process of its own."""
    command = [sys.executable, "-m", "trelliswork", "warmup", name, "--jobs", "1", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise TrellisworkError(f"warmup of {name} failed with exit code {done.returncode}.")
    return int(json_module.loads(done.stdout)["compiled"])


def _use(name: str) -> None:
    """Train the models of a name on some sentences of the bundled corpus, and ask for probabilities."""
    import trelliswork as tw
    from trelliswork.answers import Want, ask
    from trelliswork.models import LogBilinear
    from trelliswork.models.tasks import LanguageModel

    if name == "distributions":
        _query_distributions()
        return
    many = tw.bundled.load("train")[:200]  # enough for the kernels that only longer corpora need
    some, many_words, many_tags = many[:8], [list(s.words) for s in many], [list(s.tags) for s in many]
    words, tags = many_words[:8], many_tags[:8]
    tagged = [list(zip(*pair, strict=True)) for pair in zip(words, tags, strict=True)]
    trees = [list(zip(s.heads, s.relations, strict=True)) for s in some]
    layers = [[(tag, tag[0]) for tag in row] for row in tags]
    makers: dict[str, list[tuple[Callable[[], Any], Any, Any]]] = {
        "crf": [
            (lambda: tw.CRF(max_iter=2), many_words, many_tags),
            (lambda: tw.CRF(max_iter=2, l1=0.1), words, tags),
            (lambda: tw.CRF(max_iter=1, algorithm="sgd"), words, tags),
            (lambda: tw.CRF(max_iter=2, order=2, beam="kl=0.1,min=1"), words, tags),
        ],
        "factorial-crf": [(lambda: tw.FactorialCRF(("one", "two"), max_iter=2), words, layers)],
        "hmm": [
            (lambda: tw.HMM(order=1), words, tags),
            (lambda: tw.HMM(order=2), words, tags),
            (lambda: tw.HMM(2, max_iter=2), words, None),
        ],
        "hmm-lm": [(lambda: tw.HMMLanguageModel(4, hidden=4, max_iter=1), words, None)],
        "kneser-ney": [(lambda: tw.KneserNey(3), words, None)],
        "log-bilinear": [(lambda: LogBilinear(4, max_iter=1), words, None)],
        "mrf-lm": [(lambda: tw.MRFLanguageModel(max_iter=2), words, None)],
        "mrf-tagger": [(lambda: tw.MRFTagger(max_iter=2), words, tags)],
        "parser": [(lambda: tw.DependencyParser(max_iter=1), tagged, trees)],
        "pcfg": [(lambda: tw.PCFG(2, n_preterminals=2, max_iter=1), words, None)],
    }
    for make, X, y in makers[name]:
        model = make()
        model.fit(X) if y is None else model.fit(X, y)
        scored = isinstance(model, LanguageModel) and y is None
        ask(model, X, Want() if scored else Want(marginals=True))


def _query_distributions() -> None:
    import torch

    from trelliswork import LinearChain, ProjectiveTree, SpanningTree
    from trelliswork.distributions import Alignment, SemiMarkovChain

    for dtype in (torch.float32, torch.float64):
        scores = torch.zeros(2, 4, 4, dtype=dtype)
        for made in (LinearChain(scores, scores[0]), ProjectiveTree(scores), SpanningTree(scores)):
            made.marginals(), made.entropy(), made.argmax(), made.topk(2), made.sample()
    for paths in (SemiMarkovChain(torch.zeros(1, 2, 2, 1), torch.zeros(1, 1)), Alignment(torch.zeros(1, 3, 3, 3))):
        paths.marginals(), paths.log_partition(), paths.topk(2), paths.sample(), paths._recursions.links(paths._lattice)
