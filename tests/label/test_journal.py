"""Answers that were acknowledged are never lost."""

import json
import os
import random
import signal
import subprocess
import sys

import pytest

from trelliswork.errors import DataError
from trelliswork.label.journal import Journal

HEAD = {"pool": "abc", "sentences": 3}
# Appends numbers and says so; each number that it says must be there afterwards.
WRITER = """
import sys
from pathlib import Path
from trelliswork.label.journal import Journal
journal = Journal(Path(sys.argv[1]), {"pool": "abc", "sentences": 3})
n = len(journal.entries)
while True:
    journal.append({"n": n, "padding": "x" * (n * 37 % 9000)})
    print(n, flush=True)
    n += 1
"""


def test_a_replay_gives_what_was_appended(tmp_path):
    journal = Journal(tmp_path / "j", HEAD)
    entries = [{"n": n, "text": "ä" * n} for n in range(5)]
    for entry in entries:
        journal.append(entry)
    journal.close()
    again = Journal(tmp_path / "j", HEAD)
    assert again.entries == entries
    again.close()


@pytest.mark.parametrize("cut", range(1, 24))
def test_an_unfinished_line_is_cut_off(tmp_path, cut):
    journal = Journal(tmp_path / "j", HEAD)
    journal.append({"n": 1})
    journal.append({"n": 2, "text": "ä unfinished"})
    journal.close()
    raw = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(raw[:-cut])
    again = Journal(tmp_path / "j", HEAD)
    assert again.entries == [{"n": 1}]
    again.append({"n": 3})
    again.close()
    last = Journal(tmp_path / "j", HEAD)
    assert last.entries == [{"n": 1}, {"n": 3}]
    last.close()


def test_two_servers_on_one_output_are_refused(tmp_path):
    first = Journal(tmp_path / "j", HEAD)
    with pytest.raises(DataError, match="another server"):
        Journal(tmp_path / "j", HEAD)
    first.close()
    Journal(tmp_path / "j", HEAD).close()


def test_the_journal_of_another_pool_is_refused(tmp_path):
    Journal(tmp_path / "j", HEAD).close()
    with pytest.raises(DataError, match="of another pool"):
        Journal(tmp_path / "j", HEAD | {"pool": "other"})


def test_an_entry_that_cannot_be_written_leaves_the_others(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "j", HEAD)
    journal.append({"n": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="could not be saved: No space"):
            journal.append({"n": 2})
    journal.append({"n": 3})
    journal.close()
    again = Journal(tmp_path / "j", HEAD)
    assert again.entries == [{"n": 1}, {"n": 3}]
    again.close()


def kill_at_random(path, times: int) -> None:
    """Kill a writer that often: all numbers it said are there, in order, at most one more."""
    rng = random.Random(times)
    n = 0
    for _ in range(times):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
        for _ in range(rng.randrange(1, 30)):
            said = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        writer.wait()
        writer.stdout.close()
        said = max([said, *rest])
        journal = Journal(path, HEAD)
        assert [entry["n"] for entry in journal.entries] == list(range(len(journal.entries)))
        assert said + 1 <= len(journal.entries) <= said + 2
        assert len(journal.entries) > n
        n = len(journal.entries)
        journal.close()
        for line in path.read_bytes().split(b"\n")[:-1]:
            json.loads(line)


def test_kills_at_random_moments_lose_no_acknowledged_answer(tmp_path):
    kill_at_random(tmp_path / "j", 30)


@pytest.mark.slow  # a process each
def test_a_thousand_kills_lose_no_acknowledged_answer(tmp_path):
    kill_at_random(tmp_path / "j", 1_000)
