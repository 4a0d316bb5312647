"""``python -m experiments all``: all experiments in the order of the papers; a failure does not stop the others."""

import sys
import time
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.commands import (
    Data,
    Out,
    Quick,
    RecordFile,
    Seed,
    check_record_file,
    open_record,
    say_to,
    show,
    write_records,
)
from experiments.registry import EXPERIMENTS, Experiment, find
from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.progress import duration
from trelliswork.cli.running import report_errors, settings

if TYPE_CHECKING:
    from experiments.tables import Table

Names = Annotated[list[str] | None, typer.Option(help="Experiment to run. May be repeated.", show_default="all")]
Skipped = Annotated[list[str] | None, typer.Option(help="Experiment to leave out. May be repeated.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Leave out experiments with finished results of the same settings in --out.")
]


@report_errors
def reproduce_all(
    only: Names = None,
    skip: Skipped = None,
    data: Data = None,
    quick: Quick = False,
    out: Out = None,
    record: RecordFile = None,
    resume: Resume = False,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Run all experiments in the order of the papers: about 80 minutes on two cores, minutes with --quick.

    If an experiment fails or its data is missing, the others run and the exit code is 1. The folder --out is updated
    after each experiment, so Ctrl-C keeps finished tables; --resume runs the rest.

    Example: python -m experiments all --quick --data DATA --out results
    """
    chosen = choose(only, skip)
    if resume and out is None:
        raise typer.BadParameter("--resume needs the folder with earlier results: pass --out.")
    check_record_file(record, quick)
    folder = open_record(out, chosen, quick)
    say = say_to(quiet)
    failures: dict[str, str] = {}
    started = time.perf_counter()
    for k, experiment in enumerate(chosen):
        name, place = experiment.name, f"[{k + 1} of {len(chosen)}]"
        given = {"seed": seed} if "seed" in experiment.full else {}
        values = experiment.settings(quick, given)
        if resume and folder is not None and folder.holds(name, values, quick):
            say(f"{place} {name}: finished before, {folder.runs[name].began}")
            continue
        about = "" if quick else f", about {experiment.minutes:g} minutes"
        say(f"{place} {name}: paper {experiment.paper}, {experiment.about}{about}")
        before = time.perf_counter()
        try:
            outcome = attempt(experiment, data, quick, given, quiet)
        except KeyboardInterrupt:
            finished = k - len(failures)
            kept = f"; they are in {out}, and --resume runs the rest" if out is not None else ""
            print(f"interrupted in {name}: {finished} experiments are finished{kept}", file=sys.stderr)
            raise typer.Exit(130) from None
        seconds = time.perf_counter() - before
        if folder is not None:
            folder.add(experiment, outcome, values, quick, seconds)
        if isinstance(outcome, str):
            failures[name] = outcome
            print(f"{name}: {outcome}", file=sys.stderr, flush=True)
            continue
        write_records(record, experiment, outcome, values, seconds)
        if not json and k:
            print()
        show(name, outcome, None, json)
        say(f"{place} {name}: {len(outcome.figures)} figures in {duration(seconds)}")
    done = len(chosen) - len(failures)
    say(f"{done} of {len(chosen)} experiments finished in {duration(time.perf_counter() - started)}")
    if failures:
        print(f"not finished: {', '.join(failures)}", file=sys.stderr)
        raise typer.Exit(1)


def choose(only: list[str] | None, skip: list[str] | None) -> list[Experiment]:
    """Return the experiments to run, in the order of the papers; raise an error for an unknown name."""
    known = [e.name for e in EXPERIMENTS]
    for name in [*(only or []), *(skip or [])]:
        if name not in known:
            raise typer.BadParameter(f"no experiment is called {name!r}; there are {', '.join(known)}.")
    chosen = [find(name) for name in known if (not only or name in only) and name not in (skip or [])]
    if not chosen:
        raise typer.BadParameter("--only and --skip leave no experiment to run.")
    return chosen


def attempt(experiment: Experiment, data: str | None, quick: bool, given: dict[str, Any], quiet: bool) -> "Table | str":
    """Return the table, or one line with the reason why there is none."""
    missing = experiment.missing(data)
    if missing:
        where = f"in {data}" if data else "(pass --data, or set TRELLISWORK_DATA)"
        return f"skipped, its data is missing: {', '.join(missing)} {where}"
    try:
        return experiment.run(data, quick=quick, given=given, say=say_to(quiet, "    "))
    except Exception as error:  # the other experiments shall run
        if settings.debug:
            traceback.print_exc()
        return f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
