"""Sessions and the loop without a server."""

import json
import random
import time
from pathlib import Path

import pytest

from tests.label.conftest import GOLD
from trelliswork import CRF
from trelliswork.data import read_spans
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.label.loop import Loop
from trelliswork.label.pool import read_pool, spans_of
from trelliswork.label.session import HELD, Phrases, Session, evidence


@pytest.fixture
def session(pool_file):
    made = Session(read_pool(str(pool_file)), pool_file.with_name("labels.jsonl"), ["PER", "LOC"])
    yield made
    made.journal.close()


def labeled(session, n=30):
    """Label sentences as they come, all words as they should be."""
    for _ in range(n):
        k = session.next("me")
        session.save(k, GOLD[k][1], "done", "me", 2)
    return session


def state(session):
    return session.answers, session.labels, session.clicks, session.phrases._kinds


def test_a_replay_gives_the_same_state(session, pool_file):
    rng = random.Random(1)
    for _ in range(60):
        n = rng.randrange(len(GOLD))
        gold = GOLD[n][1]
        kind = rng.choice(["done", "part", "skip"])
        session.save(n, gold if kind == "done" else [label if label == "O" else None for label in gold], kind, "me", 1)
    session.journal.close()
    again = Session(session.pool, session.out, ["PER", "LOC"])
    assert state(again)[:3] == state(session)[:3]
    assert {k: +c for k, c in again.phrases._kinds.items() if +c} == {
        k: +c for k, c in session.phrases._kinds.items() if +c
    }


def test_the_output_is_read_by_read_spans(session):
    labeled(session, 10).write()
    X, y = read_spans(session.out)
    rows = {tuple(words): labels for words, labels in GOLD}
    assert len(X) == 10
    assert all(rows[tuple(words)] == labels for words, labels in zip(X.sentences(0), y, strict=True))


def test_a_half_labeled_sentence_is_no_answer_for_readers_but_keeps_its_labels(session):
    session.save(0, [*GOLD[0][1][:2], *[None] * (len(GOLD[0][1]) - 2)], "part")
    session.write()
    (record,) = map(json.loads, session.out.read_text().splitlines())
    assert (record["answer"], record["tags"][:3]) == ("ignore", ["B-PER", "O", None])


def test_an_output_without_a_journal_is_not_overwritten(pool_file):
    out = pool_file.with_name("other.jsonl")
    out.write_text("mine\n")
    with pytest.raises(DataError, match="was not written from a journal"):
        Session(read_pool(str(pool_file)), out)
    assert out.read_text() == "mine\n"


def test_the_loop_learns_estimates_and_chooses(session):
    loop = Loop(labeled(session))
    loop.step()
    assert session.version == 1
    assert len(session.queue) == 20
    (point,) = session.curve
    assert point["held"] == 30 // HELD
    assert 0 <= point["low"] <= point["value"] <= point["high"] <= 1
    assert point["value"] > 0.8
    assert point["low"] < 1
    right = sum(session.answer(n, [None] * len(y))["labels"] == y for n, (_, y) in enumerate(GOLD))
    assert right > 50
    n = session.queue[0]
    loop.step()  # from the last weights
    assert session.next("me") in (n, *session.queue, *range(60))


def test_held_out_answers_are_never_trained_on(session, monkeypatch):
    labeled(session)
    loop = Loop(session)
    seen = []
    fit = loop._fit
    monkeypatch.setattr(loop, "_fit", lambda train: seen.extend(n for n, _ in train) or fit(train))
    loop.step()
    held = {n for n, saved in session.answers.items() if saved.held}
    assert len(held) == 6
    assert not held & set(seen)


def test_what_is_fixed_moves_the_rest_and_probabilities_are_those_of_the_posterior(session):
    Loop(labeled(session)).step()
    model, words = session.model, ["Kurt", "visited", "New", "York", "again", "."]
    n = session.pool.words.index(
        next(w for w in session.pool.words if w[1:4] == ["left", "New", "York"] or "York" in w)
    )
    words = session.pool.words[n]
    at = words.index("York")
    fixed = [None] * len(words)
    fixed[at] = "O"
    answer = session.answer(n, fixed)
    (marginals,) = model.predict_marginals([words], known=[fixed])
    for t, row in enumerate(answer["options"]):
        assert all(p == pytest.approx(marginals[t][label], abs=1e-4) for label, p in row)
    free = session.answer(n, [None] * len(words))
    assert free["labels"][at] == "I-LOC"
    assert answer["labels"][at] == "O"
    assert answer["p"] != free["p"]


