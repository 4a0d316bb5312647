"""Clusters, vectors and lexicons as features of taggers."""

import gzip
import json
import struct

import numpy as np
import pytest
from numpy.testing import assert_allclose

import trelliswork as tw
from tests.commands import run
from tests.estimators import made
from trelliswork import CRF, BrownClusters, FactorialCRF, Lexicon, WordVectors
from trelliswork.compute.sharing import Group, sharing
from trelliswork.data.moments import count_moments
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.features.feature_map import FeatureMap
from trelliswork.features.knowledge import Knowledge
from trelliswork.features.templates import parse_template
from trelliswork.models import LogBilinear

CLUSTERS = BrownClusters.from_paths({"the": "00", "a": "00", "dog": "010", "cat": "011", "runs": "10", "sleeps": "11"})
X = [["the", "dog", "runs"], ["a", "dog"], ["the", "dog", "runs"]]
Y = [["D", "N", "V"], ["D", "N"], ["D", "N", "V"]]
RNG = np.random.default_rng(0)
VECTORS = WordVectors(["the", "a", "dog", "cat", "runs"], RNG.standard_normal((5, 4)))


def names(features, knowledge, sentences=X):
    made = FeatureMap(features, knowledge=knowledge)
    attributes, listed = made.fit(sentences), made.names()
    ends = attributes.token_ptr
    return [[listed[i] for i in attributes.ids[ends[t] : ends[t + 1]]] for t in range(attributes.n_tokens)]


def test_macros_for_clusters_and_lexicon():
    known = Knowledge.of(CLUSTERS, lexicon=Lexicon({"the dog": "animal"}))
    made = names("U1:%c[0,2]\nU2:%c[-1]/%x[0,0]\nU3:%l[0]\nB:%c[0,1]", known)
    assert made[1] == ["U1:01", "U2:00/dog", "U3:I-animal"]
    assert made[0] == ["U1:00", "U2:_B-1/the", "U3:B-animal"]
    assert names("U:%c[0]", known, [["Dog", "horse"]]) == [["U:010"], ["U:"]]


@pytest.mark.parametrize(
    "line", ["U:%c", "U:%c[x]", "U:%l[0,1]", "U:%v[0]/%x[0,0]", "B:%v[0]", "U:%x[0]", "U:%c[0,2000]"]
)
def test_wrong_macros(line):
    with pytest.raises(DataError, match="template"):
        parse_template(line)


@pytest.mark.parametrize("macro", ["%c[0]", "%l[0]", "%v[0]"])
def test_a_macro_without_its_knowledge(macro):
    with pytest.raises(ValueRangeError, match="pass "):
        CRF(f"U:{macro}").fit(X, Y)


@pytest.mark.parametrize("hash_bits", [None, 12])
@pytest.mark.parametrize("features", ["pos", "U:%c[0,1]\nU:%l[0]\nU:w=%x[0,0]\nU:%v[0]"])
def test_saved_models_need_no_other_file(tmp_path, features, hash_bits):
    lexicon = Lexicon({"cat": "animal", "dog": "animal"})
    crf = CRF(features, clusters=CLUSTERS, vectors=VECTORS, lexicon=lexicon, options={"hash_bits": hash_bits})
    crf.fit(X, Y)
    test = [["a", "cat", "sleeps"], ["the", "horse"]]
    assert crf.predict(test)[0] == ["D", "N", "V"]
    crf.save(tmp_path / "m")
    again = CRF.load(tmp_path / "m")
    for ours, others in zip(crf.predict_marginals(test), again.predict_marginals(test), strict=True):
        assert [list(p.values()) for p in ours] == [list(p.values()) for p in others]
    if features != "pos":  # only the first bit is stored
        assert set(again.clusters.paths_.values()) == {"0", "1"}
    assert again.lexicon == lexicon
    refitted = CRF(**again.get_params()).fit(X, Y)
    assert_allclose(refitted._learned.weights, crf._learned.weights, atol=1e-9)
    assert again.predict([]) == []


def test_damaged_clusters_are_refused():
    assert Knowledge.from_state({"clusters": {"a": "10", "b": "0"}}, {}).clusters.paths_ == {"a": "10", "b": "0"}
    for damaged in ({"a": 1}, {"a": None}, {"a": "0", "b": ["1"]}):
        with pytest.raises(DataError, match="damaged"):
            Knowledge.from_state({"clusters": damaged}, {})


