"""The Penn Treebank experiment on a tiny text: its parts, the best of them, times and memory."""

import pytest

from experiments import mrf_ptb as ptb
from trelliswork.data import bundled
from trelliswork.models import MRFLanguageModel


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptb")
    for part, name, n in (("train", "train", 60), ("dev", "valid", 20)):
        known = {w for s in bundled.load("train")[:60] for w in s.words}
        lines = [" ".join(w if w in known else "<unk>" for w in s.words) for s in bundled.load(part)[:n]]
        (folder / f"ptb.{name}.txt").write_text("\n".join([*lines, "<unk>"]) + "\n")
    return folder


def test_every_part_is_a_row_and_the_best_is_reported(folder, monkeypatch):
    starts = []
    fit = MRFLanguageModel.fit
    monkeypatch.setattr(
        MRFLanguageModel,
        "fit",
        lambda self, *a, **o: (starts.append((self.window, o.get("start"))), fit(self, *a, **o))[1],
    )
    parts = [part for part in ptb.PARTS if part not in ("rank100", "k1-rank100", "lbl100", "k4")]
    table = ptb.mrf_ptb(folder, parts=parts, rank=4, quick=True, estimates=False)
    assert len(table.rows) == len(parts)
    assert all(len(row) == len(table.columns) for row in table.rows)
    names = [str(row[0]) for row in table.rows]
    assert [(window, start.window) for window, start in starts if start is not None] == [(2, 1)]  # from-k1
    means = {name: float(row[table.columns.index("sentences")]) for name, row in zip(names, table.rows, strict=True)}
    fields = {name: mean for name, mean in means.items() if name.startswith("K=")}
    best = max(fields, key=fields.get)
    assert any(note.startswith(f"Best bound of sentences: {best}, {fields[best]:.4f}") for note in table.notes)
    lbl = means["left-context log-bilinear, K=2, rank 4"]
    of_rank = max((mean, name) for name, mean in fields.items() if "rank 4" in name)
    note = next(note for note in table.notes if note.startswith("Of rank 4"))
    assert f"{of_rank[1]}: {of_rank[0] - lbl:+.3f}" in note
    distance = of_rank[0] - lbl
    assert ("above it" in note, "not within" in note) == (distance >= 0, distance < -ptb.NEAR)
    figures = {figure.row: figure for figure in table.figures}
    assert 0.01 < figures["peak resident memory of the process"].ours < 100
    lifted = [name for name in fields if "pseudo" not in name]
    for name, row in zip(names, table.rows, strict=True):
        at = row[table.columns.index("best s")]
        assert (at is not None) == (name in lifted)
        if at is not None:
            assert 0 < at <= row[-1]
            assert figures[f"{name}: time of the best validation bound"].ours == at


def test_a_start_that_is_not_among_the_parts_is_trained(folder):
    lines = []
    table = ptb.mrf_ptb(folder, parts=["from-k1"], rank=2, quick=True, estimates=False, say=lines.append)
    assert len(table.rows) == 1
    assert any("training K=1 as a start" in line for line in lines)
    assert any("no log-bilinear model" in note for note in table.notes)
