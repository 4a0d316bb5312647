"""``trelliswork records``: short strings to fields: train, parse and evaluate."""

import csv
import gc
import json as json_module
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from trelliswork.cli.help import Command
from trelliswork.cli.options import ForceOption, JsonOption, QuietOption
from trelliswork.cli.progress import training_progress
from trelliswork.cli.running import report_errors
from trelliswork.cli.saving import check_out, save_or_rescue
from trelliswork.cli.use.loading import Model
from trelliswork.compute.display import plural
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.records import Example, RecordParser
    from trelliswork.records.parser import Table
    from trelliswork.records.reading import Row

app = typer.Typer(
    help="Split short strings, such as addresses, names and references, into fields with probabilities.",
    epilog="Example: trelliswork records parse addresses table.csv --column address --out parsed.csv",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
LabeledRecords = Annotated[
    list[str],
    typer.Argument(help="Labeled records: XML of parserator or anystyle (.xml), JSON lines or CSV with spans."),
]


@app.command("train", cls=Command, epilog="Example: trelliswork records train train.xml --dev dev.xml --out addresses")
@report_errors
def train(
    files: LabeledRecords,
    out: Annotated[str, typer.Option("--out", "-o", help="Directory for the model.")] = "records",
    dev: Annotated[
        str | None, typer.Option(help="Held-out records, to calibrate probabilities with.", show_default=False)
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            help="File of rules that fields satisfy; 'once': fields that ten records of training have, and none "
            "repeats, occur at most once.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        str,
        typer.Option(
            help="words (punctuation stays with the word before it), punctuation (each mark is a token), blanks, or a "
            "regular expression."
        ),
    ] = "words",
    features: Annotated[str, typer.Option(help="A preset, or CRF++ templates: a file.")] = "records",
    l1: Annotated[float, typer.Option(min=0, help="L1 penalty.")] = 0.0,
    l2: Annotated[float, typer.Option(min=0, help="L2 penalty.")] = 0.02,
    max_iter: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of iterations.", show_default="500")
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a parser of records."""
    from trelliswork.records import RecordParser
    from trelliswork.rules import read

    check_out(out, *files, dev, force=force)
    examples = _examples(files)
    rule: Any = rules if rules in (None, "once") else read(str(rules))
    parser = RecordParser(tokens=tokens, rules=rule, features=features, l1=l1, l2=l2, max_iter=max_iter)
    n_tokens = sum(len(example.text.split()) for example in examples)
    with training_progress(n_tokens, max_iter or 500, quiet) as callback:
        parser.fit(examples, callback=callback)
    if dev is not None:
        parser.calibrate(_examples([dev]))
    save_or_rescue(parser.save, out, force=force)
    if json:
        outcome = {"model": out, "records": len(examples), "fields": list(parser.fields_)}
        print(json_module.dumps(outcome | {"rules": repr(parser.rules_)}))
    else:
        print(f"{plural(len(examples), 'records')} with {plural(len(parser.fields_), 'fields')}. Saved in {out}")


@app.command("evaluate", cls=Command, epilog="Example: trelliswork records evaluate addresses test.xml")
@report_errors
def evaluate(
    model: Model,
    files: LabeledRecords,
    target_precision: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Find the lowest --accept at which so many of the accepted records are right.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Compare a parser with labeled records: fields, whole records, and their probabilities."""
    from trelliswork.records import RecordParser

    report = RecordParser.load(model).evaluate(_examples(files))
    found = None if target_precision is None else report.record_confidence.at_precision(target_precision)
    if json:
        more = {} if found is None else {"accept": None if found.threshold is None else found.threshold.value}
        print(json_module.dumps(report.to_dict() | more))
    else:
        print("\n\n".join([report.summary(), *([] if found is None else [found.summary()])]))


@app.command("parse", cls=Command, epilog=str(app.info.epilog))
@report_errors
def parse(
    model: Model,
    file: Annotated[
        str, typer.Argument(help="CSV, TSV (.tsv) or JSON lines (.jsonl), plain or gzip; '-' is CSV on standard input.")
    ],
    column: Annotated[str, typer.Option(help="Column of the texts.")] = "text",
    out: Annotated[
        str, typer.Option("--out", "-o", help="Output: JSON lines if its name ends in .jsonl; '-' is standard output.")
    ] = "-",
    accept: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, show_default=False,
            help="Write only records of at least this probability to --out, and all others to --review.",
        ),
    ] = None,
    review: Annotated[
        str | None, typer.Option(help="File for records to review.", show_default="OUT with .review in its name")
    ] = None,
    prefix: Annotated[str, typer.Option(help="What the names of new columns start with.")] = "",
    rules_probability: Annotated[
        bool, typer.Option("--rules-probability", help="Add the probability that the rules hold, which takes long.")
    ] = False,
    skip: Annotated[int, typer.Option(min=0, help="Rows to leave out, as of an earlier run that was stopped.")] = 0,
) -> None:  # fmt: skip
    """Add a column for each field, the probability of the record, and the problem of a row that has no fields.

    Rows are written while others are read, in their order, and none is lost. With --accept, the new column row has the
    number of the row. After Ctrl-C the output has complete rows, and the message has the --skip to go on with.
    """
    from trelliswork.records import RecordParser, read_texts
    from trelliswork.records.parser import BATCH

    parser = RecordParser.load(model)
    if accept is not None and review is None:
        if out == "-":
            raise typer.BadParameter("--accept writes two files: give --out or --review.")
        review = str(Path(out).with_name(f"{Path(out).stem}.review{Path(out).suffix}"))
    new = [prefix + name for name in _new(parser, rules_probability, accept is not None)]
    done = line = 0
    with read_texts(file, column) as (header, rows), ExitStack() as stack:
        if set(new) & set(header):
            names = ", ".join(sorted(set(new) & set(header)))
            raise typer.BadParameter(f"{file} has columns {names} already: choose another --prefix.")
        objects = [place.endswith(".jsonl") or (place == "-" and not header) for place in (out, review) if place]
        if not header and not all(objects):
            raise typer.BadParameter("JSON lines have no columns: give an --out that ends in .jsonl.")
        places = zip((place for place in (out, review) if place), objects, strict=True)
        files = [stack.enter_context(_writer(place, [*header, *new], file, form)) for place, form in places]
        rows = islice(rows, skip, None)
        gc.disable()  # nothing here refers to itself, and looking for it takes a fifth of the time
        stack.callback(gc.enable)
        try:
            while batch := list(islice(rows, BATCH)):
                (table,) = parser.tables([_text(row) for row in batch], rules_probability=rules_probability)
                with _uninterrupted():
                    _write(files, batch, table, new, skip + done, rules_probability, accept)
                    done, line = done + len(batch), batch[-1].line
        except DataError as error:
            raise DataError(f"{error} {_place(skip + done, line, out)}") from None
        except KeyboardInterrupt:
            print(f"stopped: {_place(skip + done, line, out)}", file=sys.stderr)
            raise typer.Exit(130) from None


