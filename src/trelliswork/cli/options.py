"""Options that several commands share, and the outcome that they print."""

import json as json_module
from typing import Annotated, Any, Literal

import typer

from trelliswork.data.reading import FileFormat

Files = list[str] | None


def named(help: str) -> Any:
    """Return the argument for names of files."""
    return typer.Argument(help=help, show_default=False)


def tell(json: bool, outcome: Any, text: str) -> None:
    """Print the outcome of a command, as JSON or as text."""
    print(json_module.dumps(outcome, ensure_ascii=False) if json else text)


LabeledFiles = Annotated[Files, named("Labeled files, plain or gzip; '-' is standard input.")]
FormatOption = Annotated[FileFormat, typer.Option(help="Format of the file; by default from its name and first lines.")]
TrainedFormatOption = Annotated[FileFormat, typer.Option(help="Format of the file; by default that of training.")]
LabelOption = Annotated[
    str | None, typer.Option(help="Column of the labels: a number or a CoNLL-U name.", show_default="last, or upos")
]


SchemeOption = Annotated[
    Literal["auto", "bio", "iob1", "bioes", "bilou", "none"],
    typer.Option(help="Scheme of span labels; auto: that of most labels; none: plain tags."),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse labels that break their scheme instead of repairing them.")
]
SeparatorOption = Annotated[str | None, typer.Option(help="Separator of the columns.", show_default="white space")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]


def bundled_option(part: str) -> Any:
    """Return the option that asks for a part of the bundled corpus."""
    return typer.Option("--bundled", help=f"Use the bundled corpus instead of files: its {part} part.")


def leave_out(why: str, **given: Any) -> None:
    """Raise an error for options that are given although they do not apply."""
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value not in (None, False)]
    if names:
        raise typer.BadParameter(f"{why}: leave {' and '.join(names)} out.")


ForceOption = Annotated[bool, typer.Option("--force", help="Replace what an earlier run has saved in --out.")]


OutputOption = Annotated[
    str,
    typer.Option(
        "--out",
        "-o",
        help="Output file instead of standard output; for several files a directory: one output for each, with its "
        "name without .gz. DIR/ is a directory for one file, too.",
    ),
]


TokenizeOption = Annotated[
    bool,
    typer.Option("--tokenize", help="Read raw text: split it into sentences and tokens, and keep their places."),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        help="Tokenizer of raw text instead of our rules: spacy, spacy:LANGUAGE or spacy:PIPELINE.",
        show_default=False,
    ),
]


def chosen_tokenizer(tokenize: bool, tokenizer: str | None, format: FileFormat = FileFormat.text) -> Any:
    """Return the tokenizer of raw text, ``None`` if the text is tokenized."""
    if not tokenize and tokenizer is None:
        return None
    if format not in (FileFormat.auto, FileFormat.text):
        raise typer.BadParameter(f"--tokenize reads raw text: leave --format {format} out.")
    from trelliswork.data.tokenize import tokenizer as named
    from trelliswork.errors import ValueRangeError

    try:
        return named(tokenizer or "rules")
    except ValueRangeError as error:
        raise typer.BadParameter(str(error)) from None


def _readable(text: str | None) -> str | None:
    """Raise an error for text that is not a beam, before anything is read or learned."""
    from trelliswork.errors import ValueRangeError
    from trelliswork.models.parameters import parse_beam

    try:
        if text is not None:
            parse_beam(text)
    except ValueRangeError as error:
        raise typer.BadParameter(str(error)) from None
    return text


DecodingOption = Annotated[
    Literal["viterbi", "mbr", "mbr-span", "mbr-las"] | None,
    typer.Option(
        "--decoding",
        help="viterbi: most probable structure. mbr: most expected correct labels, heads or constituents. mbr-span: "
        "best expected F1 of spans (taggers). mbr-las: most expected words with correct head and label (parsers).",
        show_default="viterbi; mbr for trees",
    ),
]
OtherBeamOption = Annotated[
    str | None,
    typer.Option(
        "--beam",
        callback=_readable,
        help="Beam to use instead of the model's: kl=0.005,min=10, size=20, threshold=6.9,min=4, auto, or none.",
        show_default="the model's",
    ),
]


def set_beam(model: Any, beam: str | None) -> None:
    """Replace the beam of a model; "none" removes it."""
    if beam is None:
        return
    if not hasattr(model, "beam"):
        raise typer.BadParameter(f"a model of kind {model.family} has no beam: leave --beam out.")
    model.set_params(beam=None if beam == "none" else beam)
