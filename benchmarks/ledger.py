"""How much faster the fast kernels of chains are than the plain ones, which fills ``benchmarks/ledger.md``.

    python -m benchmarks.ledger             measures every row and writes the factors to the page
    python -m benchmarks.ledger viterbi     measures the rows whose kernel has this in its name, and writes nothing

The plain kernels work in log space and double precision, one number after the other. A fast kernel whose factor stays
below 1.5 is not worth its lines.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trelliswork.compute.threads import num_threads
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.inference.chain.beam.kernels.records import Choice
from trelliswork.inference.chain.beam.log_space import log_chain, log_space
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions
from trelliswork.inference.chain.plain import expectations as in_log_space
from trelliswork.models.hmm.objective import Sequences, expected_counts
from trelliswork.models.hmm.updates import random_parameters

PAGE = Path(__file__).with_name("ledger.md")
REPEATS = 5
Calls = tuple[Callable[[], Any], Callable[[], Any]]  # fast and plain


def chains(n_labels: int, shape: tuple[int, int] = (64, 40), *, own: bool = False) -> chain.Potentials:
    """Return random chains in single precision; with ``own`` transitions at each position."""
    rng = np.random.default_rng(0)
    steps = (*((shape[0], shape[1] - 1) if own else ()), n_labels, n_labels)
    unary = rng.normal(size=(*shape, n_labels)).astype(np.float32)
    return chain.chain_potentials(unary, rng.normal(size=steps).astype(np.float32))


def expectations(p: chain.Potentials) -> Calls:
    """Return log Z, marginals and expected transitions."""
    double = p.take(np.arange(len(p.lengths)))
    return lambda: chain.expectations(p, counts=True), lambda: in_log_space(double)


def viterbi(p: chain.Potentials) -> Calls:
    """Return the best labelings."""
    return lambda: chain.viterbi(p), lambda: chain.topk(p, 1)


def e_step() -> Calls:
    """Return the E-step of an HMM."""
    rng, lengths = np.random.default_rng(0), np.full(1000, 20)
    symbols = rng.integers(0, 500, lengths.sum()).astype(np.int32)
    sequences = Sequences(np.concatenate([[0], np.cumsum(lengths)]), symbols)
    parameters = random_parameters(8, 500, seed=0)
    unary = parameters.log_emission.T[symbols].reshape(1000, 20, 8)
    p = chain.chain_potentials(unary, parameters.log_transition)
    return lambda: expected_counts(parameters, sequences), lambda: in_log_space(p)


def beams(p: Any, beam: Beam) -> Calls:
    """Return marginals within beams."""
    choice = Choice(np.empty(0, np.int32), beam.rule, False)

    def plain() -> None:
        for b in range(len(p.lengths)):
            log_space(log_chain(p, b), choice, np.empty(0))

    return lambda: beam_passes.expectations(p, beam), plain


def pairs() -> Any:
    """Return random chains of the second order."""
    rng, transitions = np.random.default_rng(0), SparseTransitions.ngrams(12, 2)
    unary, weights = (rng.normal(size=n).astype(np.float32) for n in ((16, 25, 12), len(transitions.targets)))
    start, end = np.where(transitions.first, np.float32(0), np.float32(-np.inf)), np.zeros(156, np.float32)
    return SparseChain(unary, transitions, weights, start, end, np.full(16, 25))


ROWS: dict[str, Callable[[], Calls]] = {
    "chain/kernels/forward_backward": lambda: expectations(chains(45)),
    "chain/kernels/lanes": e_step,
    "chain/kernels/positions": lambda: expectations(chains(20, own=True)),
    "chain/kernels/viterbi": lambda: viterbi(chains(45)),
    "chain/beam/kernels/dense": lambda: beams(chains(200, (8, 25)), Beam("size", size=10)),
    "chain/beam/kernels/sparse": lambda: beams(pairs(), Beam("size", size=10)),
}


def seconds(call: Callable[[], Any]) -> float:
    """Return the shortest time of some calls, the first of which compiles."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main(wanted: str = "") -> None:
    """Measure on one thread; write the page if all rows were measured."""
    text = PAGE.read_text()
    for name, make in ROWS.items():
        if wanted in name:
            with num_threads(1):
                fast, plain = map(seconds, make())
            print(f"{name}: {plain / fast:.1f} times as fast as plain ({1e3 * fast:.2f} ms)", flush=True)
            lines = [line.split("|") for line in text.splitlines()]
            for cells in lines:
                if len(cells) > 3 and cells[1].strip() == f"`{name}`":
                    cells[-2] = f" {plain / fast:.1f} "
            text = "\n".join("|".join(cells) for cells in lines) + "\n"
    if not wanted:
        PAGE.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:2])
