"""``trelliswork convert``: models of other tools as ours, and n-gram models as ARPA files."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trelliswork.cli.options import ForceOption, JsonOption, tell
from trelliswork.cli.saving import check_out, check_out_file, save_or_rescue
from trelliswork.errors import DataError

ARPA = (".arpa", ".arpa.gz")


def convert(
    model: Annotated[
        str,
        typer.Argument(
            help="File: a binary model of CRFsuite, a text model of CRF++ (crf_learn -t) or Wapiti, or an ARPA file "
            "(.gz too). Or the directory of an n-gram model, to write an ARPA file."
        ),
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", help="Directory for the model; FILE.arpa or FILE.arpa.gz for an ARPA file.")
    ],
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Convert a model of another tool: the answers stay the same, and nothing is trained.

    The tagger of CRF++ or Wapiti reads the same columns as before, that of CRFsuite files of attributes. The n-gram
    model of an ARPA file has the probabilities of the file.

    Example: trelliswork convert chunker.crfsuite --out chunker
    """
    from trelliswork.integrations.convert import convert as converted

    if out.endswith(ARPA):
        from trelliswork.integrations.convert.arpa import write_arpa

        check_out_file(out, force=force)
        fitted = _ngrams(model)
        write_arpa(fitted, out)
    else:
        if Path(model).is_dir():
            raise DataError(f"{model}: a directory. Only n-gram models are written for others: give --out FILE.arpa.")
        check_out(out, model, force=force)
        fitted = converted(model)
        save_or_rescue(fitted.save, out, force=force)
    described = fitted.describe(1)
    outcome = {"model": model, "out": out, "kind": fitted.family, **described.facts}
    tell(json, outcome, f"{described.title}: {_counts(described.facts)}. Saved in {out}")


def _ngrams(path: str) -> Any:
    """Return an n-gram model, of a directory or of an ARPA file."""
    from trelliswork.integrations.convert import convert as converted
    from trelliswork.models import KneserNey, load

    fitted = load(path) if Path(path).is_dir() else converted(path)
    if not isinstance(fitted, KneserNey):
        raise DataError(f"{path}: expected an n-gram model for an ARPA file, got a model of kind {fitted.family!r}.")
    return fitted


def _counts(facts: dict[str, Any]) -> str:
    if "ngrams" in facts:
        sizes = ", ".join(f"{n:,}" for n in facts["ngrams"])
        return f"{sizes} n-grams of orders 1 to {facts['order']}"
    return f"{facts['active']:,} weights"
