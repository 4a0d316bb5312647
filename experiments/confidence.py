"""Confidence of taggers and parsers on real data: calibration, decisions, clusters and lexica (beside the papers)."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.chain_tagging import raw_text, read_tagged
from experiments.running import fit
from experiments.tables import Say, Table
from trelliswork import (
    CRF,
    HMM,
    BrownClusters,
    DependencyParser,
    FactorialCRF,
    Lexicon,
    calibrate,
    evaluate,
    read_columns,
    read_conllu,
    read_dependencies,
)
from trelliswork.data.moments import count_moments

HELD_OUT = 936  # sentences of the training part of CoNLL-2000
FEW = 3000  # sentences of some parsers
SURE = 0.95  # probability of the tags that are counted as sure
Part = tuple[Any, Any]  # sentences and gold answers


def calibration(
    folder: str | os.PathLike[str],
    *,
    max_iter: int = 80,
    max_iter_joint: int = 50,
    n_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Measure calibration errors and log scores on test parts, before and after a temperature.

    The folder has ``ud-en-ewt``, whose development part gives the temperature, and ``conll2000``, where the last
    sentences of the training part do. ``n_sentences`` limits the training parts.
    """
    table = Table(
        "Calibration on test parts, with 95 % intervals of the error after calibration",
        ["model, data, answers", "error", "calibrated", "from", "to", "T", "log score", "calibrated"],
    )
    for name, model, (train, held_out, test) in _tasks(Path(folder), max_iter, max_iter_joint, n_sentences):
        say(name)
        seconds = fit(model, *train)
        before = _confidences(evaluate(model, *test))
        calibrate(model, *held_out)
        for what, after in _confidences(evaluate(model, *test)).items():
            error, temperature = after.calibration_error, model.calibration_.temperatures["all"]
            figures = {
                "error": before[what].calibration_error.value, "calibrated": error.value, "from": error.low,
                "to": error.high, "temperature": temperature, "log score": before[what].log_score.value,
                "log score, calibrated": after.log_score.value,
            }  # fmt: skip
            row = f"{name}, {what}"
            table.rows.append([row, *figures.values()])
            for measure, value in figures.items():
                table.add(f"{row}: {measure}", None, value, "nats" if "log" in measure else "", seconds)
            if isinstance(model, CRF) and model.calibration_.span_thresholds == {}:
                p, right, *_ = after.answers
                sure = p >= SURE
                table.add("sure tags: correct", None, 100 * float(right[sure].mean()), "%")
                table.add("sure tags: share", None, 100 * float(sure.mean()), "%")
        if isinstance(model, CRF) and model.calibration_.span_thresholds:
            for decoding in ("viterbi", "mbr-span"):
                report = evaluate(model, *test, decoding=decoding)
                rates = report.chunks.f1, report.chunks.precision, report.chunks.recall, report.accuracy
                for measure, rate in zip(("F1", "precision", "recall", "token accuracy"), rates, strict=True):
                    table.add(f"{decoding}: {measure}", None, 100 * rate, "%")
    return table


def _tasks(folder: Path, max_iter: int, joint: int, n: int | None) -> Iterator[tuple[str, Any, list[Part]]]:
    """Yield names, models, and sentences with labels to train on, to calibrate with and to test on."""
    ewt = [read_tagged(folder / "ud-en-ewt", part) for part in ("train", "dev", "test")]
    ewt[0] = (ewt[0][0][:n], ewt[0][1][:n])
    chunked = [read_columns(folder / "conll2000" / f"{part}.txt") for part in ("train", "test")]
    pairs = [
        [list(zip(*row, strict=True)) for row in zip(c.sentences(0), c.sentences(1), strict=True)] for c in chunked
    ]
    labels = [corpus.sentences(2) for corpus in chunked]
    first = slice(None, -HELD_OUT if n is None else n)
    chunks = [(pairs[0][first], labels[0][first]), (pairs[0][-HELD_OUT:], labels[0][-HELD_OUT:]), (pairs[1], labels[1])]
    yield "CRF, EWT XPOS", CRF("pos", max_iter=max_iter), ewt
    yield "CRF, CoNLL-2000", CRF("chunking", max_iter=max_iter), chunks
    yield "HMM, EWT XPOS", HMM(), ewt
    both = []
    for part in ("train", "dev", "test"):
        corpus = read_conllu(folder / "ud-en-ewt" / f"en_ewt-ud-{part}.conllu", columns=["form", "upos", "xpos"])
        words, upos, xpos = (corpus.sentences(k)[: n if part == "train" else None] for k in range(3))
        both.append((words, {"UPOS": upos, "XPOS": xpos}))
    yield "factorial CRF, EWT", FactorialCRF(("UPOS", "XPOS"), max_iter=joint), both
    parts = [slice(None, -HELD_OUT if n is None else n), slice(-HELD_OUT, None), slice(None)]
    joined = [
        (corpus.sentences(0)[part], {"POS": corpus.sentences(1)[part], "chunks": corpus.sentences(2)[part]})
        for corpus, part in zip((chunked[0], *chunked), parts, strict=True)
    ]
    yield "factorial CRF, CoNLL-2000", FactorialCRF(("POS", "chunks"), max_iter=joint), joined


