"""Hostile input at every entrance ends at once, in a result or in one line that says what is wrong."""

import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from copy import copy

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

import trelliswork
import trelliswork.cli
from tests.models.fitted import fitted
from trelliswork import (
    CRF,
    PCFG,
    DependencyParser,
    FactorGraph,
    GrammarTree,
    LinearChain,
    ProjectiveTree,
    SpanningTree,
    SpanTree,
    read_dependencies,
)
from trelliswork.cli.running import LOG_PREFIX, MAX_LOGS, settings
from trelliswork.compute import limits, threads
from trelliswork.data import read_uai
from trelliswork.errors import DataError, LimitError, TrellisworkError
from trelliswork.features import read_templates
from trelliswork.inference import chain
from trelliswork.inference.graph.engines import trw
from trelliswork.inference.graph.potentials import Tables, wire
from trelliswork.inference.lifted.chain_cover import ChainCover
from trelliswork.inference.lifted.exponentials import ExpTable
from trelliswork.inference.lifted.potentials import DenseTable


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Return a function that runs a command in this process and returns exit code, output and errors."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "logs"))
    (tmp_path / "logs").mkdir()

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trelliswork", *map(str, words)])
        with limits.limits(), pytest.raises(SystemExit) as ended:
            trelliswork.cli.main()
        shown = capsys.readouterr()
        return ended.value.code, shown.out, shown.err

    yield run
    settings.debug = False


def one_line(err: str) -> bool:
    return err.startswith("error: ") and err.count("\n") == 1 and "Traceback (" not in err and len(err) < 1000


# ---- the guard at the top


@pytest.mark.parametrize("error", [MemoryError(), RecursionError("deep"), OverflowError("big"), KeyError("x" * 10**5)])
def test_unforeseen_errors_end_in_one_line_and_a_log(error, command, monkeypatch, tmp_path):
    def broken() -> None:
        """Fail."""
        raise error

    monkeypatch.setattr("trelliswork.cli.warmup.warmup", broken)
    code, _, err = command("warmup")
    assert code == 1
    assert one_line(err)
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in err
    assert "Traceback (most recent call last)" in log.read_text()
    code, _, err = command("--debug", "warmup")
    assert code == 1
    assert "Traceback (most recent call last)" in err
    for _ in range(MAX_LOGS + 3):
        command("warmup")
    assert len(list((tmp_path / "logs").glob(f"{LOG_PREFIX}*"))) == MAX_LOGS


def test_an_error_while_options_are_read_is_one_line(command, monkeypatch):
    monkeypatch.setattr("trelliswork.cli.lazy.import_module", lambda name: 1 / 0)
    code, _, err = command("tag")
    assert code == 1
    assert one_line(err)


def test_ctrl_c_in_a_command_and_during_imports(command, monkeypatch, capsys):
    def stopped() -> None:
        """Stop."""
        raise KeyboardInterrupt

    monkeypatch.setattr("trelliswork.cli.warmup.warmup", stopped)
    assert command("warmup") == (130, "", "interrupted\n")

    class Importing:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    from trelliswork.__main__ import main

    monkeypatch.setitem(sys.modules, "trelliswork.cli", Importing())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_closed_output_is_an_error():
    words = [sys.executable, "-m", "trelliswork", "data", "bundled", "--limit", "2"]
    closed = subprocess.run(["bash", "-c", f"{' '.join(words)} <&- >&-"], capture_output=True, text=True)
    assert closed.returncode == 1
    assert one_line(closed.stderr)


def test_output_that_cannot_be_written_is_one_error():
    words = [sys.executable, "-m", "trelliswork", "data", "bundled", "--limit", "1"]
    full = subprocess.run(["bash", "-c", f"{' '.join(words)} > /dev/full"], capture_output=True, text=True)
    assert full.returncode == 1
    assert full.stderr.startswith("error: ")
    assert full.stderr.count("\n") == 1


