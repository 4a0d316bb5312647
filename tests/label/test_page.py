"""The page in a browser: label, see the model appear, fix a word, reload, kill the server, go on, export."""

import json
import re
import shlex
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.browser import WIDTHS
from tests.label.conftest import GOLD

LABELS = {tuple(words): labels for words, labels in GOLD}


def until(page, condition: str) -> None:
    """Wait until an expression of the page is true; its policy forbids that the page itself evaluates it."""
    end = time.monotonic() + 15
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.01)


def shown(page) -> tuple[list[str], int]:
    """Return the words of the sentence on the page, and its number."""
    page.wait_for_selector("#sentence .word")
    return page.eval_on_selector_all("#sentence .word b", "all => all.map((one) => one.textContent)"), page.evaluate(
        "now.sentence"
    )


def mark(page) -> None:
    """Correct the sentence on the page by keys alone, and save it."""
    words, _ = shown(page)
    gold = LABELS[tuple(words)]
    for t, label in enumerate(gold):
        mine = page.evaluate(f"now.answer.labels[{t}]")
        if mine == label:
            continue
        page.evaluate(f"at = to = {t}; draw()")
        if label == "O":
            page.keyboard.press("0")
        else:
            stop = next((k for k in range(t + 1, len(gold)) if not gold[k].startswith("I-")), len(gold))
            for _ in range(t + 1, stop):
                page.keyboard.press("Shift+ArrowRight")
            page.keyboard.press("12"[label.endswith("LOC")])
        until(page, f"!busy && now.answer.labels[{t}] === {json.dumps(label)}")
    save(page)


def save(page, key="Enter") -> None:
    """Save, and wait for what comes next."""
    before = page.evaluate("`${now.sentence}:${status.done + status.part + status.skip}`")
    page.keyboard.press(key)
    until(page, f"!busy && `${{now?.sentence}}:${{status.done + status.part + status.skip}}` !== '{before}'")


def test_the_whole_way(label, open_page, pool_file, tmp_path):
    out = tmp_path / "labels.jsonl"
    server = label(pool_file, "--out", out, "--labels", "PER,LOC")
    opened = open_page(server.address)
    page = opened.page
    for _ in range(12):
        mark(page)
    server.until(lambda status: status["model"])
    until(page, "status.model && now.answer.p[0] !== null")
    for _ in range(8):
        mark(page)
    assert page.evaluate("status.done") == 20
    # One fixed word moves the rest, and undo brings everything back.
    page.wait_for_timeout(300)
    before = page.evaluate("JSON.stringify([now.labels, now.answer])")
    page.evaluate("at = to = 0; draw()")
    page.keyboard.press("0")
    until(page, "!busy && now.labels[0] === 'O'")
    after = page.evaluate("JSON.stringify([now.labels, now.answer])")
    assert after != before
    page.keyboard.press("z")
    until(page, "!busy && now.labels[0] !== 'O'")
    page.keyboard.press("y")
    until(page, "!busy && now.labels[0] === 'O'")
    page.keyboard.press("z")
    until(page, "!busy && now.labels[0] !== 'O'")
    n = page.evaluate("now.sentence")
    page.reload()
    assert shown(page)[1] == n  # still this person's sentence
    assert page.evaluate("status.done") == 20
    assert not opened.errors
    # Kill the server: nothing acknowledged is lost, and the page says that nothing is saved meanwhile.
    server.process.kill()
    server.process.wait()
    page.keyboard.press("Enter")
    page.wait_for_selector("#error .error")
    assert "nothing more is saved" in page.inner_text("#error")
    again = label(pool_file, "--out", out, "--labels", "PER,LOC")
    assert again.post("status")["done"] == 20
    page.goto(again.address)
    for _ in range(3):
        mark(page)
    page.keyboard.press("s")
    until(page, "!busy && status.skip === 1")
    with page.expect_download() as download:
        page.click("[data-kind=jsonl]")
    records = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert len(records) == 23
    for one in records:
        assert one["tags"] == LABELS[tuple(token["text"] for token in one["tokens"])]
    page.fill("#query", "zzz")
    until(page, "document.querySelectorAll('#list button').length === 0")
    page.fill("#query", "PER")
    until(page, "document.querySelectorAll('#list button').length > 0")
    page.click("#list button")
    until(page, "now.state === 'done'")
    again.end()
    assert len(out.read_text().splitlines()) == 23


