"""``trelliswork infer``: inference on a factor graph in a UAI file."""

import json as json_module
from typing import Annotated, Any, Literal

import typer

Engine = Literal["bp", "exact", "mean_field", "structured_mean_field", "trw", "gibbs"]


def infer(
    file: Annotated[str, typer.Argument(help="Factor graph in a UAI file (MARKOV or BAYES); '-' is standard input.")],
    evidence: Annotated[
        str | None, typer.Option("--evidence", "-e", help="UAI evidence file; its first sample is used.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Inference engine; exact raises an error for graphs that are too large.")
    ] = "bp",
    best: Annotated[bool, typer.Option("--best", help="Print the best assignment instead of marginals.")] = False,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Maximum number of iterations.")] = None,
    damping: Annotated[
        float | None, typer.Option(min=0.0, max=0.99, help="Damping of messages, for bp and trw.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Print log Z and the marginals of a factor graph in a UAI file, or its best assignment.

    The output states whether log Z is exact, a lower or upper bound, or an estimate, and whether the engine converged.

    Example: trelliswork infer model.uai --evidence model.uai.evid --engine trw
    """
    from trelliswork.data.uai import read_uai, read_uai_evidence
    from trelliswork.distributions import FactorGraph

    if damping is not None and engine not in ("bp", "trw"):
        raise typer.BadParameter(f"--damping is for bp and trw, not for {engine}.")
    if best and engine not in ("bp", "exact"):
        raise typer.BadParameter(f"--best needs --engine bp (max-product) or exact, not {engine}.")
    if max_iter is not None and engine in ("exact", "gibbs"):
        raise typer.BadParameter(f"--max-iter does not apply to {engine}: leave it out.")
    model = read_uai(file)
    constant = sum(float(table) for scope, table in zip(model.scopes, model.log_tables, strict=True) if not len(scope))
    factors = [(s, table) for s, table in zip(model.scopes, model.log_tables, strict=True) if len(s)]
    options: dict[str, Any] = {k: v for k, v in (("max_iter", max_iter), ("damping", damping)) if v is not None}
    graph = FactorGraph(model.n_states, factors, engine=engine, **options)
    if evidence is not None:
        samples = read_uai_evidence(evidence, model.n_states)
        graph = graph.condition(known=samples[0] if samples else {})
    if best:
        best_states = graph.mode
        assignment, score = best_states[0].tolist(), graph.score(best_states)[0].item() + constant
        if json:
            print(json_module.dumps({"assignment": assignment, "score": score}))
        else:
            print(f"score {score:.6f}\n{' '.join(map(str, assignment))}")
        return
    inferred = graph.infer()
    log_z = None if engine == "gibbs" else float(inferred.log_z[0]) + constant
    probabilities = graph.marginals()[0].tolist()
    rows = [row[:n] for row, n in zip(probabilities, model.n_states.tolist(), strict=True)]
    figures = {
        "log_z": log_z,
        "kind": inferred.kind,
        "converged": bool(inferred.converged[0]),
        "iterations": int(inferred.n_iter[0]),
        "residual": float(inferred.residual[0]),
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
