"""``make fuzz N=10000``: random problems against enumeration, and mutated inputs against readers and models."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.inference import differential
from tests.inference.structures import STRUCTURES
from tests.robustness import fuzz

EVERY = 10.0  # seconds between lines of progress
ROUND = 2000  # inputs per child
SHOWN = 5  # failures of a structure or a format
MODEL_SHARE = 20  # one input in so many is a model, which takes longer to load than a text


def main() -> int:
    """Run what the arguments say; return 1 if anything failed."""
    names = ["differential", "fuzz", *STRUCTURES, *fuzz.FORMATS, *fuzz.MODELS]
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("n", type=int, nargs="?", default=10_000, help="number of problems, and of mutated inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--keep", type=Path, default=Path(".cache/fuzz"), help="folder for inputs that fail")
    options = parser.parse_args()
    failures = []
    only = options.only
    if only in (None, "differential", *STRUCTURES):
        chosen = {name: STRUCTURES[name] for name in STRUCTURES if only in (None, "differential", name)}
        failures += attack_structures(chosen, options.n, options.seed)
    if only in (None, "fuzz", *fuzz.FORMATS, *fuzz.MODELS):
        failures += attack_formats(only if only != "fuzz" else None, options.n, options.seed, options.keep)
    shown = Counter[str]()
    for failure in failures:
        shown[failure.split()[0]] += 1
        if shown[failure.split()[0]] <= SHOWN:
            print(f"FAILED {failure[:2000]}")
    print(f"{len(failures)} failures" if failures else "no failures")
    return 1 if failures else 0


def ticking() -> Callable[[str], None]:
    """Return a function that prints a line now and then."""
    shown = time.monotonic()

    def show(line: str) -> None:
        nonlocal shown
        if time.monotonic() - shown > EVERY:
            shown = time.monotonic()
            print(line, flush=True)

    return show


def attack_structures(chosen: dict, n: int, seed: int) -> list[str]:
    """Compare structures with enumeration and print a table; return the failures."""
    print(f"{n:,} random problems of {len(chosen)} structures, seed {seed}", flush=True)
    show = ticking()

    def progress(k: int, tallies: list[differential.Tally]) -> None:
        show(f"  {k:,} of {n:,} problems, {sum(len(t.failures) for t in tallies)} failures")

    tallies = differential.run(chosen, n, seed, progress)
    print(differential.table(tallies), flush=True)
    return [failure for t in tallies for failure in t.failures]


def attack_formats(only: str | None, n: int, seed: int, keep: Path) -> list[str]:
    """Read mutated inputs and print a table; return the failures."""
    formats = [name for name in fuzz.FORMATS if only in (None, name)]
    models = [name for name in fuzz.MODELS if only in (None, name)]
    shares = dict.fromkeys(formats, (n - n // MODEL_SHARE if models else n) // max(1, len(formats)))
    shares |= dict.fromkeys(models, (n // MODEL_SHARE if formats else n) // max(1, len(models)))
    print(f"{sum(shares.values()):,} mutated inputs of {len(shares)} formats, seed {seed}", flush=True)
    show, rows, failures = ticking(), [], []
    for name, share in shares.items():
        total = fuzz.Outcome(name)
        for k, start in enumerate(range(0, share, ROUND)):
            outcome = fuzz.run(name, min(ROUND, share - start), seed * 1_000_003 + k, keep)
            total.n_results += outcome.n_results
            total.n_errors += outcome.n_errors
            total.seconds += outcome.seconds
            total.failures += outcome.failures
            show(f"  {name}: {start + ROUND:,} of {share:,} inputs, {len(total.failures)} failures")
        rows.append(total)
        failures += [f"{name}: {failure}" for failure in total.failures]
    print(table(rows), flush=True)
    return failures


def table(rows: list[fuzz.Outcome]) -> str:
    """Return executions by format."""
    lines = [f"{'format':18}{'inputs':>12}{'results':>12}{'our errors':>12}{'failures':>10}{'seconds':>9}"]
    rows = [*rows, fuzz.Outcome("all")]
    for row in rows[:-1]:
        rows[-1].n_results += row.n_results
        rows[-1].n_errors += row.n_errors
        rows[-1].seconds += row.seconds
        rows[-1].failures += row.failures
    for row in rows:
        counts = (row.n_results + row.n_errors + len(row.failures), row.n_results, row.n_errors)
        cells = "".join(f"{count:>12,}" for count in counts)
        lines.append(f"{row.name:18}{cells}{len(row.failures):>10}{row.seconds:>9.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
