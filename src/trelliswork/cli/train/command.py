"""``train`` commands made from estimators: their parameters are the options, and one `Job` saves and reports.

A command is a function of a job, of the estimator with the parameters of the command line, and of options that concern
files. It reads the files, calls ``job.fit`` and returns facts about the data. Estimators are imported when a command is
run or its help is shown, so that ``trelliswork --help`` is fast.
"""

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from trelliswork.cli.help import Command
from trelliswork.cli.inputs import dev_input, inputs_of
from trelliswork.cli.options import ForceOption, JsonOption, QuietOption, tell
from trelliswork.cli.progress import training_progress, usage_lines
from trelliswork.cli.reporting import ReportOption, typed, write_page
from trelliswork.cli.running import alone, current, report_errors
from trelliswork.cli.saving import check_out, save_or_rescue
from trelliswork.cli.train.config import read_config, shown_options, write_config
from trelliswork.compute.display import plural
from trelliswork.data.reading.inputs import Inputs
from trelliswork.errors import extras_for

if TYPE_CHECKING:
    from trelliswork.models.parameters import Declared
    from trelliswork.report import Sample

INPUT, OUTPUT, TRAINING = "Input", "Output", "Training"
Run = Callable[..., dict[str, Any]]


@dataclass
class Job:
    """One run of a ``train`` command: options of all commands, and the steps after reading."""

    out: str  # directory for the model
    force: bool = False  # replace a model in that directory
    bundled: bool = False  # train on the bundled corpus
    dev: str | None = None  # development file
    start: str | None = None  # model to start from
    checkpoint: str | None = None  # file for the state of training
    max_minutes: float | None = None  # time limit, reading included
    page: str | None = None  # file for the report
    quiet: bool = False  # no progress
    json: bool = False  # the outcome as JSON
    given: frozenset[str] = frozenset()  # names of the options that the user has given
    sample: "Callable[[], Sample | None] | None" = None  # sentences that the report shows
    started: float = field(default_factory=time.perf_counter)

    def inputs(self, files: list[str] | None) -> Inputs:
        """Return the training files, or the training part of the bundled corpus; nothing is an error."""
        return inputs_of(files, self.bundled, "train")

    def read_dev(self, read: Callable[..., Any], *options: Any) -> Any:
        """Return what ``read`` returns for the development file; ``None`` without one."""
        return None if self.dev is None else read(dev_input(self.dev), *options)

    def fit(self, model: Any, *data: Any, n_tokens: int, total: int, **options: Any) -> None:
        """Call ``model.fit`` with ``data`` and ``options``, checkpoint, and the model to start from.

        The progress bar needs the number of tokens and ``total``, the maximum number of iterations.
        """
        if self.start is not None:
            options["start"] = type(model).load(self.start)
        if self.checkpoint is not None:
            options["checkpoint"] = self.checkpoint
        if self.max_minutes is not None:
            options["max_minutes"] = self.max_minutes
        from trelliswork.learning.watch import timed_from

        with training_progress(n_tokens, total, self.quiet) as callback, timed_from(self.started):
            model.fit(*data, callback=callback, **options)

    def finish(self, model: Any, facts: dict[str, Any]) -> None:
        """Save the model, write the report, and print the outcome."""
        usage = current().usage()
        save_or_rescue(model.save, self.out, force=self.force)
        if current().rank > 0:
            return
        with alone():  # what follows is the work of one process
            self._tell(model, facts, usage)

    def _tell(self, model: Any, facts: dict[str, Any], usage: dict[str, Any]) -> None:
        """Write the report, and print the outcome."""
        report = model.report_
        outcome: dict[str, Any] = {
            "model": self.out,
            "kind": model.family,
            **facts,
            "objective": report.value if report.n_iter else None,
            "iterations": report.n_iter,
            "converged": report.converged,
            "reason": report.reason,
            "dev": report.dev,
            "dev_metric": report.metric or None,
            "beam": None if report.beam is None else vars(report.beam) | {"kept": report.beam.kept},
            "seconds": round(time.perf_counter() - self.started, 3),
            **usage,
        }
        if self.page is not None:
            from trelliswork.report import training_page

            sample = None if self.sample is None else self.sample()
            outcome |= write_page(self.page, training_page(model, outcome, sample=sample, command=typed()))
        sizes = [
            plural(n, f"{layer} {name.replace('_', ' ')}".lstrip())
            for name, value in facts.items()
            for layer, n in (value.items() if isinstance(value, dict) else [("", value)])
            if type(n) is int
        ]
        objective = f"objective {report.value:.4f} after {plural(report.n_iter, 'iterations')} ({report.reason})"
        how = objective if report.n_iter else report.reason
        lines = [f"{', '.join(sizes)}; {how}; {outcome['seconds']:.1f} s. Saved in {self.out}"]
        if report.beam is not None:
            lines.append(f"beam {model.beam}: {report.beam}")
        tell(self.json, outcome, "\n".join([*lines, *usage_lines(outcome)]))


