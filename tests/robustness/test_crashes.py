"""Crashes: saves and trainings that end at any file operation, kills, full disks, readers beside writers."""

import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.models.directories import weights_of
from tests.robustness.faults import DeadError, Faults, names
from tests.robustness.numbered import number, save
from tests.robustness.training import FAMILIES, train
from trelliswork.cli import app
from trelliswork.data.storage import MODEL, MOMENTS, load_model
from trelliswork.errors import DataError
from trelliswork.learning.checkpoint import Checkpoint

ROOT = Path(__file__).resolve().parents[2]


def whole(path, layout=MODEL):
    """Return the number of the model in a directory, which must be whole; 0 for none."""
    if not (path / layout.description).exists():
        return 0
    load_model(path, layout=layout)
    return number(path, layout)


@pytest.mark.parametrize("layout", [MODEL, MOMENTS], ids=["model", "moments"])
@pytest.mark.parametrize("how", ["crash", "full"])
@pytest.mark.parametrize("before", ["nothing", "empty", "model", "crashed"])
def test_a_save_that_ends_at_any_operation(before, how, layout, tmp_path, monkeypatch):
    """The directory has the old or the new model, and the next save works and leaves nothing else."""
    n_failed = 0
    for n in itertools.count(1):
        path = tmp_path / str(n)
        if before == "empty":
            path.mkdir()
        elif before != "nothing":
            save(path, 1, layout)
        if before == "crashed":
            with Faults(path, 5).active(monkeypatch), pytest.raises(DeadError):
                save(path, 3, layout)
        old, files = whole(path, layout), names(path)
        failure = None
        with Faults(path, n, how).active(monkeypatch) as faults:
            try:
                save(path, 2, layout)
            except (DeadError, DataError) as error:
                failure = str(error)
        if failure is None:
            assert whole(path, layout) == 2
        elif how == "full":
            assert "cannot be saved: No space left on device. What was there is unchanged." in failure
            assert whole(path, layout) == old
            assert names(path) == files
        else:
            assert whole(path, layout) in (old, 2)
        n_failed += failure is not None
        save(path, 4, layout)
        assert whole(path, layout) == 4
        assert len(names(path)) == 2
        if not faults.failed:
            break
    assert n_failed >= 6


