"""``trelliswork train``: train a model on a file."""

from typing import Any

import typer
from typer.core import TyperGroup

from trelliswork.cli.train.command import TrainCommand

# Name, estimator, summary, example; the module of a command has the name of the command.
COMMANDS = (
    ("crf", "trelliswork.models.crf:CRF", "Train a CRF tagger.",
     "train crf train.txt --dev dev.txt --features chunking --out chunker"),
    ("factorial-crf", "trelliswork.models.factorial:FactorialCRF", "Train a tagger of several label layers.",
     "train factorial-crf train.txt --layers pos,chunk --out joint"),
    ("hmm", "trelliswork.models.hmm:HMM", "Train a hidden Markov model, with labels or without.",
     "train hmm train.conllu --label xpos --order 2 --out tagger"),
    ("hmm-lm", "trelliswork.models.hmm_lm:HMMLanguageModel", "Train an HMM language model.",
     "train hmm-lm train.txt --dev dev.txt --n-states 512 --out lm"),
    ("kneser-ney", "trelliswork.models.baselines.kneser_ney:KneserNey", "Train an n-gram language model.",
     "train kneser-ney train.txt --order 5 --out ngrams"),
    ("lbl", "trelliswork.models.baselines.log_bilinear:LogBilinear", "Train a log-bilinear language model.",
     "train lbl train.txt --dev dev.txt --rank 100 --out lbl"),
    ("mrf", "trelliswork.models.mrf:MRFLanguageModel", "Train a Markov random field language model.",
     "train mrf train.txt --dev dev.txt --order 1 --out model"),
    ("mrf-tagger", "trelliswork.models.mrf_tagger:MRFTagger", "Train a Markov random field of tags and words.",
     "train mrf-tagger train.conllu --label xpos --out tagger"),
    ("parser", "trelliswork.models.parser:DependencyParser", "Train a dependency parser.",
     "train parser train.conllu --dev dev.conllu --out parser"),
    ("pcfg", "trelliswork.models.pcfg:PCFG", "Induce a grammar from text.",
     "train pcfg trees/ --tags --n-preterminals 0 --rank 12 --out grammar"),
)  # fmt: skip


class TrainGroup(TyperGroup):
    """The group of ``train`` commands, which load their estimators only when they are used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, estimator, summary, example in COMMANDS:
            module = f"trelliswork.cli.train.{name.replace('-', '_')}"
            self.add_command(TrainCommand(name, module, estimator, summary, f"trelliswork {example}"))


app = typer.Typer(
    cls=TrainGroup,
    help="Train a model on a file.",
    epilog="Example: trelliswork train crf train.txt --dev dev.txt --out tagger",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.callback()
def _group() -> None:
    """Train a model on a file."""
