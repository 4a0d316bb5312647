"""``trelliswork inspect``: what a saved model has learned."""

import json as json_module
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trelliswork.cli.train.hmm_lm import inspect_states
from trelliswork.cli.train.mrf_tagger import inspect_mrf_tagger
from trelliswork.cli.use.constituents import inspect_grammar, saved_kind
from trelliswork.cli.use.factorial import inspect_layers
from trelliswork.cli.use.language_model import inspect_mrf
from trelliswork.cli.use.parse import inspect_parser
from trelliswork.cli.use.tag import Model

if TYPE_CHECKING:
    from trelliswork.models import CRF, HMM, MRFLanguageModel, MRFTagger


def inspect(
    model: Model,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many weights, or words of a state, to show.")] = 20,
    label: Annotated[str | None, typer.Option(help="Only this label or state.")] = None,
    plot: Annotated[str | None, typer.Option(help="HMM: draw the transitions to this PNG file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a model has learned: a CRF's largest weights, an HMM's words and transitions; how training ended.

    Example: trelliswork inspect chunker --label B-NP
    """
    from trelliswork.models import CRF, HMM, DependencyParser, FactorialCRF, load

    found: Any = load(model)
    if found.kind == "hmm-lm":
        inspect_states(found, n, label, plot, json)
        return
    if saved_kind(model) == "pcfg":
        if plot is not None:
            raise typer.BadParameter("--plot draws the transitions of an HMM; this model is a grammar.")
        inspect_grammar(found, n, label, json)
        sys.stdout.flush()
        return
    if found.kind == "mrf-lm":
        if plot is not None or label is not None:
            raise typer.BadParameter("--plot and --label are for taggers; this model is a language model.")
        inspect_mrf(cast("MRFLanguageModel", found), n, json)
        return
    if found.kind in ("kneser-ney", "lbl"):
        raise typer.BadParameter("a left-to-right language model is asked by 'score', or predict_next in Python.")
    if found.kind == "mrf-tagger":
        if plot is not None:
            raise typer.BadParameter("--plot draws the transitions of an HMM; this model is an MRF tagger.")
        inspect_mrf_tagger(cast("MRFTagger", found), n, label, json)
    elif isinstance(found, DependencyParser):
        if plot is not None or label is not None:
            raise typer.BadParameter("--plot and --label are for taggers; this model is a parser.")
        inspect_parser(found, json)
    elif isinstance(found, FactorialCRF):
        if plot is not None:
            raise typer.BadParameter("--plot draws the transitions of an HMM; this model is a factorial CRF.")
        if label is not None:
            _check_label(label, [name for layer in found.layers_ for name in layer.labels])
        inspect_layers(found, n, label, json)
    elif isinstance(found, HMM):
        _check_label(label, list(found.labels_))
        _hmm(found, n, label, plot, json)
    else:
        assert isinstance(found, CRF)
        if plot is not None:
            raise typer.BadParameter("--plot draws the transitions of an HMM; this model is a CRF.")
        _check_label(label, list(found.labels_))
        _crf(found, n, label, json)
    sys.stdout.flush()


def _check_label(label: str | None, labels: list[str]) -> None:
    if label is not None and label not in labels:
        raise typer.BadParameter(f"the model has no label {label!r}; it has {', '.join(labels)}.")


def _crf(tagger: "CRF", n: int, label: str | None, json: bool) -> None:
    shown: dict[str, Any] = {
        "kind": tagger.kind,
        "labels": list(tagger.labels_),
        "scheme": tagger.scheme_,
        "features": len(tagger.weights_),
        "active": int((tagger.weights_ != 0).sum()),
        "objective": tagger.report_.value,
        "converged": tagger.report_.converged,
        "reason": tagger.report_.reason,
        "top_features": tagger.top_features(n, label),
        "top_transitions": tagger.top_transitions(n),
        "top_edge_features": tagger.top_edge_features(n),
    }
    if json:
        print(json_module.dumps(shown, ensure_ascii=False))
        return
    print(f"CRF, {len(shown['labels'])} labels, {shown['active']:,} of {shown['features']:,} features active")
    print(f"objective {shown['objective']:.4f} ({shown['reason']}); scheme {shown['scheme']}")
    print("labels: " + " ".join(shown["labels"]))
    print("\nweight   label       attribute")
    for attribute, name, weight in shown["top_features"]:
        print(f"{weight:7.3f}  {name:10}  {attribute}")
    print("\nweight   transition")
    for before, after, weight in shown["top_transitions"]:
        print(f"{weight:7.3f}  {before} -> {after}")
    if shown["top_edge_features"]:
        print("\nweight   transition  attribute")
    for attribute, before, after, weight in shown["top_edge_features"]:
        print(f"{weight:7.3f}  {before} -> {after}  {attribute}")


def _hmm(hmm: "HMM", n: int, label: str | None, plot: str | None, json: bool) -> None:
    states = [label] if label is not None else list(hmm.labels_)
    transitions = hmm.transitions()
    numbers = {name: i for i, name in enumerate(hmm.labels_)}
    if plot is not None:
        from trelliswork.report.pictures import heat_map

        heat_map(transitions, list(hmm.labels_), plot, title="p(next state | state)")
    shown: dict[str, Any] = {
        "kind": hmm.kind,
        "order": hmm.order,
        "induced": hmm.induced_,
        "words": len(hmm.known_words()),
        "converged": hmm.report_.converged,
        "reason": hmm.report_.reason,
        "states": {name: hmm.top_words(name, n) for name in states},
        "next": {
            name: [[list(hmm.labels_)[j], float(row[j])] for j in (-row).argsort(kind="stable")[:5]]
            for name in states
            for row in [transitions[numbers[name]]]
        },
    }
    if json:
        print(json_module.dumps(shown, ensure_ascii=False))
        return
    how = "induced" if shown["induced"] else "labelled"
    print(f"HMM of order {hmm.order}, {len(hmm.labels_)} {how} states, {shown['words']:,} words ({shown['reason']})")
    for name in states:
        words = "  ".join(f"{word} {p:.3f}" for word, p in shown["states"][name])
        after = "  ".join(f"{state} {p:.2f}" for state, p in shown["next"][name])
        print(f"\n{name}\n  words: {words}\n  next:  {after}")
    if plot is not None:
        print(f"\ntransitions drawn in {plot}")
