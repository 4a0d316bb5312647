"""Real starts of ``torchrun``: one message for an error, failures, restarts, Ctrl-C, and two machines."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import run
from tests.processes import free_port
from trelliswork.cli.progress import interruptible
from trelliswork.compute.sharing import Group, sharing

pytestmark = pytest.mark.programs


TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TRELLISWORK_THREADS": "1"}
# Runs the command line; rank 1 of the first attempt does something to itself after an iteration.
SCRIPT = """
import os, signal, sys, time
from trelliswork.cli import main
from trelliswork.cli.train import command
from trelliswork.learning.checkpoint import Checkpoint

Checkpoint.__init__.__kwdefaults__["every"] = 0.0
what, at, n = sys.argv.pop(1), int(sys.argv.pop(1)), [0]
usual = command.training_progress

def progress(*options):
    from contextlib import contextmanager

    @contextmanager
    def inner():
        with usual(*options) as callback:
            def called(step):
                stop = callback(step)
                first = os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
                if what == "KILL" and step.iteration == at and first:
                    os.kill(os.getpid(), signal.SIGKILL)
                if what == "WAIT":
                    if step.iteration == at and os.environ["RANK"] == "0":
                        open(os.environ["READY"], "w").close()
                    time.sleep(0.1)
                return stop
            yield called
    return inner()

