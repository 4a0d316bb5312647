"""``trelliswork train``: fit a model to a file."""

import typer

from trelliswork.cli.running import report_errors
from trelliswork.cli.train.baselines import train_kneser_ney, train_lbl
from trelliswork.cli.train.crf import train_crf
from trelliswork.cli.train.factorial import train_factorial
from trelliswork.cli.train.hmm import train_hmm
from trelliswork.cli.train.hmm_lm import train_hmm_lm
from trelliswork.cli.train.mrf import train_mrf
from trelliswork.cli.train.mrf_tagger import train_mrf_tagger
from trelliswork.cli.train.parser import train_parser
from trelliswork.cli.train.pcfg import train_pcfg

app = typer.Typer(
    help="Fit a model to a file.",
    epilog="Example: trelliswork train crf train.txt --dev dev.txt --out tagger",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.callback()
def _group() -> None:
    """Fit a model to a file."""


app.command("crf", epilog="Example: trelliswork train crf train.txt --dev dev.txt --features chunking --out chunker")(
    report_errors(train_crf)
)
app.command(
    "factorial-crf", epilog="Example: trelliswork train factorial-crf train.txt --layers pos,chunk --out joint"
)(report_errors(train_factorial))
app.command("hmm", epilog="Example: trelliswork train hmm train.conllu --label xpos --order 2 --out tagger")(
    report_errors(train_hmm)
)
app.command("hmm-lm", epilog="Example: trelliswork train hmm-lm train.txt --dev dev.txt --states 512 --out lm")(
    report_errors(train_hmm_lm)
)
app.command("kneser-ney", epilog="Example: trelliswork train kneser-ney train.txt --order 5 --out ngrams")(
    report_errors(train_kneser_ney)
)
app.command("lbl", epilog="Example: trelliswork train lbl train.txt --dev dev.txt --rank 100 --out lbl")(
    report_errors(train_lbl)
)
app.command("mrf-tagger", epilog="Example: trelliswork train mrf-tagger train.conllu --label xpos --out tagger")(
    report_errors(train_mrf_tagger)
)
app.command("mrf", epilog="Example: trelliswork train mrf train.txt --dev dev.txt --distances 1 --out model")(
    report_errors(train_mrf)
)
app.command("parser", epilog="Example: trelliswork train parser train.conllu --dev dev.conllu --out parser")(
    report_errors(train_parser)
)
app.command("pcfg", epilog="Example: trelliswork train pcfg trees/ --tags --preterminals 0 --rank 12 --out grammar")(
    report_errors(train_pcfg)
)
