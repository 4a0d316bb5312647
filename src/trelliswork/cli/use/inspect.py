"""``trelliswork inspect``: the content of a saved model."""

from typing import Annotated, Any

import typer

from trelliswork.cli.options import tell
from trelliswork.cli.use.loading import Model


def inspect(
    model: Model,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Number of rows per table.")] = 20,
    label: Annotated[str | None, typer.Option(help="Only this label, state, symbol or word.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show the content of a model: its largest weights, states, rules or neighbors, and how training ended.

    Example: trelliswork inspect chunker --label B-NP
    """
    from trelliswork.errors import ValueRangeError
    from trelliswork.models import load

    fitted = load(model)
    try:
        description = fitted.describe(n, label)
    except ValueRangeError as error:
        raise typer.BadParameter(str(error)) from None
    report = fitted.report_
    facts = description.facts | {
        "objective": report.value if report.value == report.value else None,
        "iterations": report.n_iter,
        "converged": report.converged,
        "reason": report.reason,
    }
    if fitted.calibration_ is not None:
        facts["calibration"] = fitted.calibration_.to_dict() if json else str(fitted.calibration_)
    tables = {table.key: table.rows for table in description.tables}
    lines = [description.title]
    lines += [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in facts.items() if value is not None]
    for table in description.tables:
        lines += ["", table.title, "  ".join(table.columns), *("  ".join(map(_text, row)) for row in table.rows)]
    tell(json, {"kind": fitted.family, **facts, **tables}, "\n".join(lines))


def _text(value: Any) -> str:
    """Return a fact or a cell as text; pairs of a word and a number as ``word 0.123``."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        between = "  " if value and isinstance(value[0], list | tuple) else " "
        return between.join(map(_text, value))
    return f"{value:,}" if type(value) is int else str(value)
