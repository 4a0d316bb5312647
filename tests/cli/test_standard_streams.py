"""Standard streams that are closed or cannot write a character, and outputs in gzip."""

import gzip
import os
import subprocess
import sys

import pytest

from trelliswork import CRF, bundled


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    train = bundled.load("train")[:20]
    path = tmp_path_factory.mktemp("streams") / "tagger"
    CRF("pos", tol=0.1).fit([list(s.words) for s in train], [list(s.tags) for s in train]).save(path)
    return path


def shell(command, tagger, **environment):
    """Run a shell command, in which $T is the command line with a tagger."""
    names = {"T": f"{sys.executable} -m trelliswork", "M": str(tagger)}
    return subprocess.run(
        command, shell=True, capture_output=True, env=os.environ | names | environment, text=True, encoding="utf-8"
    )


def last_line(done):
    """Return the last line of what a command says; the first ones may tell that kernels are compiled."""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_nothing_is_written_to_a_closed_standard_output(tagger, tmp_path):
    done = shell(f"echo 'A dog .' | $T tag $M --format text --out {tmp_path}/out.txt >&-", tagger)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.txt").read_text().count("\n") == 4


def test_closed_streams_are_empty(tagger):
    assert shell("echo 'A dog .' | $T tag $M --format text >&-", tagger).returncode == 0
    done = shell("$T tag $M - <&-", tagger)
    assert done.returncode == 1, done.stderr
    assert "at least one sentence" in last_line(done)


def test_an_encoding_that_lacks_a_character_is_named(tagger):
    done = shell("echo 'Ägypten .' | $T tag $M --format text", tagger, PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert r"the output has '\xc4', which ascii cannot write. Set PYTHONIOENCODING=utf-8" in done.stderr
    assert "bug" not in done.stderr


def test_names_that_end_in_gz_are_written_with_gzip(tagger, tmp_path):
    text = "A dog sleeps .\nCats Ä .\n" * 500
    (tmp_path / "in.txt").write_text(text, encoding="utf-8")
    for name in ("a.txt", "b.txt.gz"):
        done = shell(f"$T tag $M {tmp_path}/in.txt --format text --out {tmp_path}/{name}", tagger)
        assert done.returncode == 0, done.stderr
    packed = (tmp_path / "b.txt.gz").read_bytes()
    assert len(packed) < (tmp_path / "a.txt").stat().st_size / 5
    assert gzip.decompress(packed) == (tmp_path / "a.txt").read_bytes()
    again = shell(f"$T tag $M {tmp_path}/b.txt.gz --format text --out {tmp_path}/b.txt.gz", tagger)
    assert "would replace the input" in again.stderr
    assert not list(tmp_path.glob(".*"))


def test_output_that_cannot_be_written_is_one_error():
    words = [sys.executable, "-m", "trelliswork", "data", "bundled", "--limit", "1"]
    full = subprocess.run(["bash", "-c", f"{' '.join(words)} > /dev/full"], capture_output=True, text=True)
    assert full.returncode == 1
    assert full.stderr.startswith("error: ")
    assert full.stderr.count("\n") == 1
