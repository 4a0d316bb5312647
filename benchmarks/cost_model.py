"""Predict the time of large runs from measured costs: ``python benchmarks/cost_model.py [--check ROWS.jsonl]``.

A run of n tokens on N ranks of one core each takes, for each of its I iterations,

    t = a n / N + b W + 2 (N - 1) / N * B / bandwidth + m (N - 1) * latency

a is the cost per token, b W that of work on each weight that every rank repeats, B the bytes that are added up, m the
number of messages; a ring of N ranks sends each byte about twice, in 2 (N - 1) steps. Costs are of one core of the
machine in docs/benchmarks.md, measured by ``trelliswork bench scale`` (1x1) and by the commands beside them.

With --check the model is compared with the rows of ``trelliswork bench scale --json``: it predicts 2x1, 4x1 (on two
cores) and the slow network from 1x1.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

LATENCY = 50e-6  # seconds of one step between two machines
BANDWIDTH = 10e9 / 8  # bytes per second
LOOPBACK = 20e-6, 2.5e9  # latency and bandwidth between processes of one machine
CORES = 2  # of the machine that was measured


@dataclass(frozen=True)
class Cost:
    """Costs of one family on its example."""

    name: str
    example: str
    tokens: float  # of the measured example
    iterations: int
    per_token: float  # seconds per token and iteration
    per_iteration: float  # seconds that every rank repeats
    n_bytes: float  # added up or exchanged per iteration
    messages: int = 6

    def seconds(
        self, tokens: float, ranks: int, latency: float = LATENCY, bandwidth: float = BANDWIDTH, cores: int = 0
    ) -> float:
        """Return the predicted time; ``cores`` fewer than ranks are shared."""
        share = 1 / min(ranks, cores or ranks)
        network = 2 * (ranks - 1) / ranks * self.n_bytes / bandwidth + self.messages * 2 * (ranks - 1) * latency
        repeated = self.per_iteration * (ranks / cores if cores and ranks > cores else 1)
        return self.iterations * (self.per_token * tokens * share + repeated + network)


COSTS: tuple[Cost, ...] = ()


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
            cells = [duration(cost.seconds(tokens, n)) for n in ranks]
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
        if cost is None or not row.get("peer_seconds"):
            continue
        processes, threads = map(int, row["peer"].split("x"))
        if threads == 1:
            for n, measured in ((2, row["seconds"]), (processes, row["peer_seconds"])):
                latency, bandwidth = LOOPBACK
                predicted = cost.seconds(cost.tokens, n, latency, bandwidth, cores=CORES)
                print(f"{cost.example}, {n} processes: predicted {predicted:.2f} s, measured {measured:.2f} s")


if __name__ == "__main__":
    main()
