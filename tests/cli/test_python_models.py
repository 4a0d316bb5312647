"""Commands on taggers that were fitted in Python: the first column has words, the others labels."""

import json
import warnings

import pytest

from tests.commands import run
from trelliswork import CRF, HMM, FactorialCRF, bundled


@pytest.mark.parametrize(
    "tagger", [CRF("pos", max_iter=10), HMM(), FactorialCRF(("pos", "chunk"), features="pos", max_iter=3)], ids=type
)
def test_tag_and_evaluate(tagger, tmp_path) -> None:
    sentences = bundled.load("train")[:60]
    layered = isinstance(tagger, FactorialCRF)
    labels = [list(zip(s.tags, s.chunks, strict=True)) if layered else s.tags for s in sentences]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations
        tagger.fit([s.words for s in sentences], labels)
    tagger.save(tmp_path / "tagger")
    done = run("evaluate", str(tmp_path / "tagger"), "--bundled", "--json")
    assert done.returncode == 0, done.stderr
    assert "accuracy" in json.dumps(json.loads(done.stdout))
    (tmp_path / "words.txt").write_text("They\nsleep\n.\n")
    done = run("tag", str(tmp_path / "tagger"), str(tmp_path / "words.txt"))
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line]
    assert [row[0] for row in rows] == ["They", "sleep", "."]
    assert {len(row) for row in rows} == {3 if layered else 2}
