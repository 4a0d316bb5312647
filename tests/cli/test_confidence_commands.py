"""Commands about confidence: calibrate, evaluate, tag --with spans and --decoding, select."""

import json

import pytest

from tests.commands import run
from tests.models.fitted import fitted
from trelliswork import CRF, HMM, bundled, load
from trelliswork.data.schemes import spans
from trelliswork.data.writers import write_conllu

DEV = bundled.load("dev")[:30]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with saved models and files."""
    folder = tmp_path_factory.mktemp("confidence")
    train = bundled.load("train")[:40]
    chunker = CRF("pos", tol=0.1).fit([s.words for s in train], [s.chunks for s in train])
    chunker.input_ = {"format": "columns", "columns": [0], "label": 1, "separator": None}
    chunker.save(folder / "chunker")
    tagger = HMM().fit([s.words for s in train], [s.tags for s in train])
    tagger.input_ = {"format": "columns", "columns": [0], "label": 1, "separator": None}
    tagger.save(folder / "tagger")
    for name in ("PCFG", "KneserNey", "DependencyParser", "FactorialCRF"):
        fitted(name).save(folder / name)
    for name, labels in (("chunks", [s.chunks for s in DEV]), ("tags", [s.tags for s in DEV])):
        rows = [zip(s.words, own, strict=True) for s, own in zip(DEV, labels, strict=True)]
        text = "\n".join("".join(f"{word} {label}\n" for word, label in row) for row in rows)
        (folder / name).write_text(text)
    with (folder / "dev.conllu").open("w") as out:
        write_conllu(DEV, out)
    (folder / "joint").write_text(
        "\n".join("".join(" ".join(r) + "\n" for r in zip(s.words, s.tags, s.chunks, strict=True)) for s in DEV)
    )
    return folder


def ask(place, *words, **options):
    result = run(*words, cwd=place, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_calibrate_saves_the_model_elsewhere_or_in_place(place):
    text = ask(place, "calibrate", "chunker", "chunks", "-o", "calibrated")
    assert text.startswith("temperature ")
    assert "30 sentences. Saved in calibrated" in text
    assert load(place / "chunker").calibration_ is None
    result = json.loads(ask(place, "calibrate", "calibrated", "chunks", "--json"))
    again = load(place / "calibrated").calibration_
    assert result["temperatures"] == again.temperatures
    assert set(result["span_thresholds"]) == {""}


@pytest.mark.parametrize(("model", "file"), [("DependencyParser", "dev.conllu"), ("PCFG", "bundled:dev")])
def test_parsers_and_grammars_are_calibrated_with_trees(place, model, file):
    if model == "DependencyParser":  # of words and one column of tags
        parser = load(place / model)
        parser.input_ = {"columns": ["form", "xpos"]}
        parser.save(place / model)
    ask(place, "calibrate", model, file, "-o", f"{model}-calibrated")
    assert load(place / f"{model}-calibrated").calibration_ is not None


def test_layers_are_calibrated_together_and_evaluated_apart(place):
    model = load(place / "FactorialCRF")
    model.input_ = {"format": "columns", "columns": [0], "label": [1, 2], "separator": None}
    model.save(place / "layers")
    ask(place, "calibrate", "layers", "joint")
    result = json.loads(ask(place, "evaluate", "layers", "joint", "--decoding", "mbr-span", "--json"))
    assert result["layers"]["pos"]["confidence"]["n_answers"] == result["n_tokens"]
    assert result["layers"]["pos"]["span_confidence"] is None
    assert result["layers"]["chunk"]["span_confidence"]["what"] == "spans"
    lines = ask(place, "tag", "layers", "joint", "--with", "spans,marginals").splitlines()
    assert len(lines[0].split()) == 3 + 2 + 2 + 2
    row = json.loads(
        ask(place, "tag", "layers", "joint", "--with", "marginals,spans", "--output", "jsonl").splitlines()[0]
    )
    assert list(row["spans"]) == ["chunk"]
    assert 0 <= row["probability"] <= 1


def test_evaluate_reports_confidence(place):
    text = ask(place, "evaluate", "chunker", "chunks")
    for words in ("confidence of", "calibration error", "Brier score", "log score", "95 % interval", "accept from",
                  " spans ", "# correct, | mean"):  # fmt: skip
        assert words in text
    for decode in ("viterbi", "mbr", "mbr-span"):
        result = json.loads(ask(place, "evaluate", "chunker", "chunks", "--decoding", decode, "--json"))
        confidence = result["confidence"]
        error = confidence["calibration_error"]
        assert error["low"] <= error["high"]
        assert sum(b["count"] for b in confidence["bins"]) == confidence["n_answers"] == result["n_tokens"]
        assert confidence["accepted"][0] == {"threshold": 0, "coverage": 1, "accuracy": result["accuracy"]}
        assert result["span_confidence"]["n_answers"] == result["chunks"]["predicted"]
    tags = json.loads(ask(place, "evaluate", "tagger", "tags", "--json"))
    assert tags["span_confidence"] is None
    assert json.loads(ask(place, "evaluate", "tagger", "tags", "--json")) == tags  # the bootstrap has a seed


def test_evaluate_reports_the_confidence_of_arcs(place):
    parser = load(place / "DependencyParser")
    parser.input_ = {"columns": ["form", "xpos"]}
    parser.save(place / "parser")
    result = json.loads(ask(place, "evaluate", "parser", "dev.conllu", "--json"))
    assert result["confidence"]["what"] == "arcs"
    marginals = load(place / "parser").predict_marginals([list(zip(s.words, s.tags, strict=True)) for s in DEV])
    gold = [p.get(h, 0.0) for s, row in zip(DEV, marginals, strict=True) for h, p in zip(s.heads, row, strict=True)]
    import numpy as np

    expected = np.log(np.maximum(gold, 1e-6)).mean()
    assert result["confidence"]["log_score"]["value"] == pytest.approx(expected, abs=1e-4)
    labels = result["label_confidence"]
    assert labels["n_answers"] == round(result["uas"] * result["n_words"])
    assert labels["accepted"][0]["accuracy"] == pytest.approx(result["las"] / result["uas"])
    assert "accept from" in ask(place, "evaluate", "parser", "dev.conllu")
    assert json.loads(ask(place, "evaluate", "parser", "dev.conllu", "--decoding", "viterbi", "--json"))["uas"] > 0


def test_tag_writes_spans(place):
    model = load(place / "chunker")
    sentences = [list(s.words) for s in DEV]
    found = model.predict_spans(sentences)
    lines = ask(place, "tag", "chunker", "chunks", "--with", "spans,marginals").splitlines()
    cells = [line.split()[4] for line in lines if line]
    starts = {}
    at = 0
    for words, row in zip(sentences, found, strict=True):
        for span, p in row:
            starts[at + span.start] = f"{span.type}:{span.stop - span.start}:{p:.6f}"
        at += len(words)
    assert cells == [starts.get(k, "_") for k in range(at)]
    rows = [
        json.loads(line)
        for line in ask(
            place, "tag", "chunker", "chunks", "--with", "marginals,spans", "--output", "jsonl"
        ).splitlines()
    ]
    assert [[s["probability"] for s in row["spans"]] for row in rows] == [[p for _, p in row] for row in found]
    best = model.predict_topk(sentences, 1)
    assert [row["probability"] for row in rows] == pytest.approx([row[0][1] for row in best], rel=1e-4)
    labels = [
        line.split()[2] for line in ask(place, "tag", "chunker", "chunks", "--decoding", "mbr-span").split("\n") if line
    ]
    assert labels == [label for row in model.predict(sentences, decoding="mbr-span") for label in row]


def test_a_precision_of_spans_is_reached_by_a_probability(place):
    result = json.loads(ask(place, "evaluate", "chunker", "chunks", "--target-precision", "0.95", "--json"))
    reached = result["at_precision"]
    threshold = reached["threshold"]["value"]
    model, sentences = load(place / "chunker"), [list(s.words) for s in DEV]
    gold = {(n, span) for n, s in enumerate(DEV) for span in spans(s.chunks, "bio")}
    found = [((n, span), p) for n, row in enumerate(model.predict_spans(sentences)) for span, p in row]
    given = [key for key, p in found if p >= threshold]
    assert sum(key in gold for key in given) / len(given) == pytest.approx(reached["precision"]["value"])
    assert reached["precision"]["value"] >= 0.95
    assert sum(key in gold for key in given) / len(gold) == pytest.approx(reached["recall"]["value"])
    for name in ("threshold", "precision", "recall"):
        assert reached[name]["low"] <= reached[name]["value"] <= reached[name]["high"]
    lines = ask(place, "tag", "chunker", "chunks", "--min-probability", f"{threshold:.17g}").splitlines()
    labels, kept = [line.split()[2] for line in lines if line], {key for key, p in found if p >= threshold}
    rows = [labels[sum(map(len, sentences[:n])) : sum(map(len, sentences[: n + 1]))] for n in range(len(DEV))]
    assert {(n, span) for n, row in enumerate(rows) for span in spans(row, "bio")} == kept
    shown = ask(place, "evaluate", "chunker", "chunks", "--target-precision", "0.95")
    assert "recall" in shown


def test_places_of_spans_in_raw_text(place):
    text = "The cat saw the dog .\n\n  A man  found it .\n"
    (place / "raw.txt").write_text(text)
    rows = [
        json.loads(r)
        for r in ask(
            place, "tag", "chunker", "raw.txt", "--tokenize", "--with", "marginals,spans", "--output", "jsonl"
        ).splitlines()
    ]
    assert [row["offset"] for row in rows] == [0, text.index("A man")]
    for row in rows:
        assert text[row["offset"] :].startswith(row["text"])
        assert row["spans"]
        for span in row["spans"]:
            first, last = span["tokens"]
            words = text[span["start"] : span["end"]].split()
            assert words == row["words"][first:last]


def test_known_labels_are_a_condition_of_the_probability_of_a_labeling(place):
    known = (place / "chunks").read_text()
    (place / "known").write_text(known.replace("B-PRT", "_"))
    row = json.loads(
        ask(place, "tag", "chunker", "known", "--known", "1", "--with", "marginals", "--output", "jsonl").splitlines()[
            0
        ]
    )
    assert row["probability"] == pytest.approx(1, abs=1e-5)  # all labels are known


def test_select_lists_sentences(place):
    lines = ask(place, "select", "tagger", "tags", "-n", "3").splitlines()
    rows = [line.split("\t") for line in lines]
    assert [float(row[2]) for row in rows] == sorted((float(row[2]) for row in rows), reverse=True)
    assert all(row[0] == "tags" and " ".join(DEV[int(row[1]) - 1].words) == row[3] for row in rows)
    for options in (["--diverse"], ["--by", "margin"], ["--by", "expected-gain"], ["--per-token"]):
        chosen = [json.loads(line) for line in ask(place, "select", "tagger", "tags", "--json", *options).splitlines()]
        assert sorted(row["sentence"] for row in chosen) == list(range(1, len(DEV) + 1))  # the pool has fewer than 100
    parser = load(place / "DependencyParser")
    parser.input_ = {"columns": ["form", "xpos"]}
    parser.save(place / "parser")
    assert len(ask(place, "select", "parser", "dev.conllu", "-n", "2").splitlines()) == 2
    scores = [
        float(ask(place, "select", "tagger", "tags", "-n", "1", "--by", "expected-gain", *more).split("\t")[2])
        for more in ([], ["--labeled", "tags"])
    ]
    assert scores[1] < scores[0]


def test_parse_writes_the_probabilities_of_subtrees(place):
    parser = load(place / "DependencyParser")
    parser.input_ = {"columns": ["form", "xpos"]}
    parser.save(place / "parser")
    row = json.loads(
        ask(place, "parse", "parser", "dev.conllu", "--with", "marginals,subtrees", "--output", "jsonl").splitlines()[0]
    )
    below = row["subtree_probabilities"][row["heads"].index(0)]
    assert below == pytest.approx(row["probability"], rel=1e-4, abs=1e-9)  # the root has the whole tree below it
    text = ask(place, "parse", "parser", "dev.conllu", "--with", "subtrees,marginals")
    again = ask(place, "parse", "parser", "-", "--with", "subtrees,marginals", input=text)
    assert again == text  # an earlier result is replaced
    misc = [line.split("\t")[9] for line in text.splitlines() if line[:1].isdigit()]
    assert all(cell.count("ArcProb=") == cell.count("SubtreeProb=") == 1 for cell in misc)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["evaluate", "tagger", "tags", "--decoding", "mbr-las"], 1, "must be one of 'viterbi', 'mbr', 'mbr-span'"),
        (["evaluate", "KneserNey", "tags", "--decoding", "viterbi"], 2, "perplexity"),
        (["tag", "tagger", "tags", "--with", "spans"], 1, "BIO or BIOES"),
        (["tag", "tagger", "tags", "--decoding", "mbr-span"], 1, "BIO or BIOES"),
        (["tag", "chunker", "chunks", "--decoding", "mbr", "--with", "topk=2"], 2, "leave --decoding"),
        (["tag", "chunker", "chunks", "--with", "marginals,subtrees"], 2, "got 'subtrees'"),
        (["tag", "chunker", "chunks", "--with", "topk"], 2, "got 'topk'"),
        (["tag", "chunker", "chunks", "--with", "topk=0"], 2, "got 'topk=0'"),
        (["tag", "chunker", "chunks", "--with", "spans=2"], 2, "got 'spans=2'"),
        (["tag", "chunker", "chunks", "--with", "spans,spans"], 2, "each once"),
        (["tag", "chunker", "chunks", "--with", ""], 2, "got ''"),
        (["tag", "chunker", "chunks", "--output", "xml"], 2, "xml"),
        (["parse", "PCFG", "dev.conllu", "--output", "conllu"], 2, "bracketed trees"),
        (["parse", "parser", "dev.conllu", "--with", "subtrees,topk=2"], 2, "for one tree"),
        (["calibrate", "KneserNey", "tags"], 1, "marginals to calibrate"),
        (["calibrate", "tagger", "missing"], 1, "missing"),
        (["select", "KneserNey", "tags"], 1, "expected a tagger"),
        (["select", "tagger", "tags", "--labeled", "tags"], 2, "--labeled is for"),
        (["select", "PCFG", "tags"], 2, "taggers and parsers"),
    ],
)
def test_wrong_use_is_refused(place, words, code, message):
    result = run(*words, cwd=place)
    assert result.returncode == code
    assert message in " ".join(result.stderr.replace("│", " ").split())