def test_with_the_mouse_a_span_is_dragged_and_fixed_words_are_saved_alone(label, open_page, pool_file, tmp_path):
    server = label(pool_file, "--out", tmp_path / "o.jsonl", "--labels", "PER,LOC")
    page = open_page(server.address).page
    shown(page)
    first, second = (page.locator("#sentence .word").nth(k).bounding_box() for k in (0, 1))
    page.mouse.move(first["x"] + 5, first["y"] + 8)
    page.mouse.down()
    page.mouse.move(second["x"] + 9, second["y"] + 8, steps=4)
    page.mouse.up()
    page.click("#palette [data-label=PER]")
    until(page, "!busy && now.labels[1] === 'I-PER'")
    assert page.evaluate("now.labels.slice(0, 3)") == ["B-PER", "I-PER", None]
    page.locator("#sentence .word").nth(1).click()
    page.click("#palette [data-label=LOC]")  # the whole span changes its type
    until(page, "!busy && now.labels[1] === 'I-LOC'")
    page.locator("#sentence .word").nth(2).click()
    page.keyboard.press("/")
    page.keyboard.type("TEAM")
    page.keyboard.press("Enter")
    until(page, "!busy && now.labels[2] === 'B-TEAM'")
    save(page, "Shift+Enter")
    status = server.post("status")
    assert (status["part"], status["labels"]) == (1, ["PER", "LOC", "TEAM"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_and_loads_nothing_from_outside(label, open_page, pool_file, tmp_path, width, scheme):
    server = label(pool_file, "--out", tmp_path / "o.jsonl", "--labels", "PER,LOC,ORG")
    for n in range(20):
        server.post("save", sentence=n, labels=GOLD[n][1], state="done", who="me", clicks=1)
    server.until(lambda status: status["model"])
    opened = open_page(server.address, width=width, scheme=scheme)
    shown(opened.page)
    assert opened.overflow() <= 0
    assert all(address.startswith(server.address) for address in opened.requests)
    assert not opened.errors


def test_the_command_on_the_page_of_the_documentation_starts(label, tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "label.md").read_text(encoding="utf-8")
    (pool,) = re.findall(r"^```text title=\"pool.txt\"\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (command,) = re.findall(r"^trelliswork label (.*)$", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    Path("pool.txt").write_text(pool, encoding="utf-8")
    status = label(*shlex.split(command)).post("status")
    assert (status["sentences"], status["labels"]) == (4, ["PER", "LOC"])


def test_two_servers_on_one_output_are_refused(label, pool_file, tmp_path):
    label(pool_file, "--out", tmp_path / "o.jsonl")
    with pytest.raises(AssertionError, match="another server"):
        label(pool_file, "--out", tmp_path / "o.jsonl")


def test_doccano_and_columns_are_exported(label, pool_file, tmp_path):
    server = label(pool_file, "--out", tmp_path / "o.jsonl")
    server.post("save", sentence=1, labels=GOLD[1][1], state="done")
    server.post("save", sentence=2, labels=[None] * len(GOLD[2][0]), state="part")

    def exported(kind):
        return urllib.request.urlopen(f"{server.address}label/export/{kind}", timeout=10).read().decode()

    (line,) = exported("doccano").splitlines()
    assert json.loads(line) == {"text": " ".join(GOLD[1][0]), "label": [[0, 12, "PER"], [18, 26, "LOC"]]}
    assert exported("conll") == "".join(f"{w}\t{y}\n" for w, y in zip(*GOLD[1], strict=True)) + "\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        exported("other")


def test_requests_of_other_sites_and_wrong_ones_are_refused(label, pool_file, tmp_path):
    server = label(pool_file, "--out", tmp_path / "o.jsonl")

    def status(headers, path="label/status"):
        try:
            request = urllib.request.Request(server.address + path, b"{}", headers)
            return urllib.request.urlopen(request, timeout=10).status
        except urllib.error.HTTPError as refusal:
            return refusal.code

    kind = {"content-type": "application/json"}
    assert status(kind) == 200
    assert status({"content-type": "text/plain"}) == 415
    assert status(kind | {"host": "evil.example"}) == 400
    assert "error" in server.post("save", sentence=0, labels=["O"], state="done")
    assert "error" in server.post("save", sentence=0, labels=["O"] * len(GOLD[0][0]), state="done", who="x" * 99)
    assert server.post("status")["done"] == 0


def test_a_key_is_needed_if_there_is_one(label, open_page, pool_file, tmp_path):
    key = "a-key-of-the-tests-0123456789"
    server = label(pool_file, "--out", tmp_path / "o.jsonl", key=key)
    assert "API key" in server.post("status")["error"]["what"]
    page = open_page(server.address).page
    page.fill("#error input", "wrong")
    page.press("#error input", "Enter")
    page.get_by_text("This key is wrong").wait_for()
    page.fill("#error input", key)
    page.press("#error input", "Enter")
    assert shown(page)[0] in [words for words, _ in GOLD]


def test_answers_are_quick_while_the_model_is_trained(label, pool_file, tmp_path):
    """On two cores the 95th percentile is below 100 ms; other tests may use the machine, so a median is compared."""
    server = label(pool_file, "--out", tmp_path / "o.jsonl", "--labels", "PER,LOC")
    times = []
    for n in range(50):
        began = time.perf_counter()
        server.post("decode", sentence=n, labels=[None] * len(GOLD[n][0]))
        times.append(time.perf_counter() - began)
        server.post("save", sentence=n, labels=GOLD[n][1], state="done", who="me", clicks=1)
    assert sorted(times)[25] < 0.1
