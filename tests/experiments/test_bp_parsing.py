"""The parsing experiment on a small treebank with the names of the real one."""

from experiments.bp_parsing import bp_parsing
from trelliswork.data import bundled
from trelliswork.data.writers import write_conllu


def test_table_figures_and_progress(tmp_path):
    for part, n in (("train", 60), ("test", 20)):
        with (tmp_path / f"en_ewt-ud-{part}.conllu").open("w") as file:
            write_conllu(bundled.load(part)[:n], file)
    said = []
    table = bp_parsing(tmp_path, n_sentences=50, say=said.append, hash_bits=14, batch_size=8)
    assert [row[0] for row in table.rows] == [1, 2]
    assert all(50 < row[1] <= 100 and row[2] <= row[1] for row in table.rows)
    assert len(table.figures) == 8
    assert {figure.unit for figure in table.figures} == {"%", "s", "sentences/s"}
    assert len(table.curves[1].y) == 6
    assert "Gain of order 2" in table.notes[0]
    assert said[0].startswith("order 1, epoch 1")
