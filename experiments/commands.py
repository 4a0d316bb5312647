"""Commands of ``python -m experiments``: one per experiment, made from the table ``COMMANDS``."""

import inspect
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.registry import Experiment, describe, find
from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.reporting import check_report
from trelliswork.cli.running import report_errors

if TYPE_CHECKING:
    from experiments.record import Record
    from experiments.tables import Say, Table

PLOT = "HTML file for a plot of the curves."
Data = Annotated[
    str | None, typer.Option(help="Folder of all data sets, or of the one that is needed.", envvar="TRELLISWORK_DATA")
]
NoData = Annotated[
    str | None, typer.Option(help="Ignored: this experiment generates its data.", envvar="TRELLISWORK_DATA")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Small settings: seconds to a minute. Other options override them.")
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", help="Folder for one page per paper (paper-0.md ...) and figures.jsonl; kept up to date."
    ),
]
RecordFile = Annotated[
    str | None,
    typer.Option("--record", help="File of records to update, such as docs/records/reproduction.jsonl."),
]


class Option:
    """An option of an experiment's command.

    The name has no dashes; ``a/b`` is a flag with its opposite. A ``list[...]`` may be repeated, a ``bool`` is a flag.
    ``setting`` is the parameter of the experiment, by default the name with underscores. The default in the help is
    the full setting of the experiment; ``known`` allows only its values. ``limits`` are ``min`` and ``max``.
    """

    def __init__(
        self, name: str, type: Any, help: str, setting: str = "", *, default: str = "", known: bool = False,
        **limits: float,
    ) -> None:  # fmt: skip
        self.flag, self.type, self.default, self.known, self.limits = f"--{name}", type, default, known, limits
        self.argument = name.split("/")[0].replace("-", "_")
        self.setting = setting or self.argument
        self.help = help + (" May be repeated." if str(type).startswith("list") else "")

    def parameter(self, experiment: Experiment) -> inspect.Parameter:
        """Return the parameter of the command's function; ``None`` takes the experiment's setting."""
        value = experiment.full.get(self.setting)
        shown = self.default or (False if value is None else describe({"": value})[1:])
        flag = self.flag if self.type is not bool or "/" not in self.flag else self.flag.replace("/", "/--")
        limits: dict[str, Any] = dict(self.limits)
        option = typer.Option(flag, help=self.help, show_default=shown, **limits)
        return _argument(self.argument, Annotated[self.type | None, option], None)

    def check(self, experiment: Experiment, value: Any) -> None:
        """Raise an error for a value that the full setting does not have."""
        known = experiment.full.get(self.setting, ())
        for one in value or () if self.known else ():
            if one not in known:
                raise typer.BadParameter(f"{self.flag} must be {' or '.join(known)}, got {one!r}.")


@dataclass(frozen=True)
class Command:
    """Help of an experiment's command, an example of its options, its own options, and the meaning of ``--plot``."""

    text: str
    example: str
    options: tuple[Option, ...]
    plot: str | None = PLOT


L2 = Option("l2", float, "L2 penalty.", min=0)
MAX_ITER = Option("max-iter", int, "Maximum number of iterations.", min=1)
ORDER = Option("order", list[int], "Order of the models.", "orders", default="1 2", min=1, max=2)
FEWER = Option("sentences", int, "Maximum number of training sentences.", "n_sentences", default="all", min=10)
FIRST = Option("sentences", int, "Number of training sentences, from the first; 0 is all.", "n_sentences", min=0)
STATES = Option("states", int, "Number of states.", "n_states", min=2)
CORPUS = Option("corpus", list[str], "Corpus: conll2000 or ud-en-ewt.", "datasets", known=True)

