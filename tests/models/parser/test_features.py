"""Features of the parser against a slow implementation of the templates."""

import numpy as np
import pytest

from tests.compiled import from_python
from trelliswork.data.vocabulary import word_shape
from trelliswork.features.brown import BrownClusters
from trelliswork.features.hashed import hash_string
from trelliswork.models.parser.features import TokenCoder, brackets, is_mark
from trelliswork.models.parser.kernels.arcs import arc_ids, arc_scores, score_all
from trelliswork.models.parser.kernels.blocks import SIZE
from trelliswork.models.parser.kernels.labels import label_ids
from trelliswork.models.parser.kernels.parts import part_ids, part_scores
from trelliswork.models.parser.kernels.records import ArcList, PartList
from trelliswork.models.parser.templates import (
    ARC_SLOTS,
    CLUSTER_SLOTS,
    LABEL_SLOTS,
    PART_SLOTS,
    feature_set,
    names,
    slot_constants,
)

call_label_ids = from_python(label_ids)

WORDS = ["The", "old", "dogs", "of", "Paris", "barked", "(", "loudly", ")", "at", "7", "cats", "."]
TAGS = ["DET", "ADJ", "NOUN", "ADP", "PROPN", "VERB", "PUNCT", "ADV", "PUNCT", "ADP", "NUM", "NOUN", "PUNCT"]
SECOND = ["DT", "JJ", "NNS", "IN", "NNP", "VBD", "-LRB-", "RB", "-RRB-", "IN", "CD", "NNS", "."]
HEADS = [3, 3, 6, 5, 3, 0, 8, 6, 8, 12, 12, 6, 6]
N, BITS = len(WORDS), 20
MASK = (1 << 64) - 1
CONSTANTS = slot_constants(64)
NOBODY = 0xA0761D6478BD642F
KNOWN = {"the", "dogs", "of", ",", "at", "."}
PATHS = {"the": "00", "dogs": "1010101", "cats": "1010100", "barked": "110111101", "Paris": "10111"}
CLUSTERS = BrownClusters.from_paths(PATHS)


@pytest.fixture(scope="module", params=[None, CLUSTERS], ids=["words", "clusters"])
def tokens(request):
    coder = TokenCoder(sorted(KNOWN), sorted(set(TAGS)), request.param)
    words = ["Before", *WORDS, "After"]  # sentences before and after, which must have no influence
    tags, second = ["X", *TAGS, "X"], ["X", *SECOND, "X"]
    return coder.code(words, tags, second, np.array([0, 1, N + 1, N + 2]))


def has_clusters(tokens) -> bool:
    return tokens.codes.shape[1] > 5


def strings(i: int) -> dict[str, int]:
    """Return the codes of word i (0 is the root, N + 1 the end)."""
    if i == 0 or i == N + 1:
        code = hash_string("<root>" if i == 0 else "<end>")
        return dict.fromkeys(("w", "t", "u", "p", "s", "c4", "c6", "d"), code)
    word = WORDS[i - 1]
    path = PATHS.get(word, PATHS.get(word.lower(), ""))
    seen = f"w {word.lower()}" if word.lower() in KNOWN else f"shape {word_shape(word)}"
    return {
        "w": hash_string(seen),
        "t": hash_string(f"tag {TAGS[i - 1]}"),
        "u": hash_string(f"tag {SECOND[i - 1]}"),
        "p": hash_string(f"pre {word.lower()[:4]}"),
        "s": hash_string(f"suf {word.lower()[-3:]}"),
        "c4": hash_string(f"4 bits {path[:4]}"),
        "c6": hash_string(f"6 bits {path[:6]}"),
        "d": hash_string(f"cluster {path}"),
    }


def index(key: int) -> int:
    key &= MASK
    key ^= key >> 32
    return (key * 0x9E3779B97F4A7C15 & MASK) >> (64 - BITS)


def bucket(distance: int) -> int:
    return distance if distance <= 5 else 6 if distance <= 10 else 7 if distance <= 20 else 8


def between(h: int, m: int) -> list[int]:
    bits = sorted(set(TAGS))
    return sorted({1 << bits.index(TAGS[i - 1]) for i in range(min(h, m) + 1, max(h, m))})


def ends(h: int, m: int) -> dict[str, int]:
    """Return all slots of an arc by name."""
    values = {"": 0, "between": sum(between(h, m))}
    inside = range(min(h, m) + 1, max(h, m))
    values["verbs"] = 1 + min(3, sum(TAGS[i - 1] == "VERB" for i in inside))
    values["marks"] = 1 + min(3, sum(TAGS[i - 1] == "PUNCT" for i in inside))
    in_brackets = {i: i in (7, 8, 9) for i in range(N + 1)}
    apart = 0 if in_brackets[h] == in_brackets[m] else 1 if in_brackets[h] else 2
    values["pair"] = 1 + apart + (0 if m not in (7, 9) else 6 if h == 8 else 3)
    for name, i in (("h", h), ("m", m)):
        values |= {f"{name}.{k}": v for k, v in strings(i).items()}
        for sign, j in (("-", i - 1), ("+", i + 1)):
            for k in "wtu":
                values[f"{name}{sign}.{k}"] = strings(j)[k] if j >= 0 else 0
    return values