def test_vectors_are_like_attributes_with_values():
    """The product of vectors and weights is the oracle's sum over real-valued attributes."""
    unit = VECTORS.table / np.linalg.norm(VECTORS.table, axis=1, keepdims=True)

    def token(sentence, t):
        made = {f"w={sentence[t]}": 1}
        for row in (-1, 0):
            if t + row >= 0 and sentence[t + row] in VECTORS:
                made |= {f"v{row},{d}": v for d, v in enumerate(unit[VECTORS.id(sentence[t + row])])}
        return made

    options = {"l2": 0.3, "feature_set": "all", "tol": 1e-12, "max_iter": 500}
    ours = made(CRF, "U:w=%x[0,0]\nU:v-=%v[-1]\nU:v=%v[0]", vectors=VECTORS, **options).fit(X, Y)
    other = made(CRF, token, **options).fit(X, Y)
    assert len(ours._learned.weights) == len(other._learned.weights)
    test = [["a", "cat", "sleeps"], ["the", "cat", "runs"], ["horse"]]
    for a, b in zip(ours.predict_marginals(test), other.predict_marginals(test), strict=True):
        assert_allclose([list(p.values()) for p in a], [list(p.values()) for p in b], atol=2e-4)


def test_gradient_of_vectors():
    from trelliswork.models.crf.data import label_vocabulary, prepare
    from trelliswork.models.crf.objective import ChainObjective

    features = FeatureMap("U:%v[-1]\nU:%v[1]\nU:%x[0,0]\nB:%x[0,0]", knowledge=Knowledge.of(vectors=VECTORS))
    problem = prepare(features.fit(X), Y, label_vocabulary(Y))
    objective = ChainObjective(problem, l2=0.1)
    w = RNG.standard_normal(problem.n_features)
    gradient = objective(w).gradient + 0
    for i in range(len(w) - 24, len(w)):
        step = np.zeros(len(w))
        step[i] = 1e-2
        assert_allclose((objective(w + step).value - objective(w - step).value) / 2e-2, gradient[i], atol=2e-3)


def test_start_from_a_model_with_vectors():
    first = CRF("U:%v[0]", vectors=VECTORS).fit(X, Y)
    again = CRF("U:%v[0]", vectors=VECTORS).fit(X, Y, start=first)
    assert again.report_.n_iter <= 3


def test_vectors_and_other_training():
    for options in ({"algorithm": "sgd"}, {"beam": "size=2"}, {"order": 2}):
        with pytest.raises(ValueRangeError, match="vectors"):
            made(CRF, "U:%v[0]", vectors=VECTORS, **options).fit(X, Y)
    with pytest.raises(ValueRangeError, match="preset or templates"):
        CRF(lambda s, t: [s[t]], clusters=CLUSTERS).fit(X, Y)
    with pytest.raises(ValueRangeError, match="letters"):
        CRF("letters", clusters=CLUSTERS).fit(X, Y)
    with pytest.raises(ValueRangeError, match="clusters must be"):
        CRF("pos", clusters=3).fit(X, Y)


def test_factorial_crf_with_clusters(tmp_path):
    y = {"pos": Y, "same": Y}
    tagger = FactorialCRF(("pos", "same"), features="U:%c[0,2]", clusters=CLUSTERS, l2=0.1).fit(X, y)
    assert tagger.predict([["a", "cat"]]) == [[("D", "D"), ("N", "N")]]
    tagger.save(tmp_path / "m")
    again = FactorialCRF.load(tmp_path / "m")
    assert again.predict([["a", "cat"]]) == [[("D", "D"), ("N", "N")]]
    assert again.clusters.paths_["cat"] == "01"


