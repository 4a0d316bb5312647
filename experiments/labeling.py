"""A simulated annotator who labels names: clicks until a model is good, with and without the help of the model."""

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.tables import Curve, Say, Table
from trelliswork import read_columns
from trelliswork.data.schemes import labels_from_spans, spans
from trelliswork.label.loop import Loop
from trelliswork.label.pool import Labels, Pool, spans_of
from trelliswork.label.session import Phrases, Session
from trelliswork.metrics import evaluate_tagging

HELPS = ("evidence", "selection", "phrases")  # what the page adds to a model that is shown once for each sentence
WAYS = ((), *((name,) for name in HELPS), HELPS)
GROWTH = 0.1  # more answers between trainings, at least five; the page trains twice as often


class _NoPhrases(Phrases):
    """Phrases that are never labeled as before."""

    def labels(self, words: Sequence[str]) -> Labels:
        """Return no label."""
        return [None] * len(words)


def annotate(session: Session, n: int, gold: list[str], evidence: bool) -> int:
    """Return the clicks that bring a sentence to its gold labels: one for each span to mark or clear, one to accept.

    Mistakes are corrected from left to right. With ``evidence`` the rest is decoded again after each click.
    """
    fixed: Labels = list(session.sentence(n)["labels"])
    shown: list[str] = session.answer(n, fixed)["labels"]
    right = {(span.start, span.stop): span for span in spans(gold)}
    clicks = 1
    while shown != gold:
        clicks += 1
        wrong = next(t for t, label in enumerate(shown) if label != gold[t])
        start, stop = next((place for place in right if place[0] <= wrong < place[1]), (wrong, wrong + 1))
        if gold[wrong] == "O":  # the span that is shown goes
            start, stop = next((s.start, s.stop) for s in spans_of(shown) if s.start <= wrong < s.stop)
            kinds = [gold[t] if gold[t] == "O" else "" for t in range(start, stop)]
        else:
            kinds = gold[start:stop]
        for span in spans_of(fixed):  # what is left of a fixed span that loses words is open again
            if span.start < stop and start < span.stop:
                fixed[span.start : span.stop] = [None] * (span.stop - span.start)
        fixed[start:stop] = [kind or None for kind in kinds]
        if evidence:
            shown = session.answer(n, fixed)["labels"]
            continue
        for span in spans_of(shown):
            if span.start < stop and start < span.stop:
                shown[span.start : span.stop] = ["O"] * (span.stop - span.start)
        shown[start:stop] = [kind or "O" for kind in kinds]
    return clicks


def simulate(
    pool: Pool, gold: list[list[str]], test: tuple[list[list[str]], list[list[str]]], helps: Sequence[str],
    *, seed: int, target: float, max_sentences: int, say: Say,
) -> Curve:  # fmt: skip
    """Return F1 on test sentences by the number of clicks, until it reaches a target."""
    curve = Curve(", ".join(helps) or "correct everything in random order")
    with TemporaryDirectory() as folder:
        session = Session(pool, Path(folder) / "out.jsonl")
        session._random.seed(seed)
        session._random.shuffle(session._order)
        if "phrases" not in helps:
            session.phrases = _NoPhrases(True)
        loop = Loop(session)
        while len(session.answers) < min(max_sentences, len(pool)):
            for _ in range(max(5, int(GROWTH * len(session.answers)))):
                n = session.next("annotator")
                if n is None:
                    break
                clicks = annotate(session, n, gold[n], "evidence" in helps)
                session.save(n, list(gold[n]), "done", "annotator", clicks)
            loop.step()
            if "selection" not in helps:
                session.queue = deque()
            if session.model is not None:
                report = evaluate_tagging(session.model.predict(test[0]), test[1])
                f1 = 100 * report.chunks.f1 if report.chunks else 0.0
                curve.add(session.clicks, f1)
                say(f"{curve.name}: {len(session.answers)} sentences, {session.clicks} clicks, F1 {f1:.1f}")
                if f1 >= target:
                    break
        session.journal.close()
    return curve


def clicks_at(curve: Curve, target: float) -> float | None:
    """Return the clicks at which a curve reaches a target for the first time, by linear interpolation."""
    before = (0.0, 0.0)
    for clicks, f1 in zip(curve.x, curve.y, strict=True):
        if f1 >= target:
            return before[0] + (clicks - before[0]) * (target - before[1]) / max(f1 - before[1], 1e-9)
        before = clicks, f1
    return None


def labeling(
    folder: str | os.PathLike[str],
    *,
    targets: Sequence[float] = (65.0, 70.0),
    n_seeds: int = 3,
    seed: int = 0,
    max_sentences: int = 4_000,
    n_test: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Count the clicks to a tagger of names in Spanish (CoNLL-2002), from nothing to an F1 on its development part.

    What the page adds is measured alone and together: ``evidence`` decodes the rest of a sentence after each click,
    ``selection`` chooses sentences, ``phrases`` labels known phrases as before. One sentence in five is drawn at random
    and not trained on, in all rows, as on the page.
    """
    train, dev = (read_columns(Path(folder) / f"esp.{part}", columns=(0, 2)) for part in ("train", "testa"))
    words = [list(s) for s in train.sentences(0)]
    gold = [labels_from_spans(spans(s), len(s)) for s in train.sentences(1)]  # a few start with I
    test = [list(s) for s in dev.sentences(0)[:n_test]], [list(s) for s in dev.sentences(1)[:n_test]]
    pool = Pool("spans", words, [None] * len(words), "", lambda n: {})
    table = Table("Clicks of a simulated annotator", ["F1", "help", "clicks", "fewer, %"])
    for way in WAYS:
        for k in range(n_seeds):
            how = {"seed": seed + k, "target": max(targets), "max_sentences": max_sentences}
            table.curves.append(simulate(pool, gold, test, way, say=say, **how))  # type: ignore[arg-type]
    for target in targets:
        plain = None
        for w, way in enumerate(WAYS):
            counts = [clicks_at(curve, target) for curve in table.curves[w * n_seeds : (w + 1) * n_seeds]]
            known = [count for count in counts if count is not None]
            mean = sum(known) / len(known) if len(known) == n_seeds else None
            plain = mean if not way else plain
            fewer = None if mean is None or plain is None else 100 * (1 - mean / plain)
            name = table.curves[w * n_seeds].name
            table.rows.append([target, name, None if mean is None else round(mean), fewer and round(fewer, 1)])
            table.add(f"{name}: clicks to F1 {target:g}", None, mean, "clicks")
    return table