def keys(kind: str, second: bool, values: dict[str, int], slots: tuple[str, ...], clusters: bool) -> list[int]:
    """Return the key of each template, without the direction."""
    result = []
    for template in names(kind, second, clusters=clusters):
        key = hash_string(f"{kind}: {template}")
        for slot in template.split():
            last = slots is not PART_SLOTS and slot in CLUSTER_SLOTS  # their constants are the last ones
            key += values[slot] * int(CONSTANTS[CLUSTER_SLOTS.index(slot) - 4 if last else slots.index(slot)])
        result.append(key)
    return result


DIRECTION, BETWEEN = 0xD6E8FEB86659FD93, 0x8CB92BA72F3D8DD7


def slow_arc(h: int, m: int, second: bool, clusters: bool) -> list[int]:
    right = int(h < m)
    plain, far = DIRECTION * (1 + right), DIRECTION * (4 + 2 * bucket(abs(h - m)) + right)
    values = ends(h, m)
    ids = [index(key + d) for key in keys("arc", second, values, ARC_SLOTS, clusters) for d in (plain, far)]
    base = BETWEEN + plain
    for slot in ("h.t", "m.t"):
        base += values[slot] * int(CONSTANTS[ARC_SLOTS.index(slot)])
    return ids + [index(base + bit * BETWEEN) for bit in between(h, m)]


