"""Attribute strings for the peer equal the attributes of our presets."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.contenders.crf import chunking_attributes, pos_attributes
from trelliswork.data import bundled
from trelliswork.features.feature_map import FeatureMap


@pytest.mark.parametrize("preset", ["pos", "chunking"])
def test_attribute_strings_equal_the_preset(preset):
    sentences = bundled.load("test")[:40]
    if preset == "pos":
        X = [list(s.words) for s in sentences]
        strings = [token for x in X for token in pos_attributes(x)]
    else:
        X = [[list(pair) for pair in zip(s.words, s.tags, strict=True)] for s in sentences]
        strings = [token for x in X for token in chunking_attributes(x)]
    features = FeatureMap(preset)
    attributes = features.fit(X)
    names = features.names()
    for i, token in enumerate(strings):
        ours = [
            names[k].removeprefix("U:") for k in attributes.ids[attributes.token_ptr[i] : attributes.token_ptr[i + 1]]
        ]
        assert sorted(ours) == sorted(token)
