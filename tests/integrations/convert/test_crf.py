"""Models of CRFsuite, CRF++ and Wapiti answer here as there; the tools themselves are used where they are installed."""

import os
import shutil
import struct
import subprocess
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.commands import run
from tests.conftest import ROOT
from trelliswork import CRF, bundled, convert, load, read_columns
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.integrations.convert.crf import wapiti_template
from trelliswork.integrations.convert.crf_models import read_crfpp_model, read_wapiti_model

TEMPLATES = "U0:%x[0,0]\nU1:%x[-2,1]/%x[0,1]\nU2:%x[1,0]/%x[2,0]/%x[0,0]\nU3\nB\nB1:%x[-1,1]/%x[0,1]"


@pytest.fixture(scope="module")
def data():
    """Return sentences of words and tags, and their chunks: CoNLL-2000 where it is, else the bundled corpus."""
    folder = Path(os.environ.get("TRELLISWORK_DATA") or ROOT.parent / "shared" / "data") / "conll2000"
    if folder.is_dir():
        corpus = read_columns(folder / "train.txt")
        columns = [corpus.sentences(c)[:120] for c in range(3)]
    else:
        sentences = bundled.load("train")[:120]
        columns = [[list(getattr(s, name)) for s in sentences] for name in ("words", "tags", "chunks")]
    # a value with the separator of a template, so that strings and not tuples must be compared
    columns[0][0][0], columns[0][1][0] = "a/b", "a"
    X = [list(zip(words, tags, strict=True)) for words, tags in zip(*columns[:2], strict=True)]
    return X, columns[2]


@pytest.fixture(scope="module")
def crf(data):
    X, y = data
    return CRF(TEMPLATES, l2=0.5, scheme=None, tol=0.05).fit(X[:80], y[:80])


def marginals(model, X):
    labels = sorted(model.labels_)
    return [
        np.array([[token[label] for label in labels] for token in sentence]) for sentence in model.predict_marginals(X)
    ]


def assert_same(ours, theirs, X, atol=1e-5):
    assert ours.predict(X) == theirs.predict(X)
    for a, b in zip(marginals(ours, X), marginals(theirs, X), strict=True):
        assert_allclose(a, b, atol=atol)


def attributes(sentence, t):
    word, tag = sentence[t]
    return [f"w={word}", f"t={tag}", f"t-1={sentence[t - 1][1]}" if t else "__BOS__"]