def started(*arguments):
    """Start a Python program and wait for its first line."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    child = subprocess.Popen([sys.executable, *map(str, arguments)], cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    return child


def ended(child):
    """Kill a program that may have ended."""
    child.send_signal(signal.SIGKILL)
    child.communicate()


def check_readers_and_writers(path, n_loads):
    """Load a model that two programs replace all the time, then kill them; return the numbers of the models."""
    writers = [started("-m", "tests.robustness.numbered", path, k) for k in (0, 3)]
    try:
        seen, deadline = [], time.monotonic() + 60
        while len(seen) < n_loads or (len(set(seen)) < 3 and time.monotonic() < deadline):  # a busy machine is slow
            seen.append(number(path))
    finally:
        for writer in writers:
            ended(writer)
    number(path)
    save(path, 8)
    assert number(path) == 8
    assert len(names(path)) == 2
    return seen


def test_readers_beside_two_writers_see_whole_models(tmp_path):
    assert len(set(check_readers_and_writers(tmp_path / "m", 200))) > 2


@pytest.mark.slow
def test_many_readers_beside_writers_that_are_killed(tmp_path):
    for _ in range(20):
        check_readers_and_writers(tmp_path / "m", 300)


def weights(model, folder):
    """Return the name of the file of the weights, which has their checksum."""
    model.save(folder)
    return weights_of(folder).name


def check_dying_trainings(family, folder, monkeypatch, n_deaths):
    """Let a training die at random file operations; each resumed one ends with the weights of an undisturbed one."""
    whole = weights(train(family), folder / "whole")
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    (folder / "run").mkdir()
    state, out = folder / "run" / "state", folder / "run" / "model"
    with Faults(folder / "run", -1).active(monkeypatch) as counter:
        assert weights(train(family, checkpoint=state), out) == whole
    assert names(out.parent) == ["model"]
    # The last operations, between the end of training and that of saving, and some at random.
    last = list(range(counter.count - 20, counter.count + 1))
    rng = np.random.default_rng(0)
    for n in [
        *rng.choice(last, n_deaths // 2, replace=False),
        *rng.integers(1, counter.count, n_deaths - n_deaths // 2),
    ]:
        with Faults(folder / "run", n).active(monkeypatch), pytest.raises(DeadError):
            train(family, checkpoint=state).save(out)
        if out.exists():
            assert "model.json" not in names(out) or weights_of_loadable(out) == whole
        assert weights(train(family, checkpoint=state), out) == whole, n
        assert names(out.parent) == ["model"], n
        shutil.rmtree(out)


def weights_of_loadable(out):
    """Return the name of the file of weights that a description names, after loading it."""
    (name,) = load_model(out)[0]["files"]
    return name


@pytest.mark.parametrize("family", ["crf", "sgd", "hmm"])
def test_a_training_that_dies_at_a_file_operation(family, tmp_path, monkeypatch):
    check_dying_trainings(family, tmp_path, monkeypatch, 6)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_trainings_that_die_at_file_operations(family, tmp_path, monkeypatch):
    check_dying_trainings(family, tmp_path, monkeypatch, 20)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_killed_trainings_end_with_the_same_weights(family, tmp_path):
    """Kill -9 at random instants, again and again, until the training has ended."""
    begin = time.monotonic()
    child = started("-m", "tests.robustness.training", family, tmp_path / "whole", tmp_path / "state")
    child.communicate()
    assert child.returncode == 0
    seconds = time.monotonic() - begin
    rng, out, n_kills = np.random.default_rng(0), tmp_path / "model", 0
    while n_kills < 6:
        child = started("-m", "tests.robustness.training", family, out, tmp_path / "state")
        try:
            child.wait(rng.uniform(0, seconds / 3))
        except subprocess.TimeoutExpired:
            n_kills += 1
        ended(child)
        assert not (out / "model.json").exists() or weights_of_loadable(out) == weights_of(tmp_path / "whole").name
    child = started("-m", "tests.robustness.training", family, out, tmp_path / "state")
    child.communicate()
    assert child.returncode == 0
    assert weights_of(out).name == weights_of(tmp_path / "whole").name
    assert names(tmp_path) == ["model", "whole"]


TEXT = "a b c\nb c d e\n" * 20
COMMANDS = {
    "train": ("train", "kneser-ney", "text", "--order", "2"),
    "count": ("data", "count", "text"),
}


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text(TEXT)
    return tmp_path


def run(command, *options):
    return CliRunner().invoke(app, [*COMMANDS[command], "--quiet", *options])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_saves_elsewhere_and_says_where(command, text, monkeypatch):
    """The old model is intact, and the new one is in the temporary directory."""
    assert run(command, "--out", "disk/m").exit_code == 0
    before = {p.name: p.read_bytes() for p in (text / "disk" / "m").iterdir()}
    (text / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(text / "elsewhere"))
    with Faults(text / "disk", 1, "full").active(monkeypatch):
        done = run(command, "--out", "disk/m", "--force")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: disk/m: cannot be saved: No space left on device.")
    assert line.endswith(f"Saved in {text / 'elsewhere' / 'm-1'} instead.")
    assert {p.name: p.read_bytes() for p in (text / "disk" / "m").iterdir()} == before
    assert names(text / "disk") == ["m"]
    assert names(text / "elsewhere" / "m-1") == sorted(before)
    with Faults(text, 1, "full").active(monkeypatch):  # nowhere
        done = run(command, "--out", "disk/m", "--force")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert "Saved in" not in done.stderr
    assert names(text / "disk") == ["m"]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_appears_during_training_is_not_deleted(command, text, monkeypatch):
    """A file of somebody else in --out is noticed when the model is saved: it goes beside."""
    for name in ("trelliswork.cli.train.command.check_out", "trelliswork.cli.data.check_out"):
        monkeypatch.setattr(name, lambda *args, **options: None)
    (text / "m").mkdir()
    (text / "m" / "thesis.txt").write_text("years of work")
    (text / "m-1").mkdir()
    done = run(command, "--out", "m")
    assert done.exit_code == 1
    assert "it contains 'thesis.txt'" in done.stderr
    assert done.stderr.strip().endswith(f"Saved in {text / 'm-2'} instead.")
    assert names(text / "m") == ["thesis.txt"]
    assert len(names(text / "m-2")) == 2


def test_a_limit_on_the_size_of_files(tmp_path):
    """A real failure of the operating system in the middle of a file."""
    save(tmp_path / "m", 1)
    before = names(tmp_path / "m")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises(DataError, match="cannot be saved: File too large"):
            save(tmp_path / "m", 50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert names(tmp_path / "m") == before
    assert number(tmp_path / "m") == 1


def test_a_small_disk(tmp_path):
    """A disk of 64 kB; needs the right to mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        save(disk / "m", 1)
        with pytest.raises(DataError, match="cannot be saved: No space left on device"):
            save(disk / "m", 100)
        assert number(disk / "m") == 1
        assert len(names(disk / "m")) == 2
        save(disk / "m", 2)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("text", "expected a directory, got a file"),
        ("text/below", "text is not a directory|Not a directory"),
        ("other", "it contains 'notes'"),
        (".", "it contains"),
        ("", "empty name"),
    ],
)
def test_out_is_checked_before_the_work(command, out, message, text, monkeypatch):
    def never(*args, **options):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("trelliswork.models.baselines.kneser_ney.KneserNey.fit", never)
    monkeypatch.setattr("trelliswork.data.moments.count_moments", never)
    (text / "other").mkdir()
    (text / "other" / "notes").write_text("mine")
    before = sorted(text.rglob("*"))
    done = run(command, "--out", out)
    assert done.exit_code == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.search(message, line), line
    assert sorted(text.rglob("*")) == before


def test_files_of_a_command_stay_out_of_the_model(text):
    """A checkpoint or a report in the directory of the model would keep the next save from replacing it."""
    (text / "m").mkdir()
    for option in ("--checkpoint", "--report"):
        arguments = ["train", "hmm", "text", "--out", "m", option, "m/file.html", "--quiet"]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 1
        assert "m/file.html: expected a file outside of --out m" in done.stderr
    assert names(text / "m") == []
