"""A pool of names, and a labeling server as a process."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

PEOPLE = ("Ada", "Grace", "Alan", "Emmy", "Kurt", "Rosa")
FAMILIES = ("Lovelace", "Hopper", "Turing", "Noether")
PLACES = ("Paris", "New York", "Rome", "Oslo", "Lima")


def sentences() -> list[tuple[list[str], list[str]]]:
    """Return sentences and their labels in BIO."""
    rows = []
    for n in range(60):
        person = [PEOPLE[n % 6], *([FAMILIES[n % 4]] if n % 3 else [])]
        place = PLACES[n % 5].split()
        verb = ("visited", "left", "likes")[n % 3]
        tail = ("again", "in May", "with friends", "by train")[n % 4].split()
        words = [*person, verb, *place, *tail, "."]
        labels = ["B-PER", *["I-PER"] * (len(person) - 1), "O", "B-LOC", *["I-LOC"] * (len(place) - 1)]
        rows.append((words, labels + ["O"] * (len(tail) + 1)))
    return rows


GOLD = sentences()


@pytest.fixture
def pool_file(tmp_path):
    path = tmp_path / "pool.txt"
    path.write_text("".join(" ".join(words) + "\n" for words, _ in GOLD), encoding="utf-8")
    return path


class Running:
    """``trelliswork label`` as a process."""

    def __init__(self, *words: object, key: str | None = None) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "TRELLISWORK_API_KEY"}
        environment |= {} if key is None else {"TRELLISWORK_API_KEY": key}
        command = [sys.executable, "-m", "trelliswork", "label", *map(str, words), "--port", "0", "--quiet"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            _, told = self.process.communicate(timeout=20)
            raise AssertionError(told)

    def post(self, name: str, **fields: object) -> dict:
        """Return the answer to a request of the page; a refusal has the key ``error``."""
        request = urllib.request.Request(
            f"{self.address}label/{name}", json.dumps(fields).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return json.load(response)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal)

    def until(self, condition, seconds: float = 30.0) -> dict:
        """Wait until the status satisfies a condition, and return it."""
        end = time.monotonic() + seconds
        while not condition(status := self.post("status")):
            assert time.monotonic() < end, status
            time.sleep(0.1)
        return status

    def end(self) -> None:
        """Stop it orderly."""
        self.process.terminate()
        self.process.wait(20)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def label():
    """Return a function that starts a server, which the end of the test stops."""
    running = []

    def start(*words: object, key: str | None = None) -> Running:
        running.append(Running(*words, key=key))
        return running[-1]

    yield start
    for one in running:
        one.end()
