"""``trelliswork reproduce all``: every experiment, paper after paper; what fails or lacks its data does not stop it."""

import sys
import time
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.progress import duration
from trelliswork.cli.reproduce.running import Data, Out, Quick, Seed, open_record, say_to, show
from trelliswork.cli.running import report_errors, settings
from trelliswork.experiments.registry import EXPERIMENTS, Experiment, find

if TYPE_CHECKING:
    from trelliswork.experiments.tables import Table

Names = Annotated[list[str] | None, typer.Option(help="Only this experiment; may be repeated.", show_default="all")]
Skipped = Annotated[list[str] | None, typer.Option(help="Not this experiment; may be repeated.")]
Resume = Annotated[bool, typer.Option("--resume", help="Leave out what --out holds already with the same settings.")]


@report_errors
def reproduce_all(
    only: Names = None,
    skip: Skipped = None,
    data: Data = None,
    quick: Quick = False,
    out: Out = None,
    resume: Resume = False,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """All experiments in the order of the papers: about 80 minutes on two cores, minutes with --quick.

    An experiment that fails, or whose data is not there, is named and the next one runs; the exit code is 1 then.
    After each one --out DIR is written anew, so Ctrl-C keeps the tables that are finished; --resume then runs the rest.

    Example: trelliswork reproduce all --quick --data DATA --out results
    """
    chosen = choose(only, skip)
    if resume and out is None:
        raise typer.BadParameter("--resume goes on with the results in a folder: name it by --out.")
    record = open_record(out, chosen, quick)
    tell = say_to(quiet)
    troubles: dict[str, str] = {}
    began = time.perf_counter()
    for k, experiment in enumerate(chosen):
        name, place = experiment.name, f"[{k + 1} of {len(chosen)}]"
        given = {"seed": seed} if "seed" in experiment.full else {}
        values = experiment.settings(quick, given)
        if resume and record is not None and record.holds(name, values, quick):
            tell(f"{place} {name}: finished before, {record.runs[name].began}")
            continue
        about = "" if quick else f", about {experiment.minutes:g} minutes"
        tell(f"{place} {name}: paper {experiment.paper}, {experiment.about}{about}")
        start = time.perf_counter()
        try:
            outcome = attempt(experiment, data, quick, given, quiet)
        except KeyboardInterrupt:
            finished = k - len(troubles)
            kept = f"; they are in {out}, and --resume runs the rest" if out is not None else ""
            print(f"interrupted in {name}: {finished} experiments were finished{kept}", file=sys.stderr)
            raise typer.Exit(130) from None
        seconds = time.perf_counter() - start
        if record is not None:
            record.add(experiment, outcome, values, quick, seconds)
        if isinstance(outcome, str):
            troubles[name] = outcome
            print(f"{name}: {outcome}", file=sys.stderr, flush=True)
            continue
        if not json and k:
            print()
        show(name, outcome, None, json)
        tell(f"{place} {name}: {len(outcome.figures)} figures in {duration(seconds)}")
    done = len(chosen) - len(troubles)
    tell(f"{done} of {len(chosen)} experiments finished in {duration(time.perf_counter() - began)}")
    if troubles:
        print(f"not finished: {', '.join(troubles)}", file=sys.stderr)
        raise typer.Exit(1)


def choose(only: list[str] | None, skip: list[str] | None) -> list[Experiment]:
    """The experiments to run, in the order of the papers; a name that is none is refused."""
    known = [e.name for e in EXPERIMENTS]
    for name in [*(only or []), *(skip or [])]:
        if name not in known:
            raise typer.BadParameter(f"no experiment is called {name!r}; there are {', '.join(known)}.")
    found = [find(name) for name in known if (not only or name in only) and name not in (skip or [])]
    if not found:
        raise typer.BadParameter("--only and --skip leave no experiment to run.")
    return found


def attempt(experiment: Experiment, data: str | None, quick: bool, given: dict[str, Any], quiet: bool) -> "Table | str":
    """The table, or in a line why there is none."""
    missing = experiment.missing(data)
    if missing:
        where = f"in {data}" if data else "(give --data, or set TRELLISWORK_DATA)"
        return f"skipped, its data is not there: {', '.join(missing)} {where}"
    try:
        return experiment.run(data, quick=quick, given=given, say=say_to(quiet, "    "))
    except Exception as error:  # whatever it is, the other experiments are worth running
        if settings.debug:
            traceback.print_exc()
        return f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
