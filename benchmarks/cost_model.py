"""Predict the time of large runs from measured costs: ``python benchmarks/cost_model.py [--check ROWS.jsonl]``.

A run of n tokens on N ranks of one core each, with I iterations, takes

    t = c n / N + I (a n / N + 2 (N - 1) / N * B / bandwidth + 2 m (N - 1) * latency)

c is the cost per token of reading, a that of an iteration, B the bytes that are added up, m the number of messages; a
ring of N ranks sends each byte about twice, in 2 (N - 1) steps. Costs are of one core of the machine in
docs/benchmarks.md. Those with an example are measured by ``trelliswork bench scale`` (1x1), the others by the commands
beside them.

With --check the model is compared with the rows of ``trelliswork bench scale --json``: it predicts two and four
processes on two cores, and two processes with a slow network, from one.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

NETWORK = 50e-6, 10e9 / 8  # seconds of one step between two machines, bytes per second: 10 Gbit/s
LOOPBACK = 20e-6, 2.5e9  # between processes of one machine
SLOW = 1e-3, 1e9 / 8  # of the case "slow network"
CORES = 2  # of the machine that was measured


@dataclass(frozen=True)
class Cost:
    """Costs of one family."""

    name: str
    example: str  # case of bench scale; empty if there is none
    tokens: float  # of the example
    iterations: int  # of the example
    reading: float  # seconds per token
    per_token: float  # seconds per token and iteration
    n_bytes: float  # added up or exchanged per iteration of the example
    large_bytes: float  # the same for large text, with the words or weights in the name
    bytes_per_token: float = 0.0  # of large text, in addition
    messages: int = 6  # per iteration
    large_iterations: int = 0  # for large text, if not as in the example

    def seconds(
        self, tokens: float, ranks: int, network: tuple[float, float], *, cores: int = 0, large: bool = True
    ) -> float:
        """Return the predicted time; fewer ``cores`` than ranks are shared. The network: latency and bandwidth."""
        latency, bandwidth = network
        n_bytes = self.large_bytes + self.bytes_per_token * tokens if large else self.n_bytes
        sent = 2 * (ranks - 1) / ranks * n_bytes / bandwidth + 2 * self.messages * (ranks - 1) * latency
        own = tokens / min(ranks, cores or ranks)
        iterations = self.large_iterations if large and self.large_iterations else self.iterations
        return self.reading * own + iterations * (self.per_token * own + sent)


COSTS = (
    Cost("CRF, 22 labels, 50 million weights, 100 iterations", "crf conll2000 x10", 2.117e6, 20, 2.5e-6, 0.51e-6, 1.8e6,
         200e6, messages=8, large_iterations=100),
    Cost("HMM, 512 states, 60,000 words, 100 iterations", "hmm 512 states", 443_338, 3, 0.0, 16.4e-6, 37.7e6, 248e6,
         large_iterations=100),
    Cost("counting pairs at distances 1 and 2", "moments", 17.64e6, 1, 0.0, 0.20e-6, 4.1e7, 0.0, 7.0, messages=20),
    Cost("Kneser-Ney, order 5", "", 1e8, 1, 0.0, 0.63e-6, 0.0, 0.0, 140.0, messages=40),
    Cost("tagging, 22 labels", "tag files", 1.516e6, 1, 0.0, 2.3e-6, 0.0, 0.0, messages=2),
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
            cells = [duration(cost.seconds(tokens, n, NETWORK)) for n in ranks]
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
        cost = next((cost for cost in COSTS if cost.example == row["case"]), None)
        ranks = {"1x1": 1, "4x1": 4, "slow network": 2}.get(row["peer"])
        if cost is None or ranks is None:
            continue
        network = SLOW if row["peer"] == "slow network" else LOOPBACK
        for n, name, measured in ((2, "2x1", row["seconds"]), (ranks, row["peer"], row["peer_seconds"])):
            if name != "2x1" or row["peer"] == "1x1":
                given = LOOPBACK if name == "2x1" else network
                predicted = cost.seconds(cost.tokens, n, given, cores=CORES, large=False)
                print(f"{cost.example}, {name}: predicted {predicted:.2f} s, measured {measured:.2f} s")


if __name__ == "__main__":
    main()