def test_brackets():
    words = ["(", "a", "[", "b", ")", '"', "c", '"', "]", "(", '"']
    pairs, depth, partner = brackets(words).T.tolist()
    assert partner == [5, -1, -1, -1, 1, 8, -1, 6, -1, -1, -1]
    assert depth == [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert pairs == [1, 1, 1, 1, 1, 2, 2, 2, 0, 0, 0]
    assert brackets(["“", "a", "(", "b", ")", "”"])[:, 1].tolist() == [1, 1, 2, 2, 2, 1]
    assert [is_mark(word) for word in ("(", "...", "-LRB-", "a.", "7", "é")] == [True] * 3 + [False] * 3


def test_features_of_saved_parsers_do_not_change():
    assert [LABEL_SLOTS.index(slot) for slot in ("between", "apart", "g.w", "side")] == [23, 24, 25, 35]


@pytest.mark.parametrize("second", [False, True])
def test_arcs(tokens, second):
    clusters = has_clusters(tokens)
    templates = feature_set(second, clusters=clusters).arc
    pairs = [(h, m) for h in range(N + 1) for m in range(1, N + 1) if h != m]
    heads, modifiers = (np.array(column) for column in zip(*pairs, strict=True))
    owners, shift = np.ones(len(pairs), np.int64), np.uint64(64 - BITS)
    ids = np.empty((len(pairs), 2 * len(templates.keys) + 64), np.uint32)
    counts = np.empty(len(pairs), np.int32)
    arcs = ArcList(owners, heads, modifiers)
    arc_ids(0, len(pairs), arcs, tokens.arrays, templates, shift, ids, counts)
    for a, (h, m) in enumerate(pairs):
        assert sorted(ids[a, : counts[a]].tolist()) == sorted(slow_arc(h, m, second, clusters)), (h, m)
    # Scores are sums of the weights of the same ids, of single arcs and of all at once.
    weights = np.random.default_rng(0).normal(size=1 << BITS)
    want = [weights[ids[a, : counts[a]]].sum() for a in range(len(pairs))]
    times = SIZE // len(pairs) + 2  # more than a block of parts
    several, scores = ArcList(*(np.tile(column, times) for column in arcs)), np.empty(times * len(pairs))
    arc_scores(0, len(scores), several, tokens.arrays, templates, shift, weights, scores)
    np.testing.assert_allclose(scores, np.tile(want, times), rtol=1e-12, atol=1e-12)
    log_arc = np.zeros((times, N + 1, N + 1))
    score_all(0, times, np.ones(times, np.int64), tokens.arrays, templates, shift, weights, log_arc)
    np.testing.assert_allclose(log_arc[:, heads, modifiers], np.tile(want, (times, 1)), rtol=1e-12, atol=1e-12)
    assert (log_arc != 0).sum() == times * len(pairs)


@pytest.mark.parametrize("kind", ["sibling", "grandparent"])
def test_pairs_of_arcs(tokens, kind):
    clusters = has_clusters(tokens)
    templates = feature_set(True, clusters=clusters)._asdict()[kind]
    cases = [(6, 8, 3, 0), (6, -1, 12, 1), (6, 3, -1, 0), (6, -1, -1, 1), (0, 6, -1, 1), (3, 5, 6, 5)]
    columns = [np.array(column) for column in zip(*cases, strict=True)]
    ids = np.empty((len(cases), 2 * len(templates.keys)), np.uint32)
    counts, shift = np.empty(len(cases), np.int32), np.uint64(64 - BITS)
    parts = PartList(np.ones(len(cases), np.int64), *columns)
    part_ids(0, len(cases), parts, tokens.arrays, templates, shift, ids, counts)
    for p, (h, m, other, side) in enumerate(cases):
        values = {"": 0}
        for name, i in (("h", h), ("m", m), ("o", other)):
            values |= {f"{name}.{k}": NOBODY if i < 0 else v for k, v in strings(i).items()}
        apart = bucket(abs(m - other)) if m >= 0 and other >= 0 else 0
        codes = DIRECTION * (1 + side), DIRECTION * ((1 + side) * 16 + apart)
        want = [index(key + d) for key in keys(kind, True, values, PART_SLOTS, clusters) for d in codes]
        assert sorted(ids[p, : counts[p]].tolist()) == sorted(want)
    times = SIZE // len(cases) + 2  # more than a block of parts
    weights, scores = np.random.default_rng(1).normal(size=1 << BITS), np.empty(times * len(cases))
    several = PartList(*(np.tile(column, times) for column in parts))
    part_scores(0, len(scores), several, tokens.arrays, templates, shift, weights, scores)
    np.testing.assert_allclose(scores, np.tile([weights[row].sum() for row in ids], times), rtol=1e-12, atol=1e-12)


def test_labels(tokens):
    clusters = has_clusters(tokens)
    templates = feature_set(True, clusters=clusters)
    start, shift = int(tokens.starts[1]), np.uint64(64 - BITS)
    ids = np.empty(1000, np.uint32)
    for m in range(1, N + 1):
        h = HEADS[m - 1]
        count = call_label_ids(
            np.zeros(len(LABEL_SLOTS), np.uint64), np.array(HEADS), m, tokens.arrays, start, templates, shift, ids
        )
        values = ends(h, m) | {"apart": bucket(abs(h - m))}
        siblings = [w for w in range(1, N + 1) if HEADS[w - 1] == h and w != m]
        around = {
            "g": HEADS[h - 1] if h else -1,
            "left": max((w for w in siblings if w < m), default=-1),
            "right": min((w for w in siblings if w > m), default=-1),
        }
        children = [w for w in range(1, N + 1) if HEADS[w - 1] == m]
        values |= {
            "n.left": min(sum(w < m for w in children), 3) + 1,
            "n.right": min(sum(w > m for w in children), 3) + 1,
        }
        for name, i in around.items():
            values |= {f"{name}.{k}": NOBODY if i < 0 else strings(i)[k] for k in "wt"}
        direction = DIRECTION * (1 + (h < m))
        want = [index(key + direction) for key in keys("label", True, values, LABEL_SLOTS, clusters)]
        for w in children:
            values |= {"c.w": strings(w)["w"], "c.t": strings(w)["t"], "side": 1 + (w < m)}
            want += [index(key + direction) for key in keys("child", True, values, LABEL_SLOTS, clusters)]
        assert sorted(ids[:count].tolist()) == sorted(want), m


def test_templates_are_distinct_and_have_at_most_four_slots():
    for second in (False, True):
        for kind, table in feature_set(second, clusters=True)._asdict().items():
            templates = names(kind, second, clusters=True)
            assert len(set(templates)) == len(templates) == len(table.keys) == len(set(table.keys.tolist()))
            assert all(len(template.split()) <= 4 for template in templates)
            assert second or not any(".u" in template for template in templates)


def test_codes_of_known_and_rare_words():
    coder = TokenCoder.from_columns(["A", "a", "b", "c"], ["X", "Y", "Y", "Y"], 2)
    assert coder.words == ["a"]
    assert coder.tags == ["Y", "X"]
    tokens = coder.code(["a", "b", "c", "d"], ["X"] * 4, ["Z"] * 4, np.array([0, 4]))
    assert tokens.codes[2, 0] == tokens.codes[3, 0]  # rare words of one shape
    assert tokens.codes[1, 0] != tokens.codes[2, 0]
    assert len(tokens) == 1
    many = TokenCoder([], [f"t{k}" for k in range(80)])
    bits = many.code(["a"] * 80, [f"t{k}" for k in range(80)], ["u"] * 80, np.array([0, 80])).bits
    assert bits[80] == bits[64] == 1 << 63  # all further tags share the last bit
    assert bits[0] == bits[81] == 0
