"""Components for spaCy: saved models in a pipeline, batches, confidence, serialization, and training by spaCy."""

import json
import tomllib

import pytest

spacy = pytest.importorskip("spacy", reason="spaCy is not installed: pip install 'trelliswork[spacy]'")

from spacy.tokens import Doc, DocBin  # noqa: E402
from spacy.training import Example  # noqa: E402

from tests.conftest import ROOT  # noqa: E402
from tests.models.fitted import TRAIN, fitted  # noqa: E402
from trelliswork import CRF, DependencyParser  # noqa: E402
from trelliswork.answers import Want, ask  # noqa: E402
from trelliswork.data.schemes import spans  # noqa: E402
from trelliswork.errors import DataError, NotFittedError, ValueRangeError  # noqa: E402
from trelliswork.integrations import spacy_components  # noqa: E402
from trelliswork.rules import AtMostOnce, Length  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of spaCy and its libraries
WORDS = [list(s.words) for s in TRAIN]
TAGS = [list(s.tags) for s in TRAIN]
CHUNKS = [list(s.chunks) for s in TRAIN]


def documents(vocab, *, gold=False):
    """Return the bundled sentences as documents, two in each."""
    docs = []
    for a, b in zip(TRAIN[::2], TRAIN[1::2], strict=True):
        words, n = [*a.words, *b.words], len(a.words)
        if not gold:
            docs.append(Doc(vocab, words, sent_starts=[i in (0, n) for i in range(len(words))]))
            continue
        heads = [h - 1 if h else i for i, h in enumerate(a.heads)] + [
            n + (h - 1 if h else i) for i, h in enumerate(b.heads)
        ]
        ents = ["O"] * len(words)
        for s, first in ((a, 0), (b, n)):
            ents[first : first + len(s.words)] = s.chunks
        deps = [*a.relations, *b.relations]
        docs.append(Doc(vocab, words, tags=[*a.tags, *b.tags], heads=heads, deps=deps, ents=ents))
    return docs


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    CRF("pos", tol=0.1).fit(WORDS, TAGS).save(folder / "tagger")
    CRF("pos", tol=0.1).fit(WORDS, CHUNKS).save(folder / "ner")
    trees = [list(zip(s.heads, s.relations, strict=True)) for s in TRAIN]
    pairs = [list(zip(s.words, s.tags, strict=True)) for s in TRAIN]
    parser = DependencyParser(1, hash_bits=12, max_iter=1).fit(pairs, trees)
    parser.input_ = {"columns": ["form", "xpos"]}
    parser.save(folder / "parser")
    return folder


@pytest.fixture(scope="module")
def nlp(models):
    nlp = spacy.blank("en")
    for name in ("tagger", "ner", "parser"):
        nlp.add_pipe(f"trelliswork_{name}", config={"model": str(models / name)})
    return nlp


def test_annotation_is_that_of_the_models(nlp, models):
    docs = list(nlp.pipe(documents(nlp.vocab), batch_size=4))
    tagger, ner, parser = (nlp.get_pipe(f"trelliswork_{name}").model for name in ("tagger", "ner", "parser"))
    tags, chunks, rows = tagger.predict(WORDS), ner.predict(WORDS), tagger.predict_marginals(WORDS)
    tagged = [list(zip(w, t, strict=True)) for w, t in zip(WORDS, tags, strict=True)]
    trees = ask(parser, tagged, Want(marginals=True))
    n = 0
    for doc in docs:
        sentences = list(doc.sents)
        assert len(sentences) == 2
        for sentence in sentences:
            assert [token.tag_ for token in sentence] == tags[n]
            assert [token._.tag_p for token in sentence] == [
                pytest.approx(row[t]) for row, t in zip(rows[n], tags[n], strict=True)
            ]
            found = [(e.label_, e.start - sentence.start, e.end - sentence.start) for e in sentence.ents]
            assert found == [tuple(span) for span in spans(chunks[n])]
            heads = [0 if t.head == t else t.head.i - sentence.start + 1 for t in sentence]
            assert heads == [head for head, _ in trees[n].value]
            assert [t.dep_ for t in sentence] == [label for _, label in trees[n].value]
            assert [t._.arc_p for t in sentence] == pytest.approx(trees[n].probabilities)
            n += 1
    assert n == len(WORDS)


def test_the_probability_of_an_entity_is_a_sum_over_labelings(nlp):
    ner = nlp.get_pipe("trelliswork_ner")
    doc = ner(Doc(nlp.vocab, WORDS[3][:3]))
    labelings = ner.model.predict_topk([WORDS[3][:3]], 5000)[0]
    assert doc.ents
    assert sum(p for _, p in labelings) == pytest.approx(1, abs=1e-3)
    for entity in doc.ents:
        expected = sum(p for y, p in labelings if (entity.label_, entity.start, entity.end) in map(tuple, spans(y)))
        assert entity._.p == pytest.approx(expected, abs=1e-3)


