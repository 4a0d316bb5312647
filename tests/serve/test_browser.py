"""The page in a browser: type, click a word, force a label, read the changed result."""

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.browser import WIDTHS
from tests.serve.families import service_of
from trelliswork.serve.app import create_app
from trelliswork.serve.sockets import open_socket

HOSTILE = "<img src=x onerror=document.title='run'>"


@pytest.fixture(scope="module")
def address(model) -> Callable[[str], str]:
    """Return a function that serves the page of a model until the end of the module and returns its address."""
    import uvicorn

    with ExitStack() as stack:
        addresses: dict[str, str] = {}

        def serve(name: str) -> str:
            if name not in addresses:
                listening = stack.enter_context(open_socket("127.0.0.1", 0))
                app = create_app(service_of({name: model(name)}, page=True))
                server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
                thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
                thread.start()
                stack.callback(thread.join, 5)
                stack.callback(setattr, server, "should_exit", True)
                addresses[name] = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            return addresses[name]

        yield serve


def check(opened, address):
    assert opened.errors == []
    assert opened.overflow() <= 0
    assert all(request.startswith(address) for request in opened.requests)


@pytest.mark.parametrize("width", WIDTHS)
def test_type_a_sentence_force_a_tag_and_see_the_posterior_change(open_page, address, width):
    opened = open_page(address("hmm"), width)
    page = opened.page
    page.wait_for_selector("#best")
    page.fill("textarea", "The old man found the cat .")
    page.keyboard.press("Enter")
    page.wait_for_selector("#word-0-1:has-text('old')")
    labels = [node.inner_text().split()[0] for node in page.query_selector_all(".best-label")]
    page.click("#word-0-1")
    page.wait_for_selector("#picker")
    second = page.query_selector_all("#options li")[1]
    chosen = second.query_selector("span").inner_text()
    second.query_selector("button").click()
    page.wait_for_selector("#given")
    after = [node.inner_text().split()[0] for node in page.query_selector_all(".best-label")]
    assert after[1] == chosen != labels[1]
    assert page.inner_text("#evidence-p")
    assert f"old = {chosen}" in page.inner_text("#given")
    check(opened, address("hmm"))
    page.click("#reset")
    page.wait_for_selector("#given", state="detached")
    assert [node.inner_text().split()[0] for node in page.query_selector_all(".best-label")] == labels
    check(opened, address("hmm"))


def test_the_keyboard_suffices(open_page, address):
    page = open_page(address("hmm")).page
    page.wait_for_selector("#best")
    page.focus("#word-0-2")
    page.keyboard.press("Enter")
    page.wait_for_selector("#picker")
    page.focus("#options li:nth-child(2) button:last-child")  # forbid
    page.keyboard.press("Space")
    page.wait_for_selector("#given")
    assert "≠" in page.inner_text("#given")
    page.keyboard.press("Escape")  # the focus is still in the list
    page.wait_for_selector("#picker", state="detached")
    page.focus("#tab-tag")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#panel-fill")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#panel-next table")


def test_input_is_shown_and_never_executed(open_page, address):
    opened = open_page(address("hmm"))
    page = opened.page
    page.wait_for_selector("#best")
    page.fill("textarea", HOSTILE.replace(" ", "\u00a0") + " & <b>bold</b>")
    page.click("button.main")
    page.wait_for_selector("#word-0-1")
    assert page.query_selector("main img") is None
    assert page.query_selector("main b b") is None
    page.fill("textarea", "")
    page.click("button.main")
    page.wait_for_selector("[role=alert]")
    assert "at least one word" in page.inner_text("[role=alert]")
    assert "run" not in page.title()


@pytest.mark.parametrize("width", WIDTHS)
def test_force_a_head(open_page, address, width):
    opened = open_page(address("parser-2"), width)
    page = opened.page
    page.wait_for_selector("#node-3")
    page.focus("#node-3")
    page.keyboard.press("Enter")
    page.wait_for_selector("#picker")
    page.query_selector_all("#options li")[1].query_selector("button").click()
    page.wait_for_selector("#given")
    assert "head of" in page.inner_text("#given")
    check(opened, address("parser-2"))


def test_layers_and_spans(open_page, address):
    opened = open_page(address("factorial-crf"))
    page = opened.page
    page.click("summary:has-text('Labels of all tokens')")
    page.click("#word-1-1")
    page.wait_for_selector("#picker")
    page.query_selector_all("#options li")[1].query_selector("button").click()
    page.wait_for_selector("#given")
    assert "(chunk)" in page.inner_text("#given")
    check(opened, address("factorial-crf"))
    opened = open_page(address("pcfg"), 390)
    page = opened.page
    page.wait_for_selector("#spans")
    page.query_selector_all("#spans tr")[2].query_selector("button").click()
    page.wait_for_selector("#given")
    check(opened, address("pcfg"))


@pytest.mark.parametrize("width", WIDTHS)
def test_rules(open_page, address, width):
    opened = open_page(address("hmm"), width)
    page = opened.page
    page.wait_for_selector("#best")
    page.fill("textarea", "The old man found the cat .")
    page.fill("input[name='rules:']", "Count(JJ, maximum=0)")
    page.keyboard.press("Enter")
    page.wait_for_selector("#rules-p")
    assert 0 <= float(page.inner_text("#rules-p")) < 1
    assert "JJ" not in [node.inner_text().split()[0] for node in page.query_selector_all(".best-label")]
    check(opened, address("hmm"))


@pytest.mark.parametrize("width", WIDTHS)
def test_fill_sample_and_neighbors_of_a_language_model(open_page, address, width):
    opened = open_page(address("mrf-lm"), width)
    page = opened.page
    page.wait_for_selector("#panel-fill table")
    page.fill("textarea", "The _ found the market .")
    page.click("button.main")
    page.wait_for_selector("#panel-fill p:has-text('found the market')")
    chosen = page.query_selector_all("#panel-fill .link")[1]
    word = chosen.inner_text()
    chosen.click()
    assert page.input_value("textarea") == f"The {word} found the market ."
    page.click("#tab-sample")
    page.wait_for_selector(".sentences li")
    first = page.inner_text(".sentences")
    page.click("#again")
    page.wait_for_function("old => document.querySelector('.sentences').innerText !== old", arg=first)
    assert page.input_value("input[name=seed]") == "1"
    page.click("#tab-neighbors")
    page.wait_for_selector("#panel-neighbors table")
    page.query_selector_all("#panel-neighbors .link")[0].click()
    page.wait_for_selector("#panel-neighbors .result:not([aria-busy])")
    check(opened, address("mrf-lm"))


@pytest.mark.parametrize("name", ["crf", "ready", "numbers", "hmm-lm", "kneser-ney", "log-bilinear"])
def test_every_tab_of_other_models_opens(open_page, address, name):
    opened = open_page(address(name), 390)
    page = opened.page
    page.wait_for_selector("[role=tabpanel]")
    for tab in page.query_selector_all("[role=tab]"):
        if tab.is_visible():
            tab.click()
        page.wait_for_selector("[role=tabpanel] button.main:not([aria-busy])")
    check(opened, address(name))
