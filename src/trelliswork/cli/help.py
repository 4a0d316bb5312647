"""Commands: their help, with names of options at the left and their meaning at the right, and ``--threads``."""

import inspect
import math
from collections import defaultdict
from collections.abc import Collection
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

NAMES = 26  # characters for names of options
OTHER = "Options"  # options without a group
WITHOUT_THREADS = ("warmup", "bundled")  # commands that compute nothing, or in processes of their own


class Command(TyperCommand):
    """A command whose help has one group of each name, and half of a narrow screen or more for its sentences.

    ``--help`` shows the options whose names are in ``shown``, if it is not empty, and ``--help-all`` all.
    """

    shown: Collection[str] = ()

    def __init__(self, name: str | None, **options: Any) -> None:
        super().__init__(name, **options)
        if name not in WITHOUT_THREADS:
            self.params.append(_threads_option())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; nan, which is in no range, is refused like other numbers outside of it."""
        rest = super().parse_args(ctx, args)
        for parameter in self.params:
            if isinstance(value := ctx.params.get(parameter.name), float) and math.isnan(value):
                raise typer.BadParameter("nan is not a number.", ctx, parameter)
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        self.print_help(ctx, self.shown)

    def print_help(self, ctx: Any, shown: Collection[str]) -> None:
        """Print the help with the arguments and some of the options, or all."""
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text
        from typer.rich_utils import _get_rich_console

        console = _get_rich_console()
        print_ = lambda text, style="": console.print(Text(text, style), highlight=False)  # noqa: E731
        print_(f"\n{self.get_usage(ctx)}\n", "bold")
        for paragraph in inspect.cleandoc(self.help or "").split("\n\n"):
            print_(" ".join(paragraph.split()) + "\n")
        groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for parameter in self.get_params(ctx):
            is_option = parameter.param_type_name == "option"
            if not getattr(parameter, "hidden", False) and (not shown or not is_option or parameter.name in shown):
                panel = getattr(parameter, "rich_help_panel", None) or (OTHER if is_option else "Input")
                groups[panel].append(_row(parameter, ctx))
        for name in sorted(groups, key=lambda name: name == OTHER):
            table = Table.grid(padding=(0, 2, 0, 0), expand=True)
            table.add_column(width=NAMES, style="cyan", overflow="fold")
            table.add_column(ratio=1)
            for row in groups[name]:
                table.add_row(*map(Text, row))
            console.print(Panel(table, title=name, title_align="left", border_style="dim"))
        if shown:
            print_(f"{len(self.params) - sum(map(len, groups.values()))} more options: --help-all\n")
        if self.epilog:
            print_(" ".join(self.epilog.split()) + "\n")


def _row(parameter: Any, ctx: Any) -> tuple[str, str]:
    """Return the names of an option or argument, and its meaning with choices, range and default."""
    shown, text = parameter.get_help_record(ctx)
    if parameter.param_type_name != "option":
        return parameter.name, text
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if choices := getattr(parameter.type, "choices", None):
        return names, f"{text.strip()} [{'|'.join(str(getattr(c, 'value', c)) for c in choices)}]"
    if not parameter.is_flag and len(shown) <= NAMES:
        names = shown
    return names, text.strip()


def set_threads(threads: int | None) -> None:
    """Set the number of threads, if one is given."""
    if threads is not None:
        from trelliswork.compute.threads import set_num_threads

        set_num_threads(threads)


def _threads_option() -> Any:
    """Return the option; given before the command and after it, the latter counts."""
    single = typer.Typer(add_completion=False)

    @single.command()
    def _(
        threads: Annotated[
            int | None,
            typer.Option(
                min=1,
                callback=set_threads,
                expose_value=False,
                show_default=False,
                help="Number of threads; all cores by default.",
            ),
        ] = None,
    ) -> None: ...

    return get_command(single).params[0]