def test_rules_hold_in_every_sentence(models):
    nlp, rule = spacy.blank("en"), Length("NP", maximum=1) & AtMostOnce("VP")
    nlp.add_pipe("trelliswork_ner", config={"model": str(models / "ner"), "rules": repr(rule)})
    nlp.add_pipe("trelliswork_tagger", config={"model": str(models / "tagger")})
    ner = nlp.get_pipe("trelliswork_ner").model
    p, expected = ner.rules_probability(WORDS, rule), ner.predict(WORDS, rules=rule)
    for n, doc in enumerate(nlp.pipe(documents(nlp.vocab))):
        assert doc._.rules_p == {"trelliswork_ner": [pytest.approx(p[2 * n]), pytest.approx(p[2 * n + 1])]}
        for k, sentence in enumerate(doc.sents):
            found = [(e.label_, e.start - sentence.start, e.end - sentence.start) for e in sentence.ents]
            assert found == [tuple(span) for span in spans(expected[2 * n + k])]
    assert not all(map(rule.holds, ner.predict(WORDS)))
    nlp = spacy.blank("en")
    nlp.add_pipe("trelliswork_ner", config={"model": str(models / "ner"), "rules": "Length(NPX, 1)"})
    with pytest.raises(ValueRangeError, match="'NPX' is not one of the types of spans: did you mean 'NP'"):
        nlp("A dog .")
    with pytest.raises(Exception, match="rules"):
        nlp.add_pipe("trelliswork_parser", config={"rules": "Length(NP, 1)"})


def test_serialization(nlp, tmp_path):
    nlp.to_disk(tmp_path / "pipeline")
    again = spacy.load(tmp_path / "pipeline")
    other = spacy.blank("en")
    for name in nlp.pipe_names:
        other.add_pipe(name)
    other.from_bytes(nlp.to_bytes())
    expected = nlp(documents(nlp.vocab)[0]).to_json()
    for copy in (again, other):
        assert copy(documents(copy.vocab)[0]).to_json() == expected
    config = json.loads(json.dumps(again.config["components"]["trelliswork_ner"]))
    assert config["factory"] == "trelliswork_ner"


def test_raw_text_without_sentences(nlp):
    doc = nlp("The old dog barks. They left it!")
    assert [len(sentence) for sentence in doc.sents] == [5, 4]
    assert all(token.tag_ and token._.arc_p is not None for token in doc)
    assert nlp("").text == ""


def test_errors(models):
    nlp = spacy.blank("en")
    with pytest.raises(DataError, match="needs a DependencyParser"):
        nlp.add_pipe("trelliswork_parser", config={"model": str(models / "ner")})
    with pytest.raises(DataError, match="labels of spans in BIO or BIOES"):
        nlp.add_pipe("trelliswork_ner", config={"model": str(models / "tagger")})
    fitted("FactorialCRF").save(models / "layers")
    with pytest.raises(DataError, match="several layers"):
        nlp.add_pipe("trelliswork_tagger", config={"model": str(models / "layers")})
    with pytest.raises(DataError, match="must be tag or pos"):
        nlp.add_pipe("trelliswork_tagger", config={"attribute": "lemma"})
    with pytest.raises(NotFittedError, match="has no model"):
        nlp.add_pipe("trelliswork_tagger")(Doc(nlp.vocab, ["a"]))


def test_components_are_trained_by_initialize():
    nlp = spacy.blank("en")
    nlp.add_pipe("trelliswork_tagger", config={"settings": {"tol": 0.1}})
    nlp.add_pipe("trelliswork_ner", config={"settings": {"features": "pos", "tol": 0.1}})
    nlp.add_pipe("trelliswork_parser", config={"settings": {"order": 1, "hash_bits": 12, "max_iter": 2}})
    examples = [Example(Doc(nlp.vocab, [t.text for t in doc]), doc) for doc in documents(nlp.vocab, gold=True)]
    nlp.initialize(lambda: examples)
    scores = nlp.evaluate(examples)
    assert scores["tag_acc"] > 0.9
    assert scores["ents_f"] > 0.8
    assert scores["dep_uas"] > 0.4
    parser = nlp.get_pipe("trelliswork_parser").model
    assert set(parser.labels_) == {label for s in TRAIN for label in s.relations}


def test_entry_points_name_the_factories():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    points = project["project"]["entry-points"]["spacy_factories"]
    assert set(points) == {"trelliswork_tagger", "trelliswork_ner", "trelliswork_parser"}
    for target in points.values():
        module, _, name = target.partition(":")
        assert module == spacy_components.__name__
        assert callable(getattr(spacy_components, name))


CONFIG = """
[paths]
train = null
dev = null
[system]
seed = 0
[nlp]
lang = "en"
pipeline = ["tagger", "ner"]
[components]
[components.tagger]
factory = "trelliswork_tagger"
settings = {"tol": 0.1}
[components.ner]
factory = "trelliswork_ner"
columns = ["text", "tag_"]
settings = {"features": "chunking", "tol": 0.1}
[corpora]
[corpora.train]
@readers = "spacy.Corpus.v1"
path = ${paths.train}
[corpora.dev]
@readers = "spacy.Corpus.v1"
path = ${paths.dev}
[training]
max_steps = 1
eval_frequency = 1
"""


def test_spacy_train(tmp_path):
    from spacy.cli.init_config import fill_config
    from spacy.cli.train import train

    vocab = spacy.blank("en").vocab
    DocBin(docs=documents(vocab, gold=True), store_user_data=False).to_disk(tmp_path / "train.spacy")
    (tmp_path / "base.cfg").write_text(CONFIG)
    fill_config(tmp_path / "config.cfg", tmp_path / "base.cfg", silent=True)
    paths = {f"paths.{part}": str(tmp_path / "train.spacy") for part in ("train", "dev")}
    train(tmp_path / "config.cfg", tmp_path / "out", overrides=paths)
    nlp = spacy.load(tmp_path / "out" / "model-best")
    assert nlp.meta["performance"]["tag_acc"] > 0.9
    assert nlp.meta["performance"]["ents_f"] > 0.8
    assert nlp.get_pipe("ner").model.report_.converged
    assert [t.tag_ for t in nlp(Doc(nlp.vocab, WORDS[0]))] == nlp.get_pipe("tagger").model.predict([WORDS[0]])[0]