def _examples(files: list[str]) -> "list[Example]":
    from trelliswork.records import read_records

    return [example for file in files for example in read_records(file)]


def _new(parser: "RecordParser", rules: bool, numbered: bool) -> list[str]:
    """Return the names of the new columns."""
    return ["row"] * numbered + [*parser.fields_, "probability"] + ["rules_probability"] * rules + ["problem"]


def _text(row: "Row") -> str | None:
    return None if row.problem else row.text


def _place(done: int, line: int, out: str) -> str:
    rows = f"{plural(done, 'rows')}, up to line {line:,}, are in {'the output' if out == '-' else out}"
    return f"{rows}; go on with --skip {done} and another --out."


def _write(
    files: list[Any], batch: "list[Row]", table: "Table", new: list[str], first: int, rules: bool,
    accept: float | None,
) -> None:  # fmt: skip
    """Write the rows of a batch."""
    columns = table.columns(rules=rules)
    for name in ("probability", "rules_probability"):
        if name in columns:
            columns[name] = ["" if p != p else round(p, 6) for p in columns[name]]
    for n, row in enumerate(batch):
        if row.problem:
            columns["problem"][n] = row.problem
    if accept is not None:
        columns = {"row": list(range(first + 1, first + len(batch) + 1)), **columns}
    made = list(zip(*columns.values(), strict=True))
    if accept is None:
        files[0](batch, made, new)
        return
    good = [isinstance(p, float) and p >= accept for p in columns["probability"]]
    for write, wanted in zip(files, (True, False), strict=True):
        which = [n for n, ok in enumerate(good) if ok == wanted]
        write([batch[n] for n in which], [made[n] for n in which], new)


@contextmanager
def _writer(place: str, header: list[str], source: str, objects: bool) -> "Iterator[Any]":
    """Yield a function that writes rows with their new cells, as JSON lines or a table."""
    with ExitStack() as stack:
        stream: TextIO = sys.stdout
        if place != "-":
            if Path(place).exists() and source != "-" and Path(place).samefile(source):
                raise DataError(f"{place}: the output would replace the input. Choose another --out.")
            stream = stack.enter_context(Path(place).open("w", encoding="utf-8", newline=""))
        table = csv.writer(stream, delimiter="\t" if place.endswith(".tsv") else ",", lineterminator="\n")
        if not objects:
            table.writerow(header)

        def write(batch: "list[Row]", made: list[tuple[Any, ...]], new: list[str]) -> None:
            if objects:
                for row, cells in zip(batch, made, strict=True):
                    own = {name: cell for name, cell in zip(new, cells, strict=True) if cell not in (None, "")}
                    plain = row.cells if isinstance(row.cells, dict) else dict(zip(header, row.cells, strict=False))
                    stream.write(json_module.dumps(plain | own, ensure_ascii=False) + "\n")
            else:
                table.writerows([*row.cells, *cells] for row, cells in zip(batch, made, strict=True))
            stream.flush()

        yield write


@contextmanager
def _uninterrupted() -> "Iterator[None]":
    """Hold Ctrl-C back until the end of a ``with`` block, so that rows are written whole."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