COMMANDS = {
    "mrf-exact": Command(
        "Exact against lifted training on a tiny text (paper 0, figure 5).", "--plot curves.html",
        (Option("positions", int, "Number of words in the text.", "n_positions", min=3),
         Option("words", int, "Number of different words.", "n_words", min=2)),
    ),
    "mrf-ptb": Command(
        "Bounds of the lifted language model on the Penn Treebank, and exact models (paper 0, figure 6).",
        "--data DATA --part k1 --part lbl --plot curves.html",
        (Option("part", list[str], "Model: k1, chain, weighted, from-k1, star, no-unary, full, k3, k4, k1-rank100, "
                "rank100, pseudo, lbl, lbl100 or kn.", "parts"),
         Option("rank", int, "Rank of low-rank models.", min=1),
         Option("l2", float, "L2 penalty of low-rank models.", min=0), MAX_ITER,
         Option("estimates/no-estimates", bool, "Estimate the true likelihood of order 2.", default="yes"),
         Option("save", str, "Folder for the trained models.")),
    ),
    "mrf-neighbors": Command(
        "Nearest words by the lifted field, by a field of pseudo-likelihood, and by word2vec (paper 0, table 1).\n\n"
        "The part similarity compares word vectors of 30 and 100 dimensions with the ratings in DATA/word-similarity. "
        "word2vec needs gensim; without it its cells are empty.",
        "--data DATA --minutes 5 --plot agreement.html",
        (Option("part", list[str], "Part: neighbors or similarity.", "parts", known=True),
         Option("word", list[str], "Word whose neighbors are shown.", "words", default="the paper's"),
         Option("minutes", float, "Training time of each of the two fields.", min=0),
         Option("rank", int, "Length of the word vectors of the fields.", min=1),
         Option("max-words", int, "Maximum number of words.", default="all", min=1)),
        plot="HTML file for a plot of the agreement of two models on the nearest words.",
    ),
    "mrf-tagging": Command(
        "HMMs and the Markov random field tagger on all words and unseen words (paper 0, table 2).",
        "--data DATA --corpus conll2000 --plot curves.html",
        (CORPUS, Option("words", list[int], "Number of words that a tag depends on.", "n_words", min=1),
         MAX_ITER, L2, FEWER),
        plot="HTML file for a plot of the accuracy on held-out sentences by iteration.",
    ),
    "chain-tagging": Command(
        "Parts of speech by HMMs of two orders and by a CRF, on all words and unseen words (paper 1).",
        "--data DATA --corpus ud-en-ewt", (CORPUS, MAX_ITER, L2, FEWER), plot=None,
    ),
    "representations": Command(
        "Parts of speech from few labeled sentences: a CRF without and with clusters and vectors of words, which are "
        "learned from raw text (beside paper 1).",
        "--data DATA --size 300 --plot curves.html",
        (Option("size", list[int], "Number of labeled sentences.", "sizes", min=10),
         Option("clusters", int, "Number of clusters.", "n_clusters", min=1),
         Option("words", int, "Number of words with a cluster and a vector.", "n_words", min=10),
         Option("dims", int, "Length of the vectors.", "n_dims", min=2), L2, MAX_ITER,
         Option("raw-sentences", int, "Maximum number of sentences of raw text.", "max_sentences", default="all",
                min=100)),
        plot="HTML file for a plot of the accuracy on unseen words by the number of labeled sentences.",
    ),
    "chain-induction": Command(
        "Parts of speech of UD English EWT induced from words alone by EM (paper 1).", "--data DATA --plot curve.html",
        (STATES, MAX_ITER, Option("restarts", int, "Number of random starts.", "n_restarts", min=1), FEWER),
    ),
    "active-learning": Command(
        "Labels that a CRF (paper 1) needs for an accuracy if it chooses the sentences, against random choice.",
        "--data DATA --target 92 --plot curves.html",
        (Option("target", float, "XPOS accuracy, in percent.", min=1, max=100),
         Option("by", list[str], "Choice: random, entropy, margin, expected-gain; 'diverse entropy' is greedy, "
                "'entropy per token' divides by length."),
         Option("first", int, "Random sentences at the start.", min=10),
         Option("growth", float, "Growth of the labeled set per round.", min=1.01),
         Option("seeds", int, "Number of runs of each choice, whose means are shown.", "n_seeds", min=1),
         L2, MAX_ITER, FEWER),
    ),
    "labeling": Command(
        "Clicks of a simulated annotator of names with a model in the loop (beside paper 1).",
        "--data DATA --target 65 --plot curves.html",
        (Option("target", list[float], "F1 of spans on the development part, in percent.", "targets", min=1, max=100),
         Option("seeds", int, "Number of runs of each row, whose means are shown.", "n_seeds", min=1),
         Option("max-sentences", int, "Most sentences to label.", min=10)),
        plot="HTML file for a plot of F1 by clicks.",
    ),
    "calibration": Command(
        "Calibration errors of taggers on real data before and after a temperature (beside paper 1).", "--data DATA",
        (MAX_ITER, Option("joint-iter", int, "Iterations of factorial CRFs.", "max_iter_joint", min=1), FEWER),
        plot=None,
    ),
    "fields": Command(
        "Fields of real records, their probabilities, and what a threshold accepts (beside paper 1).", "--data DATA",
        (Option("folds", int, "Number of folds.", "n_folds", min=3), FEWER), plot=None,
    ),
    "word-knowledge": Command(
        "What clusters of raw text add to taggers, and names with a learned lexicon (beside paper 1).", "--data DATA",
        (Option("clusters", int, "Number of clusters.", "n_clusters", min=1), MAX_ITER, FEWER,
         Option("raw-sentences", int, "Maximum number of sentences of raw text.", "max_sentences", default="all",
                min=100)),
        plot=None,
    ),
    "parser-confidence": Command(
        "Accuracy and calibration of second-order parsers, with predicted tags and clusters, too (beside paper 3).",
        "--data DATA --row 'EWT, gold tags'",
        (Option("row", list[str], "Parsers: EWT, gold tags; EWT, CRF; ...", "rows", default="all"),
         Option("clusters", int, "Number of clusters.", "n_clusters", min=1), FEWER,
         Option("raw-sentences", int, "Maximum number of sentences of raw text.", "max_sentences", default="all",
                min=100)),
        plot=None,
    ),
    "beams-decoding": Command(
        "States that each kind of beam needs for the exact Viterbi path (paper 2, section 4.1).",
        "--models 1 --sequences 20",
        (Option("models", int, "Number of random models.", "n_models", min=1),
         Option("sequences", int, "Number of sequences per model.", "n_sequences", min=1), STATES,
         Option("symbols", int, "Number of symbols, which the paper does not give.", "n_symbols", min=2)),
        plot=None,
    ),
    "beams-training": Command(
        "Learning curves of CRF training, exact and within beams (paper 2, figure 1).", "--plot curves.html",
        (STATES, Option("sequences", int, "Number of training sequences, and of test sequences.", "n_sequences", min=1),
         MAX_ITER, L2),
    ),
    "nettalk": Command(
        "Letters to phonemes by CRFs of order 1 and 2, exact and within beams (paper 2, figure 2).",
        "--data DATA --plot curves.html",
        (ORDER, Option("exact-second", bool, "Include order 2 without a beam, which is slow.", default="no"),
         Option("words", int, "Maximum number of words.", "n_words", default="all", min=50), MAX_ITER, L2),
    ),
    "factorial": Command(
        "Joint parts of speech and chunks of CoNLL-2000, against two CRFs (paper 3).",
        "--data DATA --size 200 --size 1000",
        (Option("size", list[int], "Number of training sentences; 0 is all.", "sizes", min=0),
         Option("engine", list[str], "Engine: bp, structured_mean_field or exact.", "engines"), L2),
        plot=None,
    ),
    "bp-parsing": Command(
        "UAS and LAS of parsers of order 1 and 2 on UD English EWT (paper 3).", "--data DATA", (ORDER, FIRST),
    ),
    "bp-accuracy": Command(
        "Errors of second-order belief propagation against enumeration on small random models (paper 3).",
        "--models 50",
        (Option("models", int, "Number of random models of each kind.", "n_models", min=1),
         Option("projective/nonprojective", bool, "Whether crossing arcs are forbidden.", default="projective")),
    ),
    "bp-marginals": Command(
        "Errors of belief propagation and its variants on a trained parser, against the exact posterior (paper 3).",
        "--sentences 200 --calibrated",
        (Option("sentences", int, "Number of test sentences.", "n_test", min=1),
         Option("sweeps", int, "Sweeps of each Markov chain, for sentences too long to enumerate.", "n_sweeps", min=20),
         Option("calibrated/not-calibrated", bool, "Whether temperatures are fitted first.", default="not calibrated")),
        plot=None,
    ),
    "bp-cost": Command(
        "Time of second-order belief propagation relative to first order, by sentence length (paper 3).", "",
        (Option("sentences", int, "Number of sentences per batch.", "n_sentences", min=1),),
    ),
    "kernel-hmm": Command(
        "Perplexity of HMM language models on Penn Treebank text, by states and rank (paper 4).",
        "--data DATA --size 16384/64 --max-minutes 120 --keep models --no-kneser-ney",
        (Option("size", list[str], "Number of states, or states/rank.", "sizes"),
         Option("max-iter", int, "Maximum number of epochs of each training.", min=1),
         Option("max-minutes", float, "Time limit of each training.", min=0), FIRST,
         Option("batch-tokens", int, "Tokens per update.", default="2048; 4096 from 4096 states on", min=1),
         Option("learning-rate", float, "Step size of AdamW.", default="0.003"),
         Option("state-dropout", float, "Fraction of states that a batch leaves out.",
                default="0.1; 0.5 from 4096 states on", min=0, max=0.99),
         Option("keep", str, "Folder for models and checkpoints, from which the same command resumes."),
         Option("kneser-ney/no-kneser-ney", bool, "Include the 5-gram baseline.", default="yes")),
    ),
    "large-hmm": Command(
        "Perplexity of HMM language models with many states in blocks, on Penn Treebank text (paper 4).",
        "--data DATA --states 16384 --keep models",
        (Option("states", list[int], "Number of states.", "sizes", min=1024),
         Option("max-iter", int, "Number of epochs of each training.", min=1), FIRST,
         Option("keep", str, "Folder for models and checkpoints, from which the same command resumes."),
         Option("kneser-ney/no-kneser-ney", bool, "Add the mean with 5-grams.", default="yes")),
    ),
    "kernel-features": Command(
        "Errors of approximations of the exponential kernel against the exact softmax (paper 4).",
        "--features 64 --features 256",
        (Option("features", list[int], "Number of features.", min=1),
         Option("states", int, "Number of points.", "n_states", min=2),
         Option("dims", int, "Number of dimensions.", "n_dims", min=1),
         Option("norm", float, "Length of the points; larger is harder.", min=0)),
    ),
    "low-rank-pcfg": Command(
        "Low-rank grammars: cost and perplexity by rank, and induced trees against gold trees (paper 4).",
        "--data DATA --part induction",
        (Option("part", list[str], "Part: cost, perplexity or induction.", "parts", known=True),
         Option("rank", list[int], "Rank of the rules.", "ranks", min=1),
         Option("seeds", int, "Number of random starts of each kind of induced grammar.", "n_seeds", min=1),
         Option("max-iter", int, "Number of EM iterations for perplexity.", min=1)),
    ),
}  # fmt: skip


