"""A project of a user, which ``tests/house/test_typing.py`` runs and checks with mypy and pyright."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import assert_type

import trelliswork
from trelliswork import CRF, HMM, Corpus, DependencyParser, KneserNey, bundled, read_columns
from trelliswork.data.schemes import Span, spans
from trelliswork.data.tokenize import Piece, tokenize
from trelliswork.errors import ConvergenceWarning, DataError, TrellisworkError, TrellisworkWarning
from trelliswork.integrations.scorers import chunk_f1_scorer
from trelliswork.learning.report import FitReport, Step
from trelliswork.metrics import evaluate_tagging


def report_progress(step: Step) -> bool:
    return step.seconds > 60


def train_tagger(words: list[list[str]], tags: list[list[str]]) -> CRF:
    tagger = CRF("pos", l2=0.5, tol=0.1, scheme=None).fit(words, tags, callback=report_progress)
    assert_type(tagger.report_, FitReport)
    assert_type(tagger.predict(words), list[list[str]])
    assert_type(tagger.predict_marginals(words), list[list[dict[str, float]]])
    assert_type(tagger.predict_topk(words, 2), list[list[tuple[list[str], float]]])
    assert_type(tagger.score(words, tags), float)
    return tagger


def tag_file(model: Path, file: Path) -> list[str]:
    tagger = CRF.load(model)
    corpus = read_columns(file, columns=[0])
    assert_type(corpus, Corpus)
    return [" ".join(labels) for labels in tagger.predict(corpus)]


def language_model(words: list[list[str]]) -> float:
    model = KneserNey(2).fit(words)
    assert_type(model.perplexity(words), float)
    best: tuple[str, float] = model.predict_next(words[0][:1], 1)[0]
    return best[1]


def parse(pairs: list[list[tuple[str, str]]], trees: list[list[tuple[int, str]]]) -> list[int]:
    parser = DependencyParser(1, hash_bits=12, max_iter=1).fit(pairs, trees)
    return [head for head, _ in parser.predict(pairs)[0]]


def tokens(text: str) -> list[Piece]:
    return [piece for sentence in tokenize(text) for piece in sentence]


def first_span(labels: list[str]) -> Span | None:
    found = spans(labels)
    return found[0] if found else None


def main() -> None:
    sentences = bundled.load("train")[:20]
    words, tags = [list(s.words) for s in sentences], [list(s.tags) for s in sentences]
    tagger = train_tagger(words, tags)
    with tempfile.TemporaryDirectory() as folder:
        model, file = Path(folder) / "model", Path(folder) / "words.txt"
        tagger.save(model)
        file.write_text("\n".join(words[0]) + "\n")
        assert tag_file(model, file) == [" ".join(tagger.predict(words[:1])[0])]
        loaded = trelliswork.load(model)
        assert isinstance(loaded, CRF)
    hmm = HMM().fit(words, tags)
    assert_type(evaluate_tagging(tags, hmm.predict(words)).accuracy, float)
    assert 0 < language_model(words) <= 1
    pairs = [list(zip(s.words, s.tags, strict=True)) for s in sentences]
    trees = [list(zip(s.heads, s.relations, strict=True)) for s in sentences]
    assert parse(pairs, trees)
    assert [piece.text for piece in tokens("It works.")] == ["It", "works", "."]
    assert first_span(["O", "B-X"]) == Span("X", 1, 2)
    chunks = [list(s.chunks) for s in sentences]
    assert chunk_f1_scorer(CRF("pos", tol=0.1).fit(words, chunks), words, chunks) > 0.5
    try:
        read_columns("missing.txt")
    except DataError as error:
        print(isinstance(error, TrellisworkError), error)
    assert issubclass(ConvergenceWarning, TrellisworkWarning)


if __name__ == "__main__":
    main()
