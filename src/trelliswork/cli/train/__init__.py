"""``trelliswork train``: train a model on a file."""

from typing import Any

import typer
from typer.core import TyperGroup

from trelliswork.cli.train.command import TrainCommand

# Name, module, estimator, summary, example; the function of a command has the name of the command.
COMMANDS = (
    ("crf", "taggers", "crf:CRF", "Train a CRF tagger.",
     "train crf train.txt --dev dev.txt --features chunking --out chunker"),
    ("factorial-crf", "taggers", "factorial:FactorialCRF", "Train a tagger of several label layers.",
     "train factorial-crf train.txt --layers pos,chunk --out joint"),
    ("hmm", "taggers", "hmm:HMM", "Train a hidden Markov model, with labels or without.",
     "train hmm train.conllu --label xpos --order 2 --out tagger"),
    ("hmm-lm", "language_models", "hmm_lm:HMMLanguageModel", "Train an HMM language model.",
     "train hmm-lm train.txt --dev dev.txt --n-states 512 --out lm"),
    ("kneser-ney", "language_models", "baselines.kneser_ney:KneserNey", "Train an n-gram language model.",
     "train kneser-ney train.txt --order 5 --out ngrams"),
    ("log-bilinear", "language_models", "baselines.log_bilinear:LogBilinear", "Train a log-bilinear language model.",
     "train log-bilinear train.txt --dev dev.txt --rank 100 --out lbl"),
    ("mrf-lm", "language_models", "mrf:MRFLanguageModel", "Train a Markov random field language model.",
     "train mrf-lm train.txt --dev dev.txt --window 1 --out model"),
    ("mrf-tagger", "taggers", "mrf_tagger:MRFTagger", "Train a Markov random field of tags and words.",
     "train mrf-tagger train.conllu --label xpos --out tagger"),
    ("parser", "trees", "parser:DependencyParser", "Train a dependency parser.",
     "train parser train.conllu --dev dev.conllu --out parser"),
    ("pcfg", "trees", "pcfg:PCFG", "Induce a grammar from text.",
     "train pcfg trees/ --tags --n-preterminals 0 --rank 12 --out grammar"),
)  # fmt: skip


class TrainGroup(TyperGroup):
    """The group of ``train`` commands, which load their estimators only when they are used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for command in COMMANDS:
            self.add_command(TrainCommand(*command))


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
