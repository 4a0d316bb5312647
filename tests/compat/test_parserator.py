"""usaddress and probablepeople on `compat.pycrfsuite`: tokenizers, features and models, with one import changed."""

import importlib
import random
import sys

import pytest

from trelliswork.compat import pycrfsuite as ours
from trelliswork.records import read_records

FILES = {"usaddress": ["usaddress/train.xml", "usaddress/test.xml", "usaddress/us50-train.xml"],
         "probablepeople": ["probablepeople/person.xml"]}  # fmt: skip


def examples(data_dir, name):
    found = [e for file in FILES[name] for e in read_records(data_dir / "records" / file)]
    return [e for e in found if e.text]


def labeled(package, some):
    """The tokens of the package, and for each the field that has its first letter."""
    X, y = [], []
    for text, spans in some:
        tokens, labels, at = package.tokenize(text), [], 0
        for token in tokens:
            at = text.index(token, at)
            labels.append(next((s.type for s in spans if s.start < at + len(token) and at < s.stop), None))
            at += len(token)
        if tokens and None not in labels:
            X.append(package.tokens2features(tokens))
            y.append(labels)
    return X, y


@pytest.mark.slow  # real packages, real data
@pytest.mark.parametrize("name", sorted(FILES))
def test_their_own_models_and_functions_give_their_labels(data_dir, name, monkeypatch):
    package = pytest.importorskip(name)
    texts = [example.text for example in examples(data_dir, name)]
    expected = [package.parse(text) for text in texts]
    monkeypatch.setitem(sys.modules, "pycrfsuite", ours)
    changed = importlib.reload(package)
    assert [changed.parse(text) for text in texts] == expected
    monkeypatch.undo()
    importlib.reload(package)


@pytest.mark.slow  # real packages, real data
@pytest.mark.parametrize("params", [{}, {"c1": 0.1, "c2": 0.01}], ids=str)
@pytest.mark.parametrize("name", sorted(FILES))
def test_retrained_models_agree(data_dir, name, params, tmp_path):
    package, theirs = pytest.importorskip(name), pytest.importorskip("pycrfsuite")
    X, y = labeled(package, examples(data_dir, name))
    order = random.Random(0).sample(range(len(X)), len(X))
    train, test = order[len(X) // 5 :], order[: len(X) // 5]
    found, losses = [], []
    for module in (ours, theirs):
        trainer = module.Trainer(verbose=False, params={**params, "delta": 1e-6, "epsilon": 1e-5})
        for n in train:
            trainer.append(X[n], y[n])
        trainer.train(str(tmp_path / module.__name__))
        losses.append(trainer.logparser.last_iteration["loss"])
        tagger = module.Tagger()
        tagger.open(str(tmp_path / module.__name__))
        found.append([label for n in test for label in tagger.tag(X[n])])
    agreement = sum(a == b for a, b in zip(*found, strict=True)) / len(found[0])
    print(f"{name} {params}: objectives {losses[0]:.4f} and {losses[1]:.4f}, equal labels {agreement:.5f}")
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert agreement >= 0.999