class TrainCommand(TyperCommand):
    """A ``train`` command, which is completed from its estimator when it is called or its help is shown."""

    def __init__(self, name: str, module: str, estimator: str, summary: str, example: str) -> None:
        self._run = f"trelliswork.cli.train.{module}:{name.replace('-', '_')}"
        self._estimator = f"trelliswork.models.{estimator}"
        super().__init__(name=name, help=summary, epilog=f"Example: trelliswork {example}")

    @cached_property
    def inner(self) -> Any:
        """The complete command."""
        with extras_for(f"'train {self.name}'"):
            run, estimator = resolve_name(self._run), resolve_name(self._estimator)
        app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", add_completion=False)
        command = app.command(self.name, cls=Command, help=inspect.getdoc(run), epilog=self.epilog)
        command(_function(run, estimator, self.name or ""))
        inner: Any = typer.main.get_command(app)
        inner.shown = shown_options([p.name for p in inner.params if p.param_type_name == "option"])
        return inner

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Return the context of the complete command, which runs instead of this one."""
        return self.inner.make_context(*args, **options)


def _function(run: Run, estimator: Any, name: str) -> Callable[..., None]:
    """Return the function behind a command, with a signature for Typer."""
    from trelliswork.models.parameters import arranged, declared

    parameters = {k: d for k, d in declared(estimator).items() if d.parameter.option}
    files = list(inspect.signature(run).parameters.values())[2:]
    fit = inspect.signature(estimator.fit).parameters
    overlap = {f.name for f in files} & set(parameters)
    assert not overlap, f"{name}: {overlap} are parameters of {estimator.__name__}: give them option=False"
    signature = [_in_panel(f, INPUT) for f in files]
    text = "Train on the bundled corpus instead of files. Its parts are bundled:train, bundled:dev and bundled:test."
    signature.append(_option("bundled", bool, False, text, INPUT, "--bundled"))
    if "dev" in fit:
        signature.append(_option("dev", str | None, None, "Development file: stop early, keep the best.", INPUT))
    signature += [_from_declaration(d) for d in parameters.values()]
    resumed = "File for the state of training; if it exists, training resumes from it."
    for own, text in (("start", "Model to start from."), ("checkpoint", resumed)):
        if own in fit:
            signature.append(_option(own, str | None, None, text, TRAINING))
    if "max_minutes" in fit:
        text = "Time limit for training, in minutes; reading counts."
        signature.append(_option("max_minutes", float | None, None, text, TRAINING, show_default="no limit"))
    signature.append(_option("out", str, f"{name}-model", "Directory for the model.", OUTPUT, "--out", "-o"))
    for own, kind, default in (
        ("force", ForceOption, False),
        ("page", ReportOption, None),
        ("quiet", QuietOption, False),
        ("json", JsonOption, False),
    ):
        argument = inspect.Parameter(own, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        signature.append(_in_panel(argument, OUTPUT))

    def call(context: typer.Context, **values: Any) -> None:
        values.pop("help_all"), values.pop("config")
        given = frozenset(k for k in values if _was_given(context, k))
        if (saved := values.pop("save_config")) is not None:
            write_config(saved, context.command, {k: values[k] for k in given if k != "save_config"})
        model = estimator(**arranged(estimator, {k: _value(d, values.pop(k)) for k, d in parameters.items()}))
        own = {f.name: values.pop(f.name) for f in files}
        job = Job(**values, given=given)
        if own.get("counts") is None:
            job.inputs(own["train"])
        if job.checkpoint is not None and Path(job.checkpoint).exists():
            job.force = True  # the run goes on, and replaces what it has saved when it was stopped
        check_out(job.out, job.checkpoint, job.page, force=job.force)
        job.finish(model, run(job, model, **own))

    text = "TOML file with options; those of the command line have priority."
    signature.append(_option("config", str | None, None, text, OUTPUT, callback=read_config, is_eager=True))
    text = "TOML file to write the given options to, for --config."
    signature.append(_option("save_config", str | None, None, text, OUTPUT))
    help_all: Any = {"callback": _print_all, "is_eager": True}
    signature.append(_option("help_all", bool, False, "Show all options and exit.", OUTPUT, "--help-all", **help_all))
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    keyword = [context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature)]
    call.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in keyword}
    call.__name__, call.__doc__ = f"train_{name}", run.__doc__
    return report_errors(call, shared=True)


def _was_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"  # a file of --config is given, too


def _print_all(context: typer.Context, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        context.command.print_help(context, ())  # type: ignore[attr-defined]
        raise typer.Exit


def _in_panel(argument: inspect.Parameter, panel: str) -> inspect.Parameter:
    """Put an option into a group of the help text."""
    kind, metadata = argument.annotation.__origin__, argument.annotation.__metadata__
    for option in metadata:
        if not isinstance(option, str) and option.rich_help_panel is None and hasattr(option, "param_decls"):
            option.rich_help_panel = panel
    return argument.replace(annotation=Annotated[kind, *metadata])


def _option(name: str, kind: Any, default: Any, text: str, panel: str, *decls: str, **more: Any) -> inspect.Parameter:
    option = typer.Option(*decls, help=text, rich_help_panel=panel, **more)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _from_declaration(d: "Declared") -> inspect.Parameter:
    """Return the option of an estimator's parameter."""
    p, text = d.parameter, d.parameter.text.partition(" In Python ")[0]  # what the shell cannot say comes last
    more: dict[str, Any] = {"show_default": p.unset} if d.default is None and p.unset else {}
    limits = {k: v for k, v in (("min", p.minimum), ("max", p.maximum)) if v is not None}
    plain = [t for t in d.types if t in (bool, int, float, str)]
    if p.parse is not None:
        shown = d.default if isinstance(d.default, str) else None
        return _option(d.name, str | None, shown, text, p.panel, **more)
    if d.choices:
        choices = (*d.choices, "none") if d.optional and d.default is not None else d.choices
        kind: Any = Literal[choices]
        return _option(d.name, kind | None if d.default is None else kind, d.default, text, p.panel, **more)
    assert len(plain) == 1, f"{d.name}: give its Parameter a `parse` function, or option=False"
    kind = plain[0]
    if kind in (int, float):
        more |= {k: kind(v) for k, v in limits.items()}
    return _option(d.name, kind | None if d.optional else kind, d.default, text, p.panel, **more)


def _value(d: "Declared", value: Any) -> Any:
    """Return the value of a parameter from that of its option."""
    if value is None:
        return d.default
    if d.parameter.parse is not None and isinstance(value, str):
        from trelliswork.errors import ValueRangeError

        try:
            return d.parameter.parse(value)
        except ValueRangeError as error:
            raise typer.BadParameter(str(error), param_hint=f"--{d.name.replace('_', '-')}") from None
    if d.choices and value == "none" and d.optional:
        return None
    return value