def test_a_fixed_span_ends_where_it_ends(session):
    Loop(labeled(session)).step()
    n = next(n for n, words in enumerate(session.pool.words) if "York" in words)
    words = session.pool.words[n]
    labels = [None] * len(words)
    labels[words.index("New")] = "B-LOC"
    assert session.answer(n, labels)["labels"][words.index("York")] != "I-LOC"


def test_a_label_that_the_model_has_not_seen_is_shown_as_given(session):
    Loop(labeled(session)).step()
    labels = [None] * len(GOLD[0][0])
    labels[0] = "B-TEAM"
    answer = session.answer(0, labels)
    assert answer["labels"][0] == "B-TEAM"
    assert answer["spans"][0] == {"type": "TEAM", "start": 0, "stop": 1, "p": 1.0}


def test_a_span_whose_first_label_the_model_has_not_seen_is_shown_as_given(session):
    assert evidence(["O", "B-X", "I-X", None, "B-Y"], True, {"O", "I-X", "B-Y"}) == [
        "O", None, None, {"O", "B-Y"}, "B-Y",
    ]  # fmt: skip
    for n, (_, labels) in enumerate(GOLD[:12]):
        session.save(n, ["O" if "PER" in label else label for label in labels], "done")
    Loop(session).step()
    labels = ["B-PER", "I-PER", *[None] * (len(GOLD[1][0]) - 2)]
    assert session.answer(1, labels)["labels"][:2] == ["B-PER", "I-PER"]


def test_a_model_that_rules_out_what_is_fixed_does_not_stop_the_page(session):
    Loop(labeled(session)).step()
    labels: list = [None] * len(GOLD[0][0])
    labels[1] = "I-PER"  # after a word that is not B-PER: nothing in the scheme
    labels[0] = "O"
    assert session.answer(0, labels)["labels"][0] == "O"


def test_half_labeled_sentences_teach(session):
    for n, (_, labels) in enumerate(GOLD[:20]):
        kept = "PER" if n % 2 else "LOC"
        session.save(n, [label if label == "O" or kept in label else None for label in labels], "part")
    Loop(session).step()
    right = sum(session.answer(n, [None] * len(y))["labels"] == y for n, (_, y) in enumerate(GOLD))
    assert right > 45


def test_confident_contradictions_are_shown_for_a_second_look(session):
    labeled(session, 50)
    n, saved = next((n, saved) for n, saved in session.answers.items() if saved.held)
    wrong = ["O"] * len(saved.labels)
    session.save(n, wrong, "done", "me")
    Loop(session).step()
    assert n in {doubt["sentence"] for doubt in session.doubts}


def test_a_failure_of_the_loop_is_told_and_the_next_try_works(session, monkeypatch):
    loop = Loop(labeled(session, 10))

    def full():
        raise DataError("no space left")

    def wait(condition):
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.02)

    monkeypatch.setattr("trelliswork.label.loop.WRITE", 0.05)
    with monkeypatch.context() as patched:
        patched.setattr(session, "write", full)
        loop.start()
        wait(lambda: session.status()["trouble"] == "no space left")
    wait(lambda: session.model is not None and session.out.exists() and not session.trouble)
    loop.close()
    session.journal = Session(session.pool, session.out).journal  # which the fixture closes


def test_a_given_model_answers_until_a_better_one_is_there(pool_file):
    gold = [row for row in GOLD if len(row[0]) < 8]
    model = CRF("ner").fit([w for w, _ in gold], [y for _, y in gold])
    session = Session(read_pool(str(pool_file)), pool_file.with_name("o.jsonl"), model=model)
    assert sorted(session.labels) == ["LOC", "PER"]
    for n in range(5):
        session._drawn.add(n)
        session.save(n, GOLD[n][1], "done")
    for n in (7, 8):
        session.save(n, ["O"] * (len(GOLD[n][1]) - 1) + ["B-PER"], "done")
    Loop(session).step()
    assert session.model is model
    assert session.curve[-1]["value"] == 1.0
    session.journal.close()


def test_phrases_are_labeled_as_before_unless_they_were_labeled_in_two_ways():
    phrases = Phrases(spans=True)
    phrases.count(["in", "New", "York", "."], ["O", "B-LOC", "I-LOC", "O"])
    assert phrases.labels(["York", "New", "York"]) == [None, "B-LOC", "I-LOC"]
    phrases.count(["New", "York", "won"], ["B-ORG", "I-ORG", "O"])
    assert phrases.labels(["New", "York"]) == [None, None]
    phrases.count(["New", "York", "won"], ["B-ORG", "I-ORG", "O"], -1)
    assert phrases.labels(["New", "York"]) == ["B-LOC", "I-LOC"]
    tags = Phrases(spans=False)
    tags.count(["the", "the"], ["DT", "DT"])
    assert tags.labels(["the", "dog"]) == ["DT", None]