command.training_progress = progress
main()
"""


def torchrun(*words, nodes=(), size=2, **options):
    command = [*TORCHRUN, *(nodes or ["--standalone"]), "--nproc-per-node", str(size), *map(str, words)]
    return subprocess.Popen(
        command, env=ENVIRONMENT | options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torchrun")
    (folder / "train.txt").write_text(run("data", "bundled", "--limit", "40", "--format", "columns").stdout)
    (folder / "script.py").write_text(SCRIPT)
    return folder


TRAIN = ["train", "crf", "--max-iter", "12", "--tol", "0", "--quiet"]


def test_training_tells_once_what_all_have_done(folder, tmp_path):
    command = ["-m", "trelliswork", *TRAIN, folder / "train.txt", "--json", "--out", tmp_path / "model"]
    code, out, err = ended(torchrun(*command))
    assert code == 0, err
    outcome = json.loads(out)  # printed once
    assert outcome["sentences"] == 40
    assert len(outcome["processes"]) == 2
    assert run("evaluate", tmp_path / "model", folder / "train.txt").returncode == 0


@pytest.mark.slow
def test_an_existing_model_is_refused_once(folder, tmp_path):
    done = run(*TRAIN, folder / "train.txt", "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    before = (tmp_path / "model" / "model.json").read_bytes()
    command = ["-m", "trelliswork", *TRAIN, folder / "train.txt", "--out", tmp_path / "model"]
    code, out, err = ended(torchrun(*command))
    assert (code, out, err.count("--force")) == (1, "", 1)
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    assert ended(torchrun(*command, "--force"))[0] == 0


@pytest.mark.slow
def test_bad_input_is_told_once(folder, tmp_path):
    lines = (folder / "train.txt").read_text().splitlines()
    last = max(k for k, line in enumerate(lines) if line)
    lines[last] += " more"
    (tmp_path / "bad.txt").write_text("\n".join(lines))
    code, out, err = ended(torchrun("-m", "trelliswork", *TRAIN, tmp_path / "bad.txt", "--out", tmp_path / "model"))
    assert code == 1
    assert out == ""
    assert err.count("error: ") == 1
    assert f"error: {tmp_path}/bad.txt:{last + 1}: expected 3 columns, as in line " in err
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_usage_errors_are_told_once(tmp_path):
    code, out, err = ended(torchrun("-m", "trelliswork", "train", "crf", "--max-iter", "many"))
    assert (code, out, err.count("Invalid value for '--max-iter'")) == (1, "", 1)


@pytest.mark.slow
def test_work_of_one_process_is_refused_in_one_line(tmp_path):
    script = Path(sys.executable).with_name("trelliswork")
    command = [script] if script.exists() else ["-m", "trelliswork"]
    code, out, err = ended(torchrun(*command, "demo", "--out", tmp_path / "demo"))
    assert (code, out) == (1, "")
    assert re.findall("error: .*", err) == ["error: 'demo' is the work of one process: start it without torchrun."]


@pytest.mark.slow
@pytest.mark.slow
def test_training_in_small_steps_is_refused_in_one_line(tmp_path):
    code, out, err = ended(torchrun("-m", "trelliswork", "train", "parser", "--bundled", "--out", tmp_path / "model"))
    assert (code, out) == (1, "")  # that of torchrun
    assert re.findall("error: .*", err)[0].startswith("error: training a parser takes small steps")
    assert err.count("error: training") == 1
    assert re.search(r"exitcode\s*: 2", err)


def test_a_killed_rank_ends_the_others(folder, tmp_path):
    started = time.monotonic()
    command = [folder / "script.py", "KILL", 5, *TRAIN, folder / "train.txt", "--out", tmp_path / "model"]
    code, _, err = ended(torchrun(*command, size=3))
    assert time.monotonic() - started < 30 + 15  # the start
    assert code == 1
    assert "rank 1 of 3 ended" in err or re.search(r"rank\s*: 1 .*\n.*exitcode\s*: -9", err)
    assert not (tmp_path / "model").exists()


def weights(model):
    (file,) = model.glob("weights-*.safetensors")
    return file.read_bytes()


@pytest.mark.slow
def test_a_restarted_group_goes_on_from_the_checkpoint(folder, tmp_path):
    options = [*TRAIN, folder / "train.txt", "--checkpoint", tmp_path / "state"]
    code, _, err = ended(torchrun(folder / "script.py", "KILL", 99, *options, "--out", tmp_path / "undisturbed"))
    assert code == 0, err
    killed = torchrun(
        "--max-restarts", "1", folder / "script.py", "KILL", 5, *options, "--json", "--out", tmp_path / "killed"
    )
    code, out, err = ended(killed)
    assert code == 0, err
    assert "exitcode: -9" in err  # it was killed indeed
    assert json.loads(out)["iterations"] == 12
    assert weights(tmp_path / "killed") == weights(tmp_path / "undisturbed")
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_ctrl_c_saves_once(folder, tmp_path):
    ready = tmp_path / "ready"
    options = ["train", "crf", "--max-iter", "500", "--tol", "0", "--quiet", "--json", folder / "train.txt"]
    process = torchrun(folder / "script.py", "WAIT", 3, *options, "--out", tmp_path / "model", READY=str(ready))
    until = time.monotonic() + 60
    while not ready.exists() and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, out, err = ended(process)
    assert err.count("stopping after this iteration") == 1
    outcome = json.loads(out)
    assert 3 <= outcome["iterations"] < 500
    assert run("inspect", tmp_path / "model").returncode == 0


def test_signals_of_one_ctrl_c(monkeypatch):
    group = Group()
    group.size = 2
    with sharing(group), interruptible() as pressed:
        for _ in range(2):  # from the terminal and from torchrun
            signal.raise_signal(signal.SIGINT)
        assert pressed()
        monkeypatch.setattr("trelliswork.cli.progress.SAME_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with interruptible():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_two_machines(folder, tmp_path):
    nodes = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    command = ["-m", "trelliswork", *TRAIN, folder / "train.txt", "--json", "--out", tmp_path / "model"]
    machines = [torchrun(*command, nodes=nodes, size=1, GLOO_SOCKET_IFNAME="lo") for _ in range(2)]
    results = [ended(machine) for machine in machines]
    assert [code for code, _, _ in results] == [0, 0], results
    outputs = [out for _, out, _ in results if out]
    assert len(outputs) == 1
    assert json.loads(outputs[0])["sentences"] == 40
