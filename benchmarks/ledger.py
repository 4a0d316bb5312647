"""How much faster the fast kernels of a structure are than its plain tier, which fills ``benchmarks/ledger.md``.

    python -m benchmarks.ledger             measures every row and writes the factors to the page
    python -m benchmarks.ledger viterbi     measures the rows whose kernel has this in its name, and writes nothing

The plain tier works in log space and double precision, compiled or in NumPy, one sentence after the other; it is what
recomputes where the fast kernels underflow. A fast kernel whose factor stays below 1.5 is not worth its lines.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.contenders.graph import Problem, problem, wired
from benchmarks.contenders.lowrank import model, words
from experiments.bp_accuracy import candidates
from trelliswork.compute.threads import num_threads
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.inference.chain.beam.kernels.records import Choice
from trelliswork.inference.chain.beam.log_space import log_chain, log_space
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions
from trelliswork.inference.chain.plain import expectations as in_log_space
from trelliswork.inference.graph.engines import bp, schedules
from trelliswork.inference.lowrank import LowRank, log_evidence
from trelliswork.inference.lowrank import reference as lowrank_reference
from trelliswork.inference.span import grammar, lowrank
from trelliswork.inference.tree import eisner, matrix_tree, second_order, tree_potentials
from trelliswork.inference.tree.second_order.kernels.records import Options
from trelliswork.inference.tree.second_order.plain import infer as in_log_space_too
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


def trees(kind: Any, n: int = 20) -> Calls:
    """Return log Z and the marginals of arcs."""
    p = tree_potentials(np.random.default_rng(0).normal(size=(32, n + 1, n + 1)))
    log_z, marginals = np.empty(32), np.empty(p.log_arc.shape)
    return lambda: kind.expectations(p), lambda: kind.log_kernel(0, 32, p.batch, log_z, marginals)


def second_order_trees() -> Calls:
    """Return five iterations of belief propagation with siblings and grandparents."""
    (parts, *scores), B = candidates(20, 8, np.random.default_rng(0), n_heads=8, strength=0.5)[1:], 8
    given = second_order.Scores(*(np.ascontiguousarray(x, np.float64) for x in scores))
    options = Options(True, True, 5, 1, 0.0, 0.0)
    sizes = [(B,), *(x.shape for x in given), (B,), (B,), (B,), given.arcs.shape]
    empty: Any = map(np.empty, sizes)
    results = second_order.SecondOrderResult(*empty)

    def plain() -> None:
        for b in range(B):
            in_log_space_too(parts, given, options, b, results)

    return lambda: second_order.infer(parts, *scores, max_iter=5, tolerance=0.0), plain


def dense_grammar() -> Calls:
    """Return all expectations of a PCFG."""
    rng = np.random.default_rng(0)
    g = grammar.Grammar(
        rng.normal(size=20), rng.normal(size=(20, 60, 60)), rng.normal(size=(4, 15, 40)), None, np.full(4, 15)
    )
    return lambda: grammar.expectations(g), lambda: grammar.log_expectations(g)


def lowrank_grammar() -> Calls:
    """Return all expectations of a low-rank PCFG."""
    rng, (N, P, R) = np.random.default_rng(0), (30, 60, 32)
    factors: Any = [rng.normal(size=shape) for shape in ((N,), (N, R), (R, N + P), (R, N + P), (4, 15, P))]
    g = lowrank.LowRankGrammar(*factors, lengths=np.full(4, 15))
    return lambda: lowrank.expectations(g), lambda: lowrank.log_expectations(g)


def loopy(schedule: str) -> Calls:
    """Return 20 iterations of belief propagation on a grid of binary variables.

    The couplings for ``residual``, which runs until it converges, are so strong that sweeps do not.
    """
    given = problem({"task": "linear", "n": 2 * 30 * 29 if schedule == "residual" else 2 * 50 * 49, "seed": 0})
    most, tolerance = 20, 0.0
    if schedule == "residual":
        most, tolerance, rng = 500, 1e-6, np.random.default_rng(0)
        (edges, _), agree = given.pairs[0], 2 * np.eye(2) - 1
        couplings = rng.uniform(-1.3, 1.3, (len(edges), 1, 1)) * agree
        given = Problem([rng.uniform(-0.1, 0.1, given.unary[0].shape)], [(edges, couplings)])
    wiring = wired(given)
    options = schedules.check_options(schedule, 0.0, tolerance, most)

    def plain() -> Any:
        return schedules.pass_messages(bp.prepare(wiring), options, maximize=False)

    return lambda: bp.run(wiring, **options._asdict()), plain


def sparse_evidence() -> Calls:
    """Return log p of the sentences of a low-rank HMM language model."""
    sizes = {"B": 200, "T": 25, "S": 512, "R": 64, "W": 1000, "seed": 0}
    (start, left, right, emission), ids = model(sizes), words(sizes)
    logs, offsets = (
        [torch.from_numpy(x) for x in (np.log(start), left, right, np.log(emission))],
        np.arange(0, 5001, 25),
    )

    def plain() -> None:
        for sentence in ids:
            lowrank_reference.forward(start, left, right, emission[sentence])

    return lambda: log_evidence(logs[0], LowRank(logs[1], logs[2]), logs[3], ids.ravel(), offsets), plain


ROWS: dict[str, Callable[[], Calls]] = {
    "chain/kernels/forward_backward": lambda: expectations(chains(45)),
    "chain/kernels/lanes": e_step,
    "chain/kernels/positions": lambda: expectations(chains(20, own=True)),
    "chain/kernels/viterbi": lambda: viterbi(chains(45)),
    "chain/beam/kernels/dense": lambda: beams(chains(200, (8, 25)), Beam("size", size=10)),
    "chain/beam/kernels/sparse": lambda: beams(pairs(), Beam("size", size=10)),
    "tree/kernels/eisner": lambda: trees(eisner),
    "tree/kernels/matrix_tree": lambda: trees(matrix_tree),
    "tree/second_order/kernels": second_order_trees,
    "span/kernels/grammar": dense_grammar,
    "span/kernels/lowrank": lowrank_grammar,
    "graph/kernels/flooding": lambda: loopy("flooding"),
    "graph/kernels/sweeps": lambda: loopy("sequential"),
    "graph/kernels/residual": lambda: loopy("residual"),
    "lowrank/sweep": sparse_evidence,
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