def _confidences(report: Any) -> dict[str, Any]:
    """Return the confidence of each kind of answers: tokens or layers, and spans."""
    layers = getattr(report, "layers", None) or {"tokens": report}
    found = {}
    for name, layer in layers.items():
        found[name] = layer.confidence
        if layer.span_confidence is not None:
            found["spans"] = layer.span_confidence
    return found


def parsers(
    folder: str | os.PathLike[str],
    *,
    rows: Sequence[str] = (),
    n_clusters: int = 1000,
    n_sentences: int | None = None,
    max_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Measure accuracy and confidence of second-order parsers with default settings on test parts.

    The folder has ``ud-en-ewt``, ``ud-french-sequoia`` and the raw text for clusters. ``rows`` chooses some of the
    parsers; ``n_sentences`` and ``max_sentences`` limit treebanks and raw text.
    """
    table = Table("Parsers on test parts", ["data, tags", "UAS", "LAS", "arcs", "labels", "log score"])
    ewt, sequoia = Path(folder) / "ud-en-ewt", Path(folder) / "ud-french-sequoia"
    columns = ("form", "upos", "xpos"), ("form", "upos", "feats")
    clusters: dict[str, Any] = {}

    def clustered() -> Any:
        if not clusters:
            say("clusters of the raw text")
            clusters["raw"] = _clusters(Path(folder), n_clusters, max_sentences)
        return clusters["raw"]

    made: dict[str, tuple[Callable[[], Any], Path, Any]] = {
        "EWT, gold tags": (DependencyParser, ewt, columns[0]),
        "EWT, gold tags, no temperatures": (lambda: DependencyParser(calibrated=False), ewt, columns[0]),
        "EWT, CRF": (lambda: DependencyParser(tagger="crf"), ewt, columns[0]),
        "Sequoia, gold UPOS and FEATS": (DependencyParser, sequoia, columns[1]),
        "Sequoia, CRF": (lambda: DependencyParser(tagger="crf"), sequoia, columns[1]),
        f"EWT, {FEW:,} sentences": (DependencyParser, ewt, columns[0]),
        f"EWT, {FEW:,} sentences, crossing": (lambda: DependencyParser(projective=False), ewt, columns[0]),
        "EWT, gold tags, clusters": (lambda: DependencyParser(clusters=clustered()), ewt, columns[0]),
        "EWT, CRF, clusters": (lambda: DependencyParser(tagger="crf", clusters=clustered()), ewt, columns[0]),
    }
    for name, (make, place, own) in made.items():
        if rows and name not in rows:
            continue
        say(name)
        (X, y), dev, test = (_treebank(place, part, own) for part in ("train", "dev", "test"))
        parser = make()
        n = FEW if f"{FEW:,}" in name else n_sentences
        seconds = fit(parser, X[:n], y[:n], dev=dev)
        for part, data in (("dev", dev), ("", test)):
            report = evaluate(parser, *data)
            figures = {"UAS": 100 * report.uas, "LAS": 100 * report.las, **_errors(report)}
            if part:
                figures = {f"dev {measure}": figures[measure] for measure in ("UAS", "LAS")}
            else:
                table.rows.append([name, *figures.values()])
            for measure, value in figures.items():
                unit = "%" if "AS" in measure else "nats" if measure == "log score" else ""
                table.add(f"{name}: {measure}", None, value, unit, seconds)
    return table


def _errors(report: Any) -> dict[str, float]:
    """Return calibration errors of arcs, of labels of correct heads, and the log score of heads."""
    return {
        "arcs": report.confidence.calibration_error.value,
        "labels": report.label_confidence.calibration_error.value,
        "log score": report.confidence.log_score.value,
    }


def _treebank(folder: Path, part: str, columns: Sequence[str]) -> Part:
    (file,) = folder.glob(f"*-ud-{part}.conllu")
    corpus, y = read_dependencies(file, columns=columns)
    rows = zip(*(corpus.sentences(k) for k in range(len(columns))), strict=True)
    return [list(zip(*row, strict=True)) for row in rows], y


def _clusters(folder: Path, n_clusters: int, max_sentences: int | None) -> BrownClusters:
    """Return clusters of the words of the raw text that occur at least five times."""
    return BrownClusters(n_clusters).fit(
        count_moments(raw_text(folder, max_sentences), 1, max_words=50_000, min_count=5)
    )


def knowledge(
    folder: str | os.PathLike[str],
    *,
    n_clusters: int = 1000,
    max_iter: int = 100,
    n_sentences: int | None = None,
    max_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Measure what clusters of raw text add to CRFs, and names of CoNLL-2002 with clusters and a learned lexicon.

    The folder has ``ud-en-ewt``, ``conll2000``, ``conll2002`` and the raw text.
    """
    table = Table("CRFs with knowledge of words, on test parts", ["data", "without", "with"])
    folder = Path(folder)
    say("clusters of the raw text")
    clusters = _clusters(folder, n_clusters, max_sentences)
    train, test = (read_tagged(folder / "ud-en-ewt", part) for part in ("train", "test"))
    chunked = [read_columns(folder / "conll2000" / f"{part}.txt") for part in ("train", "test")]
    chunks = [(list(map(list, _rows(corpus))), corpus.sentences(2)) for corpus in chunked]
    measured: dict[str, list[float]] = {}
    for known in (None, clusters):
        say("UD EWT and CoNLL-2000, " + ("words alone" if known is None else "clusters"))
        tagger = CRF("pos", max_iter=max_iter, clusters=known)
        seconds = fit(tagger, train[0][:n_sentences], train[1][:n_sentences])
        report = evaluate(tagger, *test)
        chunker = CRF("chunking", max_iter=max_iter, clusters=known)
        more = fit(chunker, chunks[0][0][:n_sentences], chunks[0][1][:n_sentences])
        f1 = evaluate(chunker, *chunks[1]).chunks.f1
        rates = {"UD EWT XPOS, all words": report.accuracy, "unseen words": report.unknown_accuracy, "chunks, F1": f1}
        for what, rate in rates.items():
            measured.setdefault(what, []).append(100 * rate)
            name = "without" if known is None else "with clusters"
            table.add(f"{what}: {name}", None, 100 * rate, "%", more if "F1" in what else seconds)
    for language, code, best in (("Spanish", "esp", 81.4), ("Dutch", "ned", 77.1)):
        say(f"CoNLL-2002, {language}")
        learn, unseen = (_names(folder / "conll2002" / f"{code}.{part}") for part in ("train", "testb"))
        words, labels = learn[0][:n_sentences], learn[1][:n_sentences]
        lexicon = Lexicon.learn(words, labels)
        own = BrownClusters(min_count=5).fit(words)
        tagger = CRF("ner", max_iter=max_iter, clusters=own, lexicon=lexicon)
        seconds = fit(tagger, words, labels)
        f1 = 100 * evaluate(tagger, *unseen).chunks.f1
        measured[f"CoNLL-2002, {language}, F1"] = [best, f1]
        table.add(f"CoNLL-2002, {language}: F1", best, f1, "%", seconds, "the number beside is the best of the task")
        table.add(f"CoNLL-2002, {language}: clusters", None, len(set(own.paths_.values())), "clusters")
    table.rows += [[name, *values] for name, values in measured.items()]
    return table


def _rows(corpus: Any) -> Iterator[Any]:
    """Yield the tokens of each sentence as pairs of word and tag."""
    for words, tags in zip(corpus.sentences(0), corpus.sentences(1), strict=True):
        yield zip(words, tags, strict=True)


def _names(path: Path) -> Part:
    """Return words and names of a file of CoNLL-2002, whose second column, tags, is left out."""
    corpus = read_columns(path)
    return corpus.sentences(0), corpus.sentences(2)