def test_each_sentence_is_given_to_one_person(session):
    people = [session.next(f"p{k}") for k in range(20)]
    assert len(set(people)) == 20
    assert session.next("p3") == people[3]  # until it is labeled
    session.save(people[3], GOLD[people[3]][1], "done", "p3")
    assert session.next("p3") not in people


def test_all_sentences_come_and_then_none(session):
    labeled(session, len(GOLD))
    assert session.next("me") is None
    assert len(session.answers) == len(GOLD)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["O"], "a list of"),
        ("O", "a list of"),
        ([1] * 7, "a string or null"),
        (["I-PER"] + ["O"] * 99, "must follow"),
        (["B-PER", "I-LOC"] + ["O"] * 99, "must follow"),
        (["PER"] + ["O"] * 99, "must be O, B-TYPE"),
        (["B-"] + ["O"] * 99, "must be O, B-TYPE"),
    ],
)
def test_wrong_labels_are_refused(session, labels, message):
    n = len(GOLD[0][0])
    labels = labels[:n] if isinstance(labels, list) and len(labels) > 7 else labels
    labels = [1] * n if labels == [1] * 7 else labels
    with pytest.raises(ValueRangeError, match=message):
        session.check(0, labels)


@pytest.mark.parametrize("n", [-1, 60, None, "0", True])
def test_numbers_of_no_sentence_are_refused(session, n):
    with pytest.raises(ValueRangeError, match="from 0 to 59"):
        session.check(n, [])


def test_a_refused_answer_changes_nothing(session):
    for state, labels in (("done", [None] * len(GOLD[0][0])), ("gone", GOLD[0][1])):
        with pytest.raises(ValueRangeError):
            session.save(0, labels, state)
    with pytest.raises(ValueRangeError, match="without spaces"):
        session.save(0, ["B-A B", *["O"] * (len(GOLD[0][0]) - 1)], "done")
    assert not session.answers


def test_pools_of_all_formats_keep_their_labels(tmp_path):
    columns = tmp_path / "pool.conll"
    columns.write_text("Ada\tB-PER\nleft\tO\n\nRome\t_\n.\tO\n\nOslo\t_\n.\t_\n")
    assert read_pool(str(columns)).labels == [["B-PER", "O"], [None, "O"], None]
    assert read_pool(str(columns), "tags").labels == [["B-PER", "O"], [None, "O"], None]
    lines = tmp_path / "pool.jsonl"
    lines.write_text('{"text": "Ada left.", "label": [[0, 3, "PER"]]}\n{"text": "It rained."}\n')
    pool = read_pool(str(lines))
    assert pool.words == [["Ada", "left", "."], ["It", "rained", "."]]
    assert pool.labels == [["B-PER", "O", "O"], None]
    assert pool.located(1) == {"text": "It rained.", "offset": 0, "places": [[0, 2], [3, 9], [9, 10]]}
    table = tmp_path / "pool.csv"
    table.write_text('id,text\n1,"Ada left."\n')
    assert read_pool(str(table)).words == [["Ada", "left", "."]]


def test_tags_are_learned_too(tmp_path):
    path = tmp_path / "pool.txt"
    path.write_text("the dog runs\na cat sleeps\nthe cat runs\na dog sleeps\nthe bird sings loudly\n")
    session = Session(read_pool(str(path), "tags"), tmp_path / "out.jsonl", ["D", "N", "V"])
    assert session.answer(0, [None] * 3)["labels"] == [None] * 3
    for n in range(4):
        session.save(n, ["D", "N", "V"], "done")
    Loop(session).step()
    assert session.answer(4, [None] * 4)["labels"][:3] == ["D", "N", "V"]
    assert session.sentence(4)["labels"] == ["D", None, None, None]  # as before
    session.journal.close()


def test_a_hundred_thousand_sentences_start_in_five_seconds(tmp_path):
    path = tmp_path / "pool.txt"
    rng = random.Random(0)
    vocabulary = [f"word{k}" for k in range(20_000)]
    with Path(path).open("w") as file:
        for _ in range(100_000):
            file.write(" ".join(rng.choices(vocabulary, k=18)) + "\n")
    began = time.perf_counter()
    session = Session(read_pool(str(path)), tmp_path / "out.jsonl", ["PER"])
    assert session.next("me") is not None
    assert time.perf_counter() - began < 5
    session.journal.close()


def test_spans_of_open_labels():
    assert spans_of(["B-A", None, "B-B", "I-B"]) == [("A", 0, 1), ("B", 2, 4)]
