"""Large texts for benchmarks."""

import gzip

from benchmarks.text import write
from trelliswork.data.ids import read_ids


def test_texts_are_reproducible_and_grow(tmp_path):
    source = tmp_path / "source"
    source.write_text("".join(f"the cat{k % 17} saw dog{k % 29} .\n" for k in range(300)))
    plain = write([source], tmp_path / "plain", 9000, shards=2)
    packed = write([source], tmp_path / "packed", 9000, shards=2, packed=True)
    for a, b in zip(plain, packed, strict=True):
        assert gzip.decompress(b.read_bytes()) == a.read_bytes()
    text, small = read_ids(plain), read_ids(write([source], tmp_path / "small", 900))
    assert len(text.ids) == 9000
    assert len(small.ids) == 900
    assert len(text.vocabulary) > len(small.vocabulary) > len(read_ids([source]).vocabulary) == 50
    assert plain[0].read_bytes() != plain[1].read_bytes()
    assert write([source], tmp_path / "other", 9000, seed=1)[0].read_bytes()[:1000] != plain[0].read_bytes()[:1000]