# ---- templates


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"U:%x[99999999999,0]", "at most 1000"),
        (b"U:%x[-1001,0]", "at most 1000"),
        (b"U:%x[0," + b"9" * 5000 + b"]", "at most 1000"),
        (b"U:%x[0,0]\xff", "expected UTF-8"),
        (b"U:\0", "NUL byte"),
        (b"U" + b"%" * 10**5, "macros must be written"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_templates_are_read_like_other_files(line, problem, pack, tmp_path):
    path = tmp_path / "template"
    path.write_bytes(pack(b"U00:%x[0,0]\n" + line + b"\n"))
    with pytest.raises(DataError, match=problem) as caught:
        read_templates(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert len(str(caught.value)) < 400
    path.write_bytes(pack(b"\xef\xbb\xbfU00:%x[-1000,0]\r\n"))
    assert read_templates(path)[0].macros == ((-1000, 0),)


# ---- files with absurd numbers

DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "text",
    [
        "MARKOV 1 500000000 0",
        f"MARKOV 1 {DIGITS} 0",
        f"MARKOV {DIGITS}",
        "MARKOV 400 " + "999999999999999999 " * 400 + "1 30 " + " ".join(map(str, range(30))) + " 5",
        "MARKOV 70 " + "1 " * 70 + "1 70 " + " ".join(map(str, range(70))) + " 1 1.0",
        "MARKOV 2 2 2 999999999999999999",
    ],
)
def test_uai_files_with_absurd_sizes(text, tmp_path, command):
    path = tmp_path / "graph.uai"
    path.write_text(text)
    with pytest.raises(DataError, match=r"graph.uai:1: ") as caught:
        read_uai(path)
    assert len(str(caught.value)) < 400
    code, _, err = command("infer", path)
    assert code == 1
    assert one_line(err)


def test_graphs_that_need_too_much_memory_are_refused():
    with pytest.raises(LimitError, match="--max-memory"):
        FactorGraph([10**12])
    with pytest.raises(LimitError, match="--max-memory"):
        FactorGraph([2] * 1000 + [10**9])
    with limits.limits(gigabytes=1e-6), pytest.raises(LimitError):
        FactorGraph([100])
    with limits.limits(gigabytes=4e-6), pytest.raises(TrellisworkError, match="--max-memory"):
        FactorGraph([10] * 3, [((0, 1), np.zeros((10, 10))), ((1, 2), np.zeros((10, 10)))], engine="exact").infer()


@pytest.mark.parametrize(
    ("id_", "head"), [("1", DIGITS), (f"1-{DIGITS}", "_"), (f"{DIGITS}.1", "_"), (DIGITS, "_"), ("1", "²")]
)
def test_conllu_numbers_of_any_length(id_, head, tmp_path):
    path = tmp_path / "trees.conllu"
    path.write_text(f"{id_}\tw\t_\tN\tN\t_\t{head}\t_\t_\t_\n\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"trees.conllu:[12]: ") as caught:
        read_dependencies(path)
    assert len(str(caught.value)) < 400


# ---- damaged models


@pytest.mark.parametrize("name", ["CRF", "DependencyParser", "HMM", "HMMLanguageModel", "KneserNey", "PCFG"])
def test_wrongly_typed_descriptions(name, tmp_path, command):
    place = tmp_path / "model"
    fitted(name).save(place)
    file = place / "model.json"
    good = json.loads(file.read_text(encoding="utf-8"))
    texts = ["[" * 100_000, '{"kind": ' + DIGITS + "}", json.dumps(good | {"kind": ["crf"]}), json.dumps([good])]
    for key in sorted(good.keys() - {"kind", "format", "trelliswork"}):
        for value in (None, 7, "text", [7], {"a": {"b": 7}}, -1e400, [[]] * 3):
            if type(value) is not type(good[key]):
                texts.append(json.dumps(good | {key: value}))
    for text in texts:
        file.write_text(text, encoding="utf-8")
        with suppress(DataError):  # some entries do not matter to the model
            trelliswork.load(place)
    file.write_text(texts[0])
    code, _, err = command("inspect", place)
    assert code == 1
    assert one_line(err)


# ---- options


def test_options_with_absurd_values(command, tmp_path):
    columns = tmp_path / "train.txt"
    columns.write_text("a N\nb V\n\n" * 3)
    fitted("CRF").save(tmp_path / "crf")
    for words, problem in (
        (("train", "crf", columns, "--label", "abc"), "--label"),
        (("train", "crf", columns, "--label", DIGITS), "--label"),
        (("evaluate", tmp_path / "crf", columns, "--label", "abc"), "--label"),
        (("evaluate", tmp_path / "crf", columns, "--label", "7777777"), "--label"),
        (("tag", tmp_path / "crf", columns, "--known", "abc"), "--known"),
        (("train", "factorial-crf", columns, "--layers", "a", "--label", "abc"), "--label"),
        (("train", "pcfg", columns, "--rank", 10**9), "rank 1,000,000,000"),
        (("train", "lbl", columns, "--rank", 10**9), "rank 1,000,000,000"),
        (("train", "mrf", columns, "--rank", 10**9), "rank 1,000,000,000"),
        (("train", "hmm", columns, "--unlabeled", "--n-states", 10**9), "1,000,000,000 states"),
        (("train", "hmm-lm", columns, "--n-states", 10**9), "1,000,000,000 states"),
    ):
        started = time.monotonic()
        code, _, err = command(*words, *(("--out", tmp_path / "out") if words[0] == "train" else ()))
        assert code == 1, err
        assert one_line(err)
        assert problem in err
        assert "--columns" not in err
        assert time.monotonic() - started < 5


# ---- long inputs


def test_a_line_that_is_too_long_is_refused_at_once(command, tmp_path):
    fitted("PCFG").save(tmp_path / "pcfg")
    parser = copy(fitted("DependencyParser"))
    parser.input_ = {"columns": ["form", "upos"]}
    parser.save(tmp_path / "parser")
    text = tmp_path / "long.txt"
    text.write_text("a b c\n\n" + "a " * 20_000 + "\n")
    tree = tmp_path / "long.conllu"
    tree.write_text("".join(f"{n}\ta\t_\tN\tNN\t_\t_\t_\t_\t_\n" for n in range(1, 20_001)) + "\n")
    for words, place in (
        (("score", tmp_path / "pcfg", text, "--format", "text"), f"{text}:3: "),
        (("parse", tmp_path / "pcfg", text, "--format", "text"), f"{text}:3: "),
        (("parse", tmp_path / "parser", tree), f"{tree}:1: "),
    ):
        code, _, err = command(*words)
        assert code == 1
        assert one_line(err)
        assert place in err
        assert "(20,000 words)" in err
        assert "--max-" in err


def test_limits_are_raised_and_lowered():
    sentence = [["a", "b", "c", "d", "e"]]
    grammar = fitted("PCFG")
    before = grammar.score(sentence)
    for name in ("seconds", "gigabytes"):
        with limits.limits(**{name: 1e-9}), pytest.raises(LimitError, match=name) as caught:
            grammar.predict([["a"], *sentence])
        assert caught.value.sentence == 1
        with limits.limits(**{name: 1e-9}), pytest.raises(LimitError):
            PCFG(2, 3).fit(sentence)
        with limits.limits(**{name: 1e-12}), pytest.raises(LimitError):
            DependencyParser(1, hash_bits=10).fit([[("a", "N")]], [[0]])
    assert grammar.score(sentence) == before
    for bad in (0, -1, float("nan"), "x"):
        with pytest.raises(TrellisworkError, match="seconds must be"):
            limits.limits(seconds=bad)


def interrupt(after: float) -> None:
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


def test_ctrl_c_is_answered_while_a_kernel_computes(monkeypatch):
    monkeypatch.setattr(threads._pool, "abandoned", [])  # again afterwards
    trees = GrammarTree(np.zeros(3), np.zeros((3, 6, 6)), np.zeros((1, 3, 3)))
    trees.log_partition()  # loads the kernels
    long = GrammarTree(np.zeros(3), np.zeros((3, 6, 6)), np.zeros((1, 1500, 3)))
    interrupt(0.2)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        long.log_partition()
    assert time.monotonic() - started < 3
    assert trees.log_partition().isfinite().all()  # the pool works, although a kernel may still run


def test_ctrl_c_ends_a_command_in_a_long_sentence(tmp_path):
    fitted("PCFG").save(tmp_path / "pcfg")
    (tmp_path / "long.txt").write_text("a " * 2500 + "\n")
    words = ["--max-seconds", "1e9", "--max-memory", "1e9", "score", str(tmp_path / "pcfg"), str(tmp_path / "long.txt")]
    code = f"""
import threading, os, signal, sys
from trelliswork.inference.span.kernels import grammar
from trelliswork.inference.span import grammar as passes
class Kernels:
    def __getattr__(self, name): return getattr(grammar, name)
    def expectations(self, *arguments):
        print("computing", flush=True)
        grammar.expectations(*arguments)
passes.scaled = Kernels()
sys.argv = ["trelliswork", *{words!r}]
from trelliswork.cli import main
main()
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        assert process.stdout.readline() == "computing\n"
        time.sleep(0.1)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert time.monotonic() - started < 5
        assert process.stderr.read().endswith("interrupted\n")


# ---- extreme numbers


@pytest.mark.parametrize("size", [1e18, -1e18, -1e30])
def test_the_torch_path_is_right_for_scores_of_any_size(size):
    rng = np.random.default_rng(0)
    log_unary, log_pairwise = rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 3))
    log_unary[:, 1] += size
    log_unary[0, 2, 1] = -np.inf
    small = [LinearChain(log_unary, log_pairwise, backend=backend) for backend in ("kernel", "torch")]
    arcs = rng.normal(size=(2, 5, 5))
    arcs[:, :, 3] += size
    spans = rng.normal(size=(2, 4, 4)) + size
    root, rules, terminals = rng.normal(size=2) + size, rng.normal(size=(2, 5, 5)), rng.normal(size=(2, 4, 3))
    pairs = [small]
    pairs += [[make(arcs, backend=b) for b in ("kernel", "torch")] for make in (ProjectiveTree, SpanningTree)]
    pairs += [[SpanTree(spans, backend=b) for b in ("kernel", "torch")]]
    pairs += [[GrammarTree(root, rules, terminals, backend=b) for b in ("kernel", "torch")]]
    for ours, other in pairs:
        torch.testing.assert_close(other.log_partition(), ours.log_partition(), rtol=1e-12, atol=1e-9)
        torch.testing.assert_close(other.marginals(), ours.marginals(), rtol=0, atol=1e-6)


def test_impossible_is_exact_on_the_torch_path():
    scores = torch.full((1, 3, 3), -torch.inf, dtype=torch.float64, requires_grad=True)
    for make in (ProjectiveTree, SpanningTree, SpanTree):
        log_z = make(scores, backend="torch").log_partition()
        assert torch.isneginf(log_z).all()
        (gradient,) = torch.autograd.grad(torch.where(torch.isneginf(log_z), 0, log_z).sum(), scores)
        assert (gradient == 0).all()


def test_trw_with_a_subnormal_entry():
    for low in (-744.0, -400.0):
        table = np.array([[low, -2 * 372.0], [0.0, low]])
        graph = wire([2, 2], [Tables(np.array([[0, 1]]), np.array([0]), table[None, None])])
        result = trw.run(graph, weights=np.array([1.0]))
        assert np.isfinite(result.log_z).all()


def test_topk_needs_memory_for_what_exists():
    potentials = chain.chain_potentials(np.zeros((1, 2, 2)), np.zeros((2, 2)))
    labels, _ = chain.topk(potentials, 10**12)
    assert labels.shape == (1, 4, 2)
    assert len({tuple(row) for row in labels[0].tolist()}) == 4
    best = LinearChain(torch.zeros(1, 2, 2), torch.zeros(2, 2)).topk(6)
    assert best.labels.shape == (1, 6, 2)
    assert best.labels[0, 4:].tolist() == [[-1, -1]] * 2
    assert torch.isneginf(best.scores[0, 4:]).all()
    for make, size in ((ProjectiveTree, 3), (SpanningTree, 3), (SpanTree, 3)):
        for backend in ("kernel", "torch"):
            found = make(torch.zeros(1, size, size), backend=backend).topk(40)
            possible = found.scores[0] > -torch.inf
            assert 1 < possible.sum() < 40
            assert (found.labels[0][~possible] == -1).all()
    model = fitted("HMM")
    assert len(model.predict_topk([["a"]], 10**9)[0]) <= len(model.labels_)
    with pytest.raises(LimitError, match="best labelings of 50 positions"):
        LinearChain(torch.zeros(1, 50, 20), torch.zeros(20, 20)).topk(10**9)


def test_the_chain_cover_with_strong_scores_does_not_warn():
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (30.0, 300.0, 3000.0):
            tables = [DenseTable(size * rng.normal(size=(4, 4))) for _ in range(2)]
            bound = ChainCover(size * rng.normal(size=4), tables).tighten(optimize_weights=True, max_iter=6)
            assert np.isfinite(bound.value)
        table = ExpTable(DenseTable(np.array([[-1600.0, -800.0], [-2000.0, -2000.0]])))
        assert np.isfinite(table.mean_score(np.array([800.0, 0.0]), np.array([800.0, 0.0])))


# ---- what people pass to distributions


@pytest.mark.parametrize(
    "scores",
    [None, "scores", [["a"]], [[1.0, 2.0], [3.0]], object(), {"a": 1}, csr_matrix(np.eye(3)), torch.eye(3).to_sparse()],
    ids=lambda scores: type(scores).__name__,
)
def test_distributions_explain_what_they_need(scores):
    good = np.zeros((1, 3, 3))
    for make in (
        lambda: LinearChain(scores, np.zeros((3, 3))),
        lambda: LinearChain(good, scores),
        lambda: LinearChain(good, np.zeros((3, 3)), log_start=[[1.0], [1.0, 2.0]] if scores is None else scores),
        lambda: ProjectiveTree(scores),
        lambda: SpanTree(scores),
        lambda: GrammarTree(scores, np.zeros((1, 2, 2)), np.zeros((1, 3, 1))),
        lambda: LinearChain(good, np.zeros((3, 3)), lengths=[[1, 2], [3]] if scores is None else scores),
        lambda: LinearChain(good, np.zeros((3, 3))).log_prob(scores),
        lambda: FactorGraph([2, 2], [((0, 1), scores)]),
        lambda: FactorGraph([2, 2], [(scores, np.zeros((2, 2)))]),
        lambda: FactorGraph(scores),
        lambda: FactorGraph([2, 2]).log_prob(scores),
    ):
        with pytest.raises(TrellisworkError) as caught:
            make()
        assert len(str(caught.value)) < 500


def test_arrays_with_negative_strides_are_accepted():
    scores = np.random.default_rng(0).normal(size=(1, 4, 3))
    backwards = scores[:, ::-1]
    for make in (lambda s: LinearChain(s, np.zeros((3, 3))), lambda s: LinearChain(s, scores[0, 3:0:-1])):
        assert torch.equal(make(backwards).marginals(), make(backwards.copy()).marginals())


# ---- messages


def test_messages_truncate_long_tokens(tmp_path, command):
    token = "x" * 100_000
    columns = tmp_path / "train.txt"
    columns.write_text(f"{token} B-{token}\nb I-OTHER\n\n")
    code, _, err = command("train", "crf", columns, "--scheme", "bio", "--strict", "--out", tmp_path / "out")
    assert code == 1
    assert one_line(err)
    assert f"{columns}:2)" in err
    fitted("CRF").save(tmp_path / "crf")
    code, _, err = command("tag", tmp_path / "crf", columns, "--known", "1")
    assert code == 1
    assert one_line(err)
    assert f"{columns}:1: " in err
    code, _, err = command("inspect", tmp_path / "crf", "--label", token)
    assert code == 2
    assert len(err) < 2000
    for words in (
        ("data", "count", tmp_path / "blank.txt", "--out", tmp_path / "n"),
        ("train", "kneser-ney", tmp_path / "blank.txt"),
    ):
        (tmp_path / "blank.txt").write_text("\n \n")
        code, _, err = command(*words)
        assert code == 1
        assert "blank.txt: " in err
    with pytest.raises(TrellisworkError) as caught:
        CRF(f"%x[{token}").fit([["a"]], [["b"]])
    assert len(str(caught.value)) < 500