def test_a_crfsuite_model_answers_as_crfsuite(data, tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    X, y = [[attributes(s, t) for t in range(len(s))] for s in data[0]], data[1]
    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"max_iterations": 20})
    for sentence, labels in zip(X[:80], y[:80], strict=True):
        trainer.append(sentence, labels)
    trainer.train(str(tmp_path / "chunker.crfsuite"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "chunker.crfsuite"))
    done = run("convert", tmp_path / "chunker.crfsuite", "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    model = load(tmp_path / "model")
    ours = model.predict_marginals(X)
    assert model.predict(X) == [tagger.tag(sentence) for sentence in X]
    for sentence, rows in zip(X[::7], ours[::7], strict=True):
        tagger.set(sentence)
        theirs = [{label: tagger.marginal(label, t) for label in tagger.labels()} for t in range(len(sentence))]
        for row, other in zip(rows, theirs, strict=True):
            assert_allclose([row[label] for label in other], list(other.values()), atol=1e-5)
    damaged = (tmp_path / "chunker.crfsuite").read_bytes()
    for cut in (30, 60, 2000, len(damaged) // 2):
        (tmp_path / "cut.crfsuite").write_bytes(damaged[:cut])
        with pytest.raises(DataError, match="damaged or incomplete"):
            convert(tmp_path / "cut.crfsuite")


def crfpp_features(crf):
    """Return the names of a CRF's features, each with its weights by label or pair of labels, as CRF++ has them."""
    learned, S = crf._learned, len(crf.labels_)
    names, edge_names, layout = crf._learned.features.names(), crf._learned.features.edge_names(), crf._learned.layout
    weights = defaultdict(lambda: np.zeros(S))
    edges = defaultdict(lambda: np.zeros(S * S))
    at = learned.n_grams
    edges["B"][layout.transitions] = crf._learned.weights[:at]
    for a, label, w in zip(layout.attributes, layout.labels, crf._learned.weights[at:], strict=False):
        weights[names[a]][label] += w
    for a, pair, w in zip(
        layout.edge_attributes, layout.edge_pairs, crf._learned.weights[layout.first_edge :], strict=True
    ):
        edges[edge_names[a]][pair] += w
    return dict(sorted((weights | edges).items()))


def write_crfpp(crf, path):
    """Write a CRF as ``crf_learn -t`` does."""
    features, at, lines, values = crfpp_features(crf), 0, [], []
    for name, weights in features.items():
        lines.append(f"{at} {name}")
        values += [f"{w:.16f}" for w in weights]
        at += len(weights)
    text = [f"version: 100\ncost-factor: 1\nmaxid: {at}\nxsize: 2\n", *(f"{x}" for x in crf.labels_), ""]
    text += [*TEMPLATES.split("\n"), "", *lines, "", *values]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


def test_a_crfpp_model_answers_as_the_model_it_was_written_from(crf, data, tmp_path):
    path = write_crfpp(crf, tmp_path / "model.txt")
    converted = convert(path)
    X = data[0][:2] + data[0][90:]
    X_plain = [s for s in X if not any("/" in word for word, _ in s)]  # where tuples and strings mean the same
    assert_same(converted, crf, X_plain)
    assert {t.name for t in converted.features} == set(TEMPLATES.split("\n")) - {"B"}
    converted.save(tmp_path / "saved")
    assert_same(load(tmp_path / "saved"), converted, X, atol=0)
    (tmp_path / "in.txt").write_text("".join(f"{w} {t}\n" for w, t in X[3]))
    assert run("convert", path, "--out", tmp_path / "cli").returncode == 0
    done = run("tag", tmp_path / "cli", tmp_path / "in.txt")
    assert [line.split()[-1] for line in done.stdout.split("\n") if line] == converted.predict([X[3]])[0]


def double_array(names):
    """Return the units of a double-array trie (Darts), as the models of CRF++ have it: name to number."""
    trie = {}
    for name, value in names.items():
        node = trie
        for byte in name.encode():
            node = node.setdefault(byte + 1, {})
        node[0] = value
    base, check, used = defaultdict(int), defaultdict(int), {0}
    base[0], free, queue = 1, 1, [(trie, 0)]
    for node, at in queue:
        b = free = free + 1  # every base once, as check names it
        while any(b + code in used for code in node):
            b += 1
            free = b
        base[at] = b
        for code, child in node.items():
            used.add(b + code)
            check[b + code] = b
            if code == 0:
                base[b] = -child - 1
            else:
                queue.append((child, b + code))
    size = max(used) + 300
    return b"".join(struct.pack("<iI", base[k], check[k]) for k in range(size))


def write_crfpp_binary(crf, path):
    """Write a CRF as ``crf_learn`` does."""
    features, at, ids = crfpp_features(crf), 0, {}
    for name, weights in features.items():
        ids[name] = at
        at += len(weights)
    labels = b"".join(label.encode() + b"\0" for label in crf.labels_)
    templates = b"".join(line.encode() + b"\0" for line in TEMPLATES.split("\n"))
    templates += b"\0" * (-len(labels + templates) % 4)
    units = double_array(ids)
    head = struct.pack("<IidIII", 100, 0, 1.0, at, 2, len(units))
    values = np.concatenate([*features.values()]).astype("<f4").tobytes()
    path.write_bytes(
        head + struct.pack("<I", len(labels)) + labels + struct.pack("<I", len(templates)) + templates + units + values
    )


def test_crfpp_itself_answers_the_same(crf, data, tmp_path):
    pycrfpp = pytest.importorskip("pycrfpp", reason="pycrfpp is not installed: pip install pycrfpp")
    write_crfpp_binary(crf, tmp_path / "model")
    tagger = pycrfpp.Tagger(f"-m {tmp_path / 'model'} -v 2")
    names = [tagger.yname(k) for k in range(tagger.ysize())]
    converted = convert(write_crfpp(crf, tmp_path / "model.txt"))
    X = data[0][:2] + data[0][80:]
    predicted, rows = converted.predict(X), converted.predict_marginals(X)
    for sentence, labels, row in zip(X, predicted, rows, strict=True):
        tagger.clear()
        for word, tag in sentence:
            tagger.add(f"{word} {tag}")
        tagger.parse()
        assert [tagger.y2(t) for t in range(len(sentence))] == labels
        for t, token in enumerate(row):
            theirs = [tagger.prob(t, k) for k in range(len(names))]
            assert_allclose([token[name] for name in names], theirs, atol=1e-4)


PATTERNS = """u:wrd=%x[0,0]
U:wl=%x[-1,0]
u:pp=%x[-1,1]/%x[ 0,1]
u:far=%x[-5,1]/%x[5,1]
*:pos=%x[0,1]
b
b:pb=%x[-1,1]
"""


def test_wapiti_itself_answers_the_same(data, tmp_path):
    wapiti = shutil.which("wapiti")
    if wapiti is None:
        pytest.skip("Wapiti is not installed (the program wapiti)")
    (tmp_path / "patterns").write_text(PATTERNS)
    for name, part in (("train", slice(80)), ("test", slice(80, None))):
        rows = [[f"{w} {t} {y}" for (w, t), y in zip(s, ys, strict=True)] for s, ys in zip(*data, strict=True)][part]
        (tmp_path / name).write_text("\n\n".join("\n".join(lines) for lines in rows) + "\n\n")
    command = [wapiti, "train", "-T", "crf", "-a", "l-bfgs", "-i", "10", "-t", "1", "-p", tmp_path / "patterns"]
    subprocess.run([*command, tmp_path / "train", tmp_path / "model"], check=True, capture_output=True)
    converted = convert(tmp_path / "model")
    X = data[0][80:]
    best = [wapiti, "label", "-m", tmp_path / "model", tmp_path / "test"]
    lines = subprocess.run(best, check=True, capture_output=True, text=True).stdout.split("\n")
    assert [line.split("\t")[-1] for line in lines if line] == [y for s in converted.predict(X) for y in s]
    lines = subprocess.run([*best, "-s", "-p"], check=True, capture_output=True, text=True).stdout.split("\n")
    answers = [line.split("\t")[-1].rsplit("/", 1) for line in lines if "\t" in line]
    ours = [token for sentence in converted.predict_marginals(X) for token in sentence]
    assert_allclose([token[label] for token, (label, _) in zip(ours, answers, strict=True)],
                    [float(p) for _, p in answers], atol=1e-5)  # fmt: skip


WAPITI = """#mdl#2#6
#rdr#3/0/0
8:u%x[0,0],
9:U:%x[1,0],
1:b,
#qrk#2
1:A,
1:B,
#qrk#4
4:uone,
6:u:_x+1,
1:b,
5:u:one,
0=0x1p+0
3=-0x1p+0
5=0x1p-1
6=0x1p-2
7=0x1p-3
8=0x1p+1
"""


def test_a_small_wapiti_model_by_hand(tmp_path):
    """The weights of the last word are those of uone and of "u:_x+1", the position behind it."""
    path = tmp_path / "model"
    path.write_text(WAPITI)
    model = convert(path)
    # sentence "two one": at 0 u:one, of the next word; at 1 uone and u:_x+1.
    # Transitions: A A 0, A B 1/2, B A 1/4, B B 1/8.
    scores = {("A", "A"): 2 + 1, ("A", "B"): 2 + 0.5 - 1, ("B", "A"): 0.25 + 1, ("B", "B"): 0.125 - 1}
    total = np.log(np.exp(list(scores.values())).sum())
    ranked = model.predict_topk([["two", "one"]], 4)[0]
    assert {tuple(labels): round(float(np.log(p)), 5) for labels, p in ranked} == {
        labels: round(score - total, 5) for labels, score in scores.items()
    }
    assert model.features is None
    with pytest.raises(DataError, match="cannot be read"):
        convert(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#mdl#2", "#mdl#1", "maximum entropy"),
        ("#rdr#3", "#rdr#x", "expected a number"),
        ("1:b,", "9:b,", "damaged"),
        ("8=0x1p+1\n", "8=0x1p+1", "incomplete"),
        ("8=0x1p+1", "8=zero", "finite number"),
        ("8=0x1p+1", "80=0x1p+1", "expected weights 0 to"),
        ("4:uone,", "4:vone,", "start with u, b or"),
        ("8:u%x[0,0],", "8:u%y[0,0],", "macros must be written"),
        ("9:U:%x[1,0],", '15:u:%M[1,0,"..$"],', "macros must be written"),
        ("9:U:%x[1,0],", "9:U:%c[1,4],", "must be written with %x"),
    ],
)
def test_damaged_wapiti_models(tmp_path, old, new, message):
    path = tmp_path / "model"
    path.write_text(WAPITI.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        convert(path)


def test_damaged_crfpp_models(crf, tmp_path):
    text = write_crfpp(crf, tmp_path / "model.txt").read_text()
    for old, new, message in (
        ("maxid: ", "maxid: 9", "expected 9[0-9]+ weights"),
        ("xsize: 2", "xsize: two", "expected a text model of CRF"),
        ("0 B\n", "zero B\n", "expected an id below"),
    ):
        (tmp_path / "other.txt").write_text(text.replace(old, new, 1))
        with pytest.raises(DataError, match=message):
            read_crfpp_model(tmp_path / "other.txt")
    (tmp_path / "binary").write_bytes(struct.pack("<II", 100, 0) + b"\0" * 100)
    with pytest.raises(DataError, match="crf_learn -t"):
        convert(tmp_path / "binary")
    (tmp_path / "other").write_text("hello")
    done = run("convert", tmp_path / "other", "--out", tmp_path / "model")
    assert done.returncode == 1
    assert "expected a model of CRFsuite" in done.stderr
    with pytest.raises(ValueRangeError, match="leave words and labels out"):
        convert(tmp_path / "other", labels=["A"])
    (tmp_path / "cut").write_text("#mdl#2#5")
    with pytest.raises(DataError, match="incomplete"):
        read_wapiti_model(tmp_path / "cut")


def test_patterns_of_wapiti_are_parsed():
    template = wapiti_template("U:a=%x[ -1,0]/%x[2, 3]")
    assert template.pieces == ("u:a=", "/", "")
    assert template.macros == ((-1, 0), (2, 3))


def test_positions_beyond_a_sentence_of_wapiti(tmp_path):
    """The first four have names, all others share one."""
    names = ["u_x-1", "u_x-2", "u_x-3", "u_x-4", "u_x-#", "u_x-#"]
    for row, name in enumerate(names, start=1):
        pattern = f"u%x[-{row},0]"
        text = f"#mdl#2#1\n#rdr#1/0/0\n{len(pattern)}:{pattern},\n#qrk#2\n1:A,\n1:B,\n#qrk#1\n{len(name)}:{name},\n"
        (tmp_path / "model").write_text(f"{text}1=0x1p+0\n")
        assert convert(tmp_path / "model").predict([["word"]]) == [["B"]]
