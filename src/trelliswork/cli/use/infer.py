"""``trelliswork infer``: questions to a factor graph in a UAI file."""

import json as json_module
from enum import StrEnum
from typing import Annotated, Any

import typer


class Engine(StrEnum):
    """What answers."""

    bp = "bp"
    exact = "exact"
    mean_field = "mean_field"
    structured_mean_field = "structured_mean_field"
    trw = "trw"
    gibbs = "gibbs"


def infer(
    file: Annotated[str, typer.Argument(help="Factor graph in a UAI file (MARKOV or BAYES); '-' is standard input.")],
    evidence: Annotated[
        str | None, typer.Option("--evidence", "-e", help="UAI evidence file: its first sample is taken as given.")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Exact, or an approximation; exact refuses what is too large.")] = (
        Engine.bp
    ),
    best: Annotated[bool, typer.Option("--best", help="The best assignment instead of marginals.")] = False,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Iterations at most.")] = None,
    damping: Annotated[float | None, typer.Option(min=0.0, max=0.99, help="Of bp and trw.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """A factor graph in a UAI file: log Z and the marginals of all variables, or the best assignment.

    The answer says what it is: exact, a lower or upper bound, or an estimate, and whether its engine converged.

    Example: trelliswork infer model.uai --evidence model.uai.evid --engine trw
    """
    from trelliswork.data.uai import read_uai, read_uai_evidence
    from trelliswork.distributions import FactorGraph

    if damping is not None and engine not in (Engine.bp, Engine.trw):
        raise typer.BadParameter(f"--damping is for bp and trw, not for {engine.value}.")
    if best and engine not in (Engine.bp, Engine.exact):
        raise typer.BadParameter(f"--best is answered by bp (max-product) or exact, not by {engine.value}.")
    if max_iter is not None and engine in (Engine.exact, Engine.gibbs):
        raise typer.BadParameter(f"--max-iter has no use for {engine.value}: leave it out.")
    given = read_uai(file)
    constant = sum(float(table) for scope, table in zip(given.scopes, given.log_tables, strict=True) if not len(scope))
    factors = [(s, table) for s, table in zip(given.scopes, given.log_tables, strict=True) if len(s)]
    options: dict[str, Any] = {k: v for k, v in (("max_iter", max_iter), ("damping", damping)) if v is not None}
    graph = FactorGraph(given.n_states, factors, engine=engine.value, **options)
    if evidence is not None:
        samples = read_uai_evidence(evidence, given.n_states)
        graph = graph.condition(states=samples[0] if samples else {})
    if best:
        found = graph.argmax()
        assignment, score = found.labels[0].tolist(), found.scores[0].item() + constant
        if json:
            print(json_module.dumps({"assignment": assignment, "score": score}))
        else:
            print(f"score {score:.6f}\n{' '.join(map(str, assignment))}")
        return
    result = graph.infer()
    log_z = None if engine == Engine.gibbs else float(result.log_z[0]) + constant
    probabilities = graph.marginals()[0].tolist()
    rows = [row[:n] for row, n in zip(probabilities, given.n_states.tolist(), strict=True)]
    figures = {
        "log_z": log_z,
        "kind": result.kind,
        "converged": bool(result.converged[0]),
        "iterations": int(result.n_iter[0]),
        "residual": float(result.residual[0]),
    }
    if json:
        print(json_module.dumps(figures | {"marginals": rows}))
        return
    print(
        ("log Z unknown" if log_z is None else f"log Z {log_z:.6f}")
        + f" ({figures['kind']}; {figures['iterations']} iterations, residual {figures['residual']:.2g}"
        + ("" if figures["converged"] else ", not converged")
        + ")"
    )
    for v, row in enumerate(rows):
        print(f"{v}\t" + " ".join(f"{p:.6f}" for p in row))
