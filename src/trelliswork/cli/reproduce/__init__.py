"""``trelliswork reproduce``: the papers' experiments, our figures beside theirs."""

import typer

from trelliswork.cli.reproduce.all import reproduce_all
from trelliswork.cli.reproduce.beams import beams_decoding, beams_training, nettalk
from trelliswork.cli.reproduce.chains import chain_induction, chain_tagging
from trelliswork.cli.reproduce.kernel_hmm import kernel_features, kernel_hmm
from trelliswork.cli.reproduce.mrf import mrf_exact, mrf_ptb
from trelliswork.cli.reproduce.parsing import bp_accuracy, bp_cost, bp_parsing, factorial
from trelliswork.cli.reproduce.pcfg import low_rank_pcfg
from trelliswork.cli.reproduce.tagging import mrf_neighbors, mrf_tagging

app = typer.Typer(
    no_args_is_help=True,
    help="Run an experiment of the papers again, or all of them, and print our figures beside theirs.",
    epilog="Example, and the way to begin: trelliswork reproduce all --quick",
)
app.command("all")(reproduce_all)
app.command("mrf-exact")(mrf_exact)
app.command("mrf-ptb")(mrf_ptb)
app.command("mrf-neighbors")(mrf_neighbors)
app.command("mrf-tagging")(mrf_tagging)
app.command("chain-tagging")(chain_tagging)
app.command("chain-induction")(chain_induction)
app.command("beams-decoding")(beams_decoding)
app.command("beams-training")(beams_training)
app.command("nettalk")(nettalk)
app.command("factorial")(factorial)
app.command("bp-parsing")(bp_parsing)
app.command("bp-accuracy")(bp_accuracy)
app.command("bp-cost")(bp_cost)
app.command("kernel-hmm")(kernel_hmm)
app.command("kernel-features")(kernel_features)
app.command("low-rank-pcfg")(low_rank_pcfg)
