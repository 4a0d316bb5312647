"""Predict the time of large runs from measured costs: ``python benchmarks/cost_model.py [--check ROWS.jsonl]``.

A run on N ranks of one core each takes

    t = r n / N + a u / N + M (s + 2 (N - 1) / N * B / bandwidth + 2 m (N - 1) * latency)

r is the cost of reading one of n tokens, a that of one of u units of work (a token in a pass over the text, a cell of a
table). M times every rank takes a step, which costs s, and the ranks add up or exchange B bytes, in m messages; a ring
of N ranks sends each byte about twice, in 2 (N - 1) steps. Costs are of one core of the machine in
docs/benchmarks.md, measured by ``python -m benchmarks scale`` (1x1), or by the commands beside them; bytes are those
that ``train --json`` and ``data count --json`` report under torchrun with two ranks.

With --check the model is compared with the rows of ``python -m benchmarks scale --json``: it predicts two and four
processes on two cores, and two processes with a slow network, from one.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NETWORK = 50e-6, 10e9 / 8  # seconds of one step between two machines, bytes per second: 10 Gbit/s
LOOPBACK = 20e-6, 2.5e9  # between processes of one machine
SLOW = 1e-3, 1e9 / 8  # of the case "slow network"
CORES = 2  # of the machine that was measured


@dataclass(frozen=True)
class Run:
    """What a run does."""

    tokens: float  # that are read
    work: float  # units of work, shared by the ranks
    rounds: float  # in which the ranks add up or exchange
    n_bytes: float  # in each round


@dataclass(frozen=True)
class Cost:
    """Costs of one family."""

    name: str
    case: str  # of bench scale; empty if there is none
    example: Run  # what that case does
    reading: float  # seconds per token
    unit: float  # seconds per unit of work
    large: Callable[[float], Run]  # what a run on so many tokens does
    step: float = 0.0  # seconds per round, on every rank
    sharing: float = 0.0  # more of them if there are several ranks
    messages: int = 6  # per round

    def seconds(self, run: Run, ranks: int, network: tuple[float, float], cores: int = 0) -> float:
        """Return the predicted time; fewer ``cores`` than ranks are shared. The network: latency and bandwidth."""
        latency, bandwidth = network
        sent = 2 * (ranks - 1) / ranks * run.n_bytes / bandwidth + 2 * self.messages * (ranks - 1) * latency
        busy, shares = max(1, ranks / (cores or ranks)), min(ranks, cores or ranks)
        step = busy * (self.step + self.sharing * (ranks > 1))
        return (self.reading * run.tokens + self.unit * run.work) / shares + run.rounds * (step + sent)


def passes(n: int, n_bytes: float, n_evaluations: float = 1.0) -> Callable[[float], Run]:
    """Return runs of n passes over the text, each with a sum of bytes, and a number of evaluations of the text."""
    return lambda tokens: Run(tokens, n * n_evaluations * tokens, n, n_bytes)


def batches(n: int, tokens_per_batch: float, n_bytes: float) -> Callable[[float], Run]:
    """Return runs of n passes, with a sum of bytes after each batch."""
    return lambda tokens: Run(tokens, n * tokens, n * tokens / tokens_per_batch, n_bytes)


def counts(n_bytes: float, power: float) -> Callable[[float], Run]:
    """Return runs whose results, n_bytes for the texts of ``TEXT`` tokens, grow with a power of the tokens.

    The powers are those of the last doubling of WikiText-2, PTB and raw text: 3.41 and 5.63 million different pairs of
    50,000 words in 5.55 and 11.4 million tokens, 16.0 and 30.8 million n-grams. They fall with more text.
    """
    return lambda tokens: Run(tokens, tokens, 1, n_bytes * (tokens / TEXT) ** power)


TEXT = 11_365_909  # tokens
PAIRS = counts(104.5e6, 0.70)


def cells(vocabulary: float, n: int, rank: int) -> Callable[[float], Run]:
    """Return runs of n evaluations of the lifted MRF with two distances, whose cost the text does not change."""
    return lambda tokens: Run(tokens, n * 2 * vocabulary**2, n, 4 * 3 * rank * vocabulary)


COSTS = (
    Cost("CRF, 22 labels, 50 million weights, 100 iterations", "crf conll2000 x10",
         Run(2.117e6, 20 * 2.117e6, 20, 1.8e6), 2.5e-6, 0.51e-6, passes(100, 200e6), messages=8),
    # 3,000 sentences of CoNLL-2000, one thread: 13 iterations against 3
    Cost("FactorialCRF, 44 tags and 22 chunk labels, 10 million weights, 100 iterations", "", Run(0, 0, 0, 0),
         7e-6, 5.7e-6, passes(100, 40e6), messages=8),
    Cost("HMM, 512 states, 60,000 words, 100 iterations", "hmm 512 states",
         Run(443_338, 3 * 443_338, 3, 37.7e6), 0.0, 16.4e-6, passes(100, 248e6)),
    Cost("counting pairs at distances 1 and 2", "moments",
         Run(17.64e6, 17.64e6, 1, 4.1e7), 0.0, 0.20e-6, PAIRS, messages=20),
    Cost("Kneser-Ney, order 5", "", PAIRS(1e8), 0.0, 0.63e-6, counts(394.5e6, 0.93), messages=40),
    Cost("lifted MRF, 50,000 words, rank 30, 200 evaluations, counting included", "mrf C=10000",
         Run(0, 4 * 2e8, 4, 3.6e6), 0.20e-6, 4.3e-9, cells(50_000, 200, 30)),
    Cost("HMM language model, 256 states, 5 passes, batches of 100,000 tokens", "hmm-lm 256 states",
         Run(177_486, 177_486, 22, 1.6e6), 0.0, 2.65e-6, batches(5, 1e5, 1.6e6), step=51e-3),
    Cost("log-bilinear, rank 30, 5 passes, batches of 100,000 tokens", "lbl rank 30",
         Run(446_323, 446_323, 56, 2.4e6), 0.0, 7.8e-6, batches(5, 1e5, 2.4e6), step=60e-3),
    Cost("PCFG, 10 + 20 symbols, sentences of up to 20 words, 50 iterations", "pcfg 10+20",
         Run(53_835, 4 * 53_835, 4, 1.3e6), 0.0, 16.5e-6, passes(50, 1.3e6)),
    Cost("dependency parser, order 1, 7 passes, batches of 4,096 sentences", "parser order 1",
         Run(91_794, 2 * 91_794, 94, 4e6), 0.0, 46e-6, batches(7, 4096 * 15.3, 60e6), sharing=89e-3),
    Cost("tagging, 22 labels", "tag files", Run(1.516e6, 1.516e6, 1, 0), 0.0, 2.3e-6, passes(1, 0), messages=2),
)  # fmt: skip


def duration(seconds: float) -> str:
    """Return a time for people."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def table() -> str:
    """Return the predictions as a Markdown table."""
    ranks = 8, 64, 512
    head = ["family", "tokens", *(f"{n} ranks" for n in ranks)]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---|" * len(ranks)]
    for cost in COSTS:
        for tokens in (1e9, 1e11):
            cells = [duration(cost.seconds(cost.large(tokens), n, NETWORK)) for n in ranks]
            lines.append("| " + " | ".join([cost.name, f"10^{round(len(f'{tokens:.0f}') - 1)}", *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or the comparison with measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="ROWS", help="rows of bench scale --json")
    rows = parser.parse_args().check
    if rows is None:
        print(table())
        return
    for line in Path(rows).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        cost = next((cost for cost in COSTS if cost.case == row["case"]), None)
        ranks = {"1x1": 1, "4x1": 4, "slow network": 2}.get(row["peer"])
        if cost is None or ranks is None or row["seconds"] is None or row["peer_seconds"] is None:
            continue
        network = SLOW if row["peer"] == "slow network" else LOOPBACK
        for n, name, measured in ((2, "2x1", row["seconds"]), (ranks, row["peer"], row["peer_seconds"])):
            if name != "2x1" or row["peer"] == "1x1":
                predicted = cost.seconds(cost.example, n, LOOPBACK if name == "2x1" else network, CORES)
                print(f"{cost.case}, {name}: predicted {predicted:.2f} s, measured {measured:.2f} s")


if __name__ == "__main__":
    main()