def _argument(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def make(name: str) -> Callable[..., None]:
    """Return the function of an experiment's command: its own options and those that all commands have."""
    experiment, command = find(name), COMMANDS[name]
    shared = [
        _argument("data", NoData if experiment.folder is None else Data, None),
        _argument("quick", Quick, False),
        _argument("out", Out, None),
        _argument("record", RecordFile, None),
    ]
    if command.plot is not None:
        shared.append(_argument("plot", Annotated[str | None, typer.Option(help=command.plot)], None))
    if "seed" in experiment.full:
        shared.append(_argument("seed", Seed, 0))
    shared += [_argument("quiet", QuietOption, False), _argument("json", JsonOption, False)]

    def run(**values: Any) -> None:
        given = {}
        for option in command.options:
            value = values.pop(option.argument)
            option.check(experiment, value)
            given[option.setting] = (tuple(value) or None) if isinstance(value, list) else value
        if "seed" in values:
            given["seed"] = values.pop("seed")
        reproduce(name, given, **values)

    parameters = [option.parameter(experiment) for option in command.options] + shared
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = f"{command.text}\n\nExample: python -m experiments {name} {command.example}".rstrip()
    return report_errors(run)


def reproduce(
    name: str, given: Mapping[str, Any], *, data: str | None = None, quick: bool = False, out: str | None = None,
    record: str | None = None, plot: str | None = None, quiet: bool = False, json: bool = False,
) -> None:  # fmt: skip
    """Run one experiment with the settings that are not ``None``, print its table and store it."""
    experiment = find(name)
    if experiment.folder is not None and not data:
        needed = ", ".join(experiment.missing(None))
        raise typer.BadParameter(f"{name} needs {needed}: pass their folder with --data, or set TRELLISWORK_DATA.")
    if plot is not None:
        check_report(plot)
    check_record_file(record, quick)
    folder = open_record(out, [experiment], quick)
    started = time.perf_counter()
    table = experiment.run(data, quick=quick, given=given, say=say_to(quiet))
    seconds = time.perf_counter() - started
    if folder is not None:
        folder.add(experiment, table, experiment.settings(quick, given), quick, seconds)
    write_records(record, experiment, table, experiment.settings(quick, given), seconds)
    show(name, table, plot, json)


def open_record(out: str | None, experiments: list[Experiment], quick: bool) -> "Record | None":
    """Return the folder for results; raise an error now if it cannot be written."""
    if out is None:
        return None
    from experiments.record import Record

    record = Record(out)
    for experiment in experiments:
        record.check(experiment.name, quick)
    return record


def check_record_file(path: str | None, quick: bool) -> None:
    """Raise an error if figures with small settings would be recorded."""
    if path is not None and quick:
        raise typer.BadParameter("--record is for full figures: leave out --quick.")


def write_records(
    path: str | None, experiment: Experiment, table: "Table", settings: Mapping[str, Any], seconds: float
) -> None:
    """Write the figures to the file of records, if there is one."""
    if path is not None:
        from experiments.record import update_records

        update_records(path, experiment, table, settings, seconds)


def say_to(quiet: bool, before: str = "") -> "Say":
    """Return a function that prints progress to standard error, unless ``quiet``."""
    return (lambda _: None) if quiet else (lambda text: print(f"{before}{text}", file=sys.stderr, flush=True))


def show(name: str, table: "Table", plot: str | None, json: bool) -> None:
    """Print the table of an experiment, or its figures as one JSON object per line; draw its curves."""
    if plot is not None:
        from trelliswork.report import Page, line_chart

        lines = [(c.name, c.x, c.y) for c in table.curves]
        page = Page(table.title)
        page.section("Curves", line_chart(lines, x=table.axes[0], y=table.axes[1]))
        page.write(plot)
    if not json:
        print(table.to_text(), flush=True)
        return
    from experiments.record import json_lines

    for line in json_lines(name, table.figures):
        print(line, flush=True)
