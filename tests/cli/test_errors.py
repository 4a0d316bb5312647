"""Whatever goes wrong in a command ends at once, in one line that says what is wrong."""

import signal
import subprocess
import sys
import tempfile
import time
from copy import copy

import pytest

import trelliswork.cli
from tests.models.fitted import fitted
from trelliswork import CRF
from trelliswork.cli.running import settings
from trelliswork.compute import limits
from trelliswork.errors import TrellisworkError

DIGITS = "9" * 5000


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


def test_an_error_while_options_are_read_is_one_line(command, monkeypatch):
    monkeypatch.setattr("trelliswork.cli.resolve_name", lambda name: 1 / 0)
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


def test_a_model_with_absurd_content(command, tmp_path):
    fitted("HMM").save(tmp_path / "model")
    (tmp_path / "model" / "model.json").write_text("[" * 100_000)
    code, _, err = command("inspect", tmp_path / "model")
    assert code == 1
    assert one_line(err)


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
        (("train", "log-bilinear", columns, "--rank", 10**9), "rank 1,000,000,000"),
        (("train", "mrf-lm", columns, "--rank", 10**9), "rank 1,000,000,000"),
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