def test_factorial_crf_with_vectors(tmp_path):
    """Two layers without ties are two CRFs."""
    features = "U:w=%x[0,0]\nU:%v[-1]\nU:%v[0]"
    y, test = {"pos": Y, "same": Y}, [["a", "cat", "sleeps"], ["horse"]]
    options = {"vectors": VECTORS, "l2": 0.3, "tol": 1e-9, "max_iter": 300}
    tagger = made(FactorialCRF, ("pos", "same"), features=features, ties=(), **options).fit(X, y)
    single = made(CRF, features, **options).fit(X, Y)
    for ours, other in zip(tagger.predict_marginals(test)["pos"], single.predict_marginals(test), strict=True):
        assert_allclose([list(p.values()) for p in ours], [list(p.values()) for p in other], atol=2e-3)
    tied = made(FactorialCRF, ("pos", "same"), features=features, **options).fit(X, y, dev=(X, y))
    tied.save(tmp_path / "m")
    again = FactorialCRF.load(tmp_path / "m")
    assert again.vectors.words == VECTORS.words
    assert again.predict_marginals(test) == tied.predict_marginals(test)
    assert again.predict(test)[0] == [("D", "D"), ("N", "N"), ("V", "V")]
    assert again.predict([]) == []


def test_command(tmp_path):
    rows = ["\n".join(f"{w} {t}" for w, t in zip(ws, ts, strict=True)) for ws, ts in zip(X, Y, strict=True)]
    (tmp_path / "train.txt").write_text("\n\n".join(rows) + "\n")
    CLUSTERS.save(tmp_path / "clusters.txt")
    (tmp_path / "animal.txt").write_text("Dog\nCat\n")
    (tmp_path / "vectors.txt").write_text("".join(f"{w} {' '.join(map(str, VECTORS[w]))}\n" for w in VECTORS.words))
    options = ("--clusters", "clusters.txt", "--lexicon", "animal.txt", "--vectors", "vectors.txt", "--out", "m")
    done = run("train", "crf", "train.txt", "--features", "pos", *options, "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for file in ("clusters.txt", "animal.txt", "vectors.txt"):
        (tmp_path / file).unlink()
    done = run("tag", "m", "-", "--format", "text", input="a cat sleeps\n", cwd=tmp_path)
    assert done.stdout.split() == ["a", "D", "cat", "N", "sleeps", "V"], done.stderr
    done = run("train", "crf", "train.txt", "--clusters", "none.txt", "--out", "m2", cwd=tmp_path)
    assert done.returncode == 1
    assert "none.txt" in done.stderr


class TestLexicon:
    def test_longest_match_and_case(self):
        lexicon = Lexicon({"New York": "city", "New York Times": ["paper"], "york": {"city", "name"}})
        assert lexicon.tag(["the", "NEW", "york", "times", "in", "York", "new"]) == [
            "", "B-paper", "I-paper", "I-paper", "", "B-city|name", "",
        ]  # fmt: skip
        assert lexicon.tag(["New", "York"]) == ["B-city", "I-city"]  # not as a longer phrase that ends too early
        exact = Lexicon({"New York": "city"}, fold_case=False)
        assert exact.tag(["new", "York", "New", "York"]) == ["", "", "B-city", "I-city"]

    def test_files(self, tmp_path):
        (tmp_path / "all.tsv").write_text("# names\nNew York\tcity\nAnn\tname\n\nAnn\tsaint\n")
        (tmp_path / "city.txt").write_text("San Juan\n")
        lexicon = Lexicon.read(tmp_path / "all.tsv", tmp_path / "city.txt")
        tags = lexicon.tag(["Ann", "San", "Juan", "New", "York"])
        assert tags == ["B-name|saint", "B-city", "I-city", "B-city", "I-city"]
        lexicon.save(tmp_path / "saved.tsv")
        assert Lexicon.read(tmp_path / "saved.tsv") == lexicon
        (tmp_path / "bad.tsv").write_text("New York\tcity\nAnn\n")
        with pytest.raises(DataError, match=r"bad\.tsv:2"):
            Lexicon.read(tmp_path / "bad.tsv")
        (tmp_path / "empty.tsv").write_text("\n")
        with pytest.raises(DataError, match=r"empty\.tsv"):
            Lexicon.read(tmp_path / "empty.tsv")

    def test_learned(self, tmp_path):
        sentences = [["in", "New", "York"], ["New", "York"], ["Ann"]]
        labels = [["O", "B-LOC", "I-LOC"], ["B-LOC", "I-LOC"], ["B-PER"]]
        assert Lexicon.learn(sentences, labels, min_count=2).entries == {("New", "York"): ("LOC",)}
        lexicon = Lexicon.learn(sentences, labels)
        assert lexicon.tag(["Ann", "New", "York"]) == ["B-PER", "B-LOC", "I-LOC"]
        assert lexicon.tag(["Ann"], without=2) == [""]
        assert lexicon.tag(["Ann"], without=1000) == ["B-PER"]
        again = Lexicon.from_state(lexicon.state())
        assert again == lexicon
        assert again.tag(["Ann"], without=2) == [""]
        lexicon.save(tmp_path / "learned.tsv")
        again = Lexicon.read(tmp_path / "learned.tsv")
        assert again == lexicon
        assert again.learned
        assert again.tag(["Ann"], without=2) == [""]
        (tmp_path / "city.txt").write_text("Rome\n")
        both = Lexicon.read(tmp_path / "learned.tsv", tmp_path / "city.txt")
        assert both.tag(["ann", "ROME"], without=2) == ["", "B-city"]
        assert both.tag(["ann", "ROME"], without=400) == ["B-PER", "B-city"]
        (tmp_path / "bad.tsv").write_text("Ann\tPER\t1\tx\n")
        with pytest.raises(DataError, match=r"bad\.tsv:1"):
            Lexicon.read(tmp_path / "bad.tsv")
        apart = Lexicon.learn(
            [["Ann"], *[["x"]] * 300, ["ann"]], [["B-PER"], *[["O"]] * 300, ["B-PER"]], fold_case=True
        )
        assert apart.tag(["ANN"], without=0) == ["B-PER"]
        assert names("U:%l[0]", Knowledge.of(lexicon=lexicon), sentences) == [["U:"]] * 6  # all in one block
        with pytest.raises(ValueRangeError, match="BIO"):
            Lexicon.learn(sentences, [["N"] * len(s) for s in sentences])
        with pytest.raises(ValueRangeError, match="entry"):
            Lexicon({" ": "x"})

    def test_learned_by_the_command(self, tmp_path):
        """The file and training on the same sentences give the same model as the lexicon in Python."""
        words = [["in", "York", name] for name in ("Ann", "Bob", "Eve")] * 150
        tags = [["O", "B-LOC", "B-PER"]] * 450
        rows = ["\n".join(f"{w} {t}" for w, t in zip(*row, strict=True)) for row in zip(words, tags, strict=True)]
        (tmp_path / "train.txt").write_text("\n\n".join(rows) + "\n")
        done = run("data", "lexicon", "train.txt", "--out", "l.tsv", "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["phrases"] == 4, done.stderr
        assert Lexicon.read(tmp_path / "l.tsv").state() == Lexicon.learn(words, tags).state()
        options = ("--features", "ner", "--lexicon", "l.tsv", "--max-iter", 2, "--out", "m", "--quiet")
        assert run("train", "crf", "train.txt", *options, cwd=tmp_path).returncode == 0
        assert CRF.load(tmp_path / "m").lexicon == Lexicon.learn(words, tags)
        assert run("data", "lexicon", "train.txt", "--out", tmp_path, cwd=tmp_path).returncode == 1
        assert run("data", "lexicon", "train.txt", "--label", "0", "--out", "n.tsv", cwd=tmp_path).returncode == 1


class TestWordVectors:
    TABLE = np.array([[1, 2.5, -3], [0.25, 0, 4]], np.float32)

    def check(self, path, words=("dog", "New York")):
        for _ in range(2):
            vectors = WordVectors.read(path)
            assert vectors.words == list(words)
            assert (np.asarray(vectors.table) == self.TABLE).all()
            assert isinstance(vectors.table, np.memmap)

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path, monkeypatch):
        monkeypatch.setattr("trelliswork.features.vectors.cache_directory", lambda: tmp_path / "cache" / "kernels")

    def test_text_formats(self, tmp_path):
        lines = "dog 1 2.5 -3\nNew York 0.25 0 4e0\n"
        (tmp_path / "w2v.txt").write_text("2 3\n" + lines)
        self.check(tmp_path / "w2v.txt")
        (tmp_path / "glove.txt").write_text(lines)
        self.check(tmp_path / "glove.txt")
        (tmp_path / "fast.vec.gz").write_bytes(gzip.compress(f"2 3\n{lines}".replace("\n", " \n").encode()))
        with pytest.raises(AssertionError):
            self.check(tmp_path / "w2v.txt", ("cat", "New York"))

    def test_binary_format(self, tmp_path):
        rows = [w.encode() + b" " + struct.pack("<3f", *v) for w, v in zip(("dog", "é"), self.TABLE, strict=True)]
        (tmp_path / "a.bin").write_bytes(b"2 3\n" + rows[0] + rows[1])
        self.check(tmp_path / "a.bin", ("dog", "é"))
        (tmp_path / "b.bin").write_bytes(b"2 3\n" + b"\n".join(rows) + b"\n")
        self.check(tmp_path / "b.bin", ("dog", "é"))
        (tmp_path / "c.bin").write_bytes(b"2 3\n" + rows[0] + rows[1][:-1])
        with pytest.raises(DataError, match="incomplete"):
            WordVectors.read(tmp_path / "c.bin")

    def test_a_changed_file_is_read_again(self, tmp_path):
        path = tmp_path / "v.txt"
        path.write_text("dog 1 2\n")
        assert WordVectors.read(path)["dog"].tolist() == [1, 2]
        path.write_text("dog 1 2\ncat 3 4\n")
        assert len(WordVectors.read(path)) == 2

    @pytest.mark.parametrize("content", ["", "dog\n", "2 3\ndog 1 2 3\ncat 1 2\n", "dog 1 nan\n", "0 3\n"])
    def test_damaged_files(self, tmp_path, content):
        (tmp_path / "v.txt").write_text(content)
        with pytest.raises(DataError, match=r"v\.txt"):
            WordVectors.read(tmp_path / "v.txt")

    def test_missing_file_and_wrong_shape(self, tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            WordVectors.read(tmp_path / "none")
        with pytest.raises(ShapeError):
            WordVectors(["a"], [[1.0], [2.0]])

    def test_vectors_of_counts(self):
        text = [line.split() for line in ("the cat sleeps", "the dog sleeps", "a cat barks", "a dog barks")] * 3
        vectors = WordVectors.from_counts(count_moments(text, 1), 4)
        assert vectors.table.shape == (6, 4)
        near = {w: float(vectors["cat"] @ vectors[w]) for w in ("dog", "the", "sleeps")}
        assert near["dog"] > 1.5 > near["the"]

    def test_vectors_of_models(self):
        text = [line.split() for line in ("the cat sleeps", "the dog sleeps", "a cat barks", "a dog barks")] * 3
        for model in (
            tw.HMMLanguageModel(4, max_iter=1).fit(text),
            tw.HMMLanguageModel(4, n_blocks=2, max_iter=1).fit(text),
            tw.MRFLanguageModel(2, max_iter=50, tol=0.1, unknown="error").fit(text),
            LogBilinear(1, rank=3, max_iter=1, unknown="error").fit(text),
        ):
            vectors = WordVectors.from_model(model)
            assert set(vectors.words) == {"the", "a", "cat", "dog", "sleeps", "barks"}
            assert np.isfinite(vectors.table).all()


def test_mrf_tagger_with_clusters(tmp_path):
    plain = tw.MRFTagger(max_iter=30).fit(X * 3, Y * 3)
    tagger = tw.MRFTagger(clusters=CLUSTERS, max_iter=30).fit(X * 3, Y * 3)
    assert any(name.startswith("cluster") for name, _, _ in tagger.top_features(100))
    assert not any(name.startswith("cluster") for name, _, _ in plain.top_features(100))
    tagger.save(tmp_path / "m")
    again = tw.MRFTagger.load(tmp_path / "m")
    assert again.predict([["a", "cat", "sleeps"]]) == tagger.predict([["a", "cat", "sleeps"]])
    assert again.clusters == CLUSTERS


def test_mrf_tagger_with_vectors_and_lexicon(tmp_path):
    lexicon = Lexicon({"dog": "animal", "cat": "animal", "New York": "city"})
    tagger = tw.MRFTagger(vectors=VECTORS, lexicon=lexicon, n_words=2, max_iter=30).fit(X * 3, Y * 3)
    names = {name for name, _, _ in tagger.top_features(200)}
    assert {"lexicon=animal", "vector 0", f"vector {VECTORS.n_dims - 1}"} <= names
    tagger.save(tmp_path / "m")
    again = tw.MRFTagger.load(tmp_path / "m")
    test = [["a", "cat", "sleeps"]]
    assert again.predict_marginals(test) == tagger.predict_marginals(test)
    assert again.predict(test) == [["D", "N", "V"]]
    assert again.lexicon == lexicon
    for wrong, message in ((Lexicon.learn([["dog"]], [["B-X"]]), "learned"), (Lexicon({"a b": "c"}), "single words")):
        with pytest.raises(ValueRangeError, match=message):
            tw.MRFTagger(lexicon=wrong).fit(X, Y)


def test_gradient_of_the_mrf_tagger_with_vectors():
    from trelliswork.models.mrf_tagger.features import TaggerFeatures
    from trelliswork.models.mrf_tagger.objective import TaggerObjective, tagger_moments

    features = TaggerFeatures.fit(X, 1, Knowledge.of(vectors=VECTORS))
    tags = {label: k for k, label in enumerate(sorted({label for row in Y for label in row}))}
    w = np.array([features.words.id(word) for row in X for word in row])
    y = np.array([tags[label] for row in Y for label in row])
    moments = tagger_moments(w, y, np.cumsum([0, *map(len, X)]), 1, 1, len(tags) + 1, len(features.words))
    objective = TaggerObjective(moments, [features.tables(features.words.items)[0]], l2=0.1)
    assert np.isfinite(objective.scales()).all()
    x = objective.start(features.lead())
    x += 0.1 * RNG.standard_normal(len(x))
    gradient = objective(x).gradient
    first = (len(tags) + 1) ** 2 + len(features.own) * (len(tags) + 1)  # the first weight of the vectors
    for i in range(first, first + VECTORS.n_dims * (len(tags) + 1)):
        step = np.zeros(len(x))
        step[i] = 1e-5
        assert_allclose((objective(x + step).value - objective(x - step).value) / 2e-5, gradient[i], atol=1e-5)


def test_parser_with_clusters(tmp_path):
    X_trees = [[("dogs", "N"), ("bark", "V")], [("big", "A"), ("dogs", "N"), ("bark", "V")]] * 4
    y = [[(2, "nsubj"), (0, "root")], [(2, "amod"), (3, "nsubj"), (0, "root")]] * 4
    known = BrownClusters.from_paths({"dogs": "010", "cats": "011", "bark": "1", "big": "00"})
    options = {"order": 2, "hash_bits": 12, "min_count": 1, "max_iter": 1}
    plain = made(tw.DependencyParser, **options).fit(X_trees, y)
    parser = made(tw.DependencyParser, clusters=known, **options).fit(X_trees, y)
    active = [sum(int((w != 0).sum()) for w in p._learned.trees.weights[:2]) for p in (plain, parser)]
    assert active[1] > active[0]
    assert all(
        (b != 0).sum() > (a != 0).sum()
        for a, b in zip(plain._learned.trees.weights[2:], parser._learned.trees.weights[2:], strict=True)
    )
    test = [[("big", "A"), ("cats", "N"), ("bark", "V")]]
    parser.save(tmp_path / "p")
    again = tw.DependencyParser.load(tmp_path / "p")
    assert again.predict(test) == parser.predict(test)
    assert again.clusters == known
    assert [h for h, _ in again.predict(test)[0]] == [2, 3, 0]
    tagged = made(tw.DependencyParser, clusters=known, tagger="crf", **options).fit(X_trees, y)
    assert tagged.predict([["big", "cats", "bark"]])[0][2] == (0, "root")


class OneOfTwo(Group):
    size = 2


def test_one_of_two_processes():
    """The other process has no sentences, so that the result is that of one."""
    options = {"clusters": CLUSTERS, "vectors": VECTORS, "lexicon": Lexicon.learn([["dog"]], [["B-X"]]), "tol": 1e-9}
    alone = made(CRF, "pos", **options).fit(X, Y)
    with sharing(OneOfTwo()):
        shared = made(CRF, "pos", **options).fit(X, Y)
    p, q = (np.array([list(t.values()) for t in m.predict_marginals(X)[0]]) for m in (alone, shared))
    assert_allclose(p, q, atol=1e-4)
