"""``trelliswork serve`` under load: 64 clients, 20 sentences per request, two workers, against ``predict`` in-process.

The load comes from this process, over raw sockets, and shares the cores with the service; its share of the processor
time is printed. Every answer is compared with that of ``predict``, byte for byte. spaCy's tagger, untrained but of the
same size as a trained one, is measured behind a minimal Starlette application if it is installed in ``.venv-bench``.

The tagger is a CRF for the parts of speech of CoNLL-2000 (TRELLISWORK_DATA); with ``--quick`` of the bundled corpus.
"""

import argparse
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.harness import describe_processor  # noqa: E402
from benchmarks.load import process_seconds  # noqa: E402
from benchmarks.records import update  # noqa: E402

BENCHMARK = "serve"
CLIENTS, SENTENCES, WORKERS = 64, 20, 2
NOTHING = 3  # exit status with --any if there is nothing to run
BAR, BAR_P99 = 0.6, 250.0  # of in-process tokens/s, milliseconds
SPACY = ROOT / ".venv-bench" / "bin" / "python"
APPLICATION = """
import sys

import spacy
import uvicorn
from spacy.tokens import Doc
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

nlp = spacy.blank("en")
tagger = nlp.add_pipe("tagger")
for label in sys.argv[2].split(","):
    tagger.add_label(label)
nlp.initialize()


async def tag(request):
    sentences = (await request.json())["sentences"]
    docs = nlp.pipe([Doc(nlp.vocab, words=words) for words in sentences], batch_size=64)
    return JSONResponse({"answers": [{"labels": [token.tag_ for token in doc]} for doc in docs]})


async def health(request):
    return JSONResponse({"status": "ok"})


app = Starlette(routes=[Route("/v1/tag", tag, methods=["POST"]), Route("/healthz", health)])
if __name__ == "__main__":
    uvicorn.run(app, fd=int(sys.argv[1]), log_level="critical", access_log=False)
"""


@dataclass
class Request:
    """Bytes to send, the body of the answer that is expected, if known, and the number of words."""

    data: bytes
    answer: bytes | None
    words: int


@dataclass
class Load:
    """Figures of a load."""

    seconds: float = 0.0
    requests: int = 0
    words: int = 0
    errors: int = 0
    milliseconds: list[float] = field(default_factory=list)
    memory: list[tuple[float, float, float]] = field(default_factory=list)  # seconds, resident and proportional MB
    own_cpu: float = 0.0  # seconds of this process
    served_cpu: float = 0.0  # seconds of the service

    def percentile(self, share: float) -> float:
        """Return a percentile of the milliseconds of a request."""
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

    def row(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        growth = [mb for second, mb, _ in self.memory if second > self.seconds / 10] or [0.0]
        return {
            "seconds": round(self.seconds, 1),
            "requests": self.requests,
            "errors": self.errors,
            "tokens_per_second": round(self.words / max(self.seconds, 1e-9)),
            "p50_ms": round(self.percentile(0.5), 1),
            "p99_ms": round(self.percentile(0.99), 1),
            "max_ms": round(max(self.milliseconds, default=0.0), 1),
            "resident_mb": [round(growth[0], 1), round(growth[-1], 1), round(max(growth), 1)],  # first, last, maximum
            "proportional_mb": round(self.memory[-1][2], 1) if self.memory else None,
            "cpu_us_per_token": round(1e6 * self.served_cpu / max(self.words, 1), 2),
            "generator_share": round(self.own_cpu / max(self.own_cpu + self.served_cpu, 1e-9), 3),
        }


class Client:
    """A connection that sends one request after the other."""

    def __init__(self, port: int, first: int) -> None:
        self.next, self.sent, self.buffer, self.needs = first, 0.0, b"", -1
        self.request: Request | None = None
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, requests: list[Request]) -> None:
        """Send the next request."""
        self.request = requests[self.next % len(requests)]
        self.next += CLIENTS
        self.sent = time.perf_counter()
        self.socket.sendall(self.request.data)

    def receive(self) -> tuple[int, bytes] | None:
        """Return status and body when the answer is complete."""
        part = self.socket.recv(262144)
        if not part:
            raise ConnectionError("closed")
        self.buffer = self.buffer + part if self.buffer else part
        if self.needs < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return None
            head = self.buffer[:end].lower()
            at = head.index(b"content-length:") + 15
            self.needs = end + 4 + int(head[at:].split(b"\r\n", 1)[0])
            self._body = end + 4
        if len(self.buffer) < self.needs:
            return None
        answer = int(self.buffer[9:12]), self.buffer[self._body : self.needs]
        self.buffer, self.needs = b"", -1
        return answer


def drive(port: int, requests: list[Request], seconds: float, pid: int) -> Load:
    """Send requests on all connections for some seconds."""
    load, poll = Load(), select.epoll()
    clients = {}
    for n in range(CLIENTS):
        client = Client(port, n)
        clients[client.socket.fileno()] = client
        poll.register(client.socket.fileno(), select.EPOLLIN)
    began, own, served = time.perf_counter(), time.process_time(), process_seconds(pid)
    end, looked = began + seconds, 0.0
    for client in clients.values():
        client.send(requests)
    active = len(clients)
    while active:
        for number, _ in poll.poll(1.0):
            client = clients[number]
            try:
                answer = client.receive()
            except (OSError, ValueError):
                load.errors += 1
                active -= 1
                poll.unregister(number)
                client.socket.close()
                continue
            if answer is None:
                continue
            now = time.perf_counter()
            assert client.request is not None
            load.milliseconds.append(1e3 * (now - client.sent))
            expected = client.request.answer
            if answer[0] != 200 or (expected is not None and answer[1] != expected):
                load.errors += 1
            load.requests += 1
            load.words += client.request.words
            if now < end:
                client.send(requests)
            else:
                active -= 1
        now = time.perf_counter()
        if now - looked > 1.0:
            looked = now
            load.memory.append((now - began, *memory_of(pid)))
        if now > end + 60:
            load.errors += active
            break
    load.seconds = time.perf_counter() - began
    load.own_cpu, load.served_cpu = time.process_time() - own, process_seconds(pid) - served
    for client in clients.values():
        client.socket.close()
    return load


def memory_of(pid: int) -> tuple[float, float]:
    """Return resident and proportional megabytes of a process and its children."""
    resident = proportional = 0.0
    todo = [pid]
    while todo:
        one = todo.pop()
        try:
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                resident += int(line.split()[1]) / 1024 if line.startswith("Rss:") else 0
                proportional += int(line.split()[1]) / 1024 if line.startswith("Pss:") else 0
            todo += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
        except OSError:
            continue
    return resident, proportional


def prepared(quick: bool, folder: str) -> tuple[list[list[str]], list[str]]:
    """Train and save the tagger; return the sentences to tag, and the labels."""
    from trelliswork import CRF, bundled

    if quick:
        train, test = bundled.load("train"), [list(s.words) for s in bundled.load("test")]
        X, y = [list(s.words) for s in train], [list(s.tags) for s in train]
    else:
        data = Path(os.environ.get("TRELLISWORK_DATA") or ROOT.parent / "shared" / "data") / "conll2000"
        if not data.is_dir():
            raise FileNotFoundError(f"{data} is not a folder: set TRELLISWORK_DATA, or use --quick")
        (X, y), (test, _) = _columns(next(data.glob("*train*"))), _columns(next(data.glob("*test*")))
    model = CRF("pos", algorithm="perceptron", max_iter=1 if quick else 2).fit(X, y)
    model.save(folder)
    return test, list(model.labels_)


def _columns(path: Path) -> tuple[list[list[str]], list[list[str]]]:
    text = path.read_text(encoding="utf-8")
    blocks = [[line.split() for line in block.splitlines()] for block in text.strip().split("\n\n")]
    return [[row[0] for row in b] for b in blocks], [[row[1] for row in b] for b in blocks]


def requests_of(sentences: list[list[str]], answers: list[list[str]] | None) -> list[Request]:
    """Return the requests of 20 sentences each."""
    requests = []
    for n in range(0, len(sentences) - SENTENCES + 1, SENTENCES):
        part = sentences[n : n + SENTENCES]
        body = json.dumps({"sentences": part}).encode()
        head = (
            f"POST /v1/tag HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        expected = None
        if answers is not None:
            rows = [{"labels": labels} for labels in answers[n : n + SENTENCES]]
            expected = json.dumps(
                {"model": "tagger", "answers": rows}, separators=(",", ":"), ensure_ascii=False
            ).encode()
        requests.append(Request(head.encode() + b"\r\n\r\n" + body, expected, sum(map(len, part))))
    return requests


def in_process(folder: str, sentences: list[list[str]], threads: int) -> tuple[list[list[str]], dict[str, Any]]:
    """Return the answers, and tokens/s of one call for all sentences, and of calls of 20 sentences."""
    from trelliswork import load
    from trelliswork.compute.threads import set_num_threads

    set_num_threads(threads)
    model: Any = load(folder)
    answers = model.predict(sentences)
    words = sum(map(len, sentences))

    def best(call: Any, times: int = 5) -> float:
        seconds = []
        for _ in range(times):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        return words / min(seconds)

    used = time.process_time()
    model.predict(sentences)
    used = 1e6 * (time.process_time() - used) / words

    def small() -> None:
        for n in range(0, len(sentences), SENTENCES):
            model.predict(sentences[n : n + SENTENCES])

    rates = {"tokens_per_second": round(best(lambda: model.predict(sentences)))}
    return answers, rates | {
        "tokens_per_second_20": round(best(small, 2)),
        "cpu_us_per_token": round(used, 2),
        "threads": threads,
    }


def say(line: str) -> None:
    """Print progress."""
    print(line, file=sys.stderr, flush=True)


def measure_ours(folder: str, requests: list[Request], seconds: float) -> Load:
    """Start the service, and load it."""
    environment = {k: v for k, v in os.environ.items() if k != "TRELLISWORK_API_KEY"}
    command = [
        sys.executable,
        "-m",
        "trelliswork",
        "serve",
        f"tagger={folder}",
        "--workers",
        str(WORKERS),
        "--port",
        "0",
    ]
    process = subprocess.Popen([*command, "--quiet"], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        port = int(address.rsplit(":", 1)[1].strip("/"))
        drive(port, requests, min(3.0, seconds / 4), process.pid)
        load = drive(port, requests, seconds, process.pid)
        with urllib.request.urlopen(f"{address}metrics") as answer:
            lines = answer.read().decode().splitlines()
        batches = [float(line.split()[-1]) for line in lines if line.startswith("trelliswork_batches_total")]
        say(f"trelliswork: {sum(batches):.0f} batches for {load.requests} requests and the warm-up")
        return load
    finally:
        process.terminate()
        process.wait(60)


def measure_spacy(labels: list[str], requests: list[Request], seconds: float) -> Load | str:
    """Start workers of the minimal application, and load them; return the reason if that is not possible."""
    if not SPACY.exists():
        return f"{SPACY} is missing: make setup-bench"
    probe = subprocess.run([SPACY, "-c", "import spacy, starlette, uvicorn"], capture_output=True, text=True)
    if probe.returncode:
        return (probe.stderr.strip().splitlines() or ["not installed"])[-1]
    with socket.socket() as listening, tempfile.TemporaryDirectory() as folder:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        port, number = listening.getsockname()[1], listening.fileno()
        script = Path(folder) / "application.py"
        script.write_text(APPLICATION)
        shell = f'for n in 1 2; do "{SPACY}" "{script}" {number} "{",".join(labels)}" & done; wait'
        one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        process = subprocess.Popen(["bash", "-c", shell], pass_fds=(number,), env=one_thread, start_new_session=True)
        try:
            time.sleep(8)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60):
                pass
            drive(port, requests, min(3.0, seconds / 4), process.pid)
            return drive(port, requests, seconds, process.pid)
        finally:
            os.killpg(process.pid, 15)
            process.wait(30)


def main() -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--threads", type=int, default=2, help="threads of predict in-process")
    parser.add_argument("--seconds", type=float, default=None, help="length of a load; 300, with --quick 2")
    parser.add_argument("--repeats", type=int, default=1, help="number of loads, one after the other")
    parser.add_argument("--quick", action="store_true", help="a small model and a short load")
    parser.add_argument("--cases", default=None, help="texts in the name of the case, 'tagger'")
    parser.add_argument("--peers", default=None, help="'spacy', or '' for none")
    parser.add_argument("--any", action="store_true", help="exit status 3 if there is nothing to run")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the figures to this file of records")
    options = parser.parse_args()
    if options.record and options.quick:
        parser.error("--record is for full measurements: leave out --quick")
    if options.cases is not None and not any(text in "tagger" for text in options.cases.split(",")):
        say("serve has one case: tagger")
        return NOTHING if options.any else 2
    seconds = options.seconds or (2.0 if options.quick else 300.0)
    rows: list[dict[str, Any]] = []

    def add(name: str, figures: dict[str, Any]) -> None:
        rows.append({"bench": "serve", "case": "tagger", "name": name, **figures})

    with tempfile.TemporaryDirectory() as temporary:
        folder = str(Path(temporary) / "tagger")
        say("training")
        sentences, labels = prepared(options.quick, folder)
        answers, rates = in_process(folder, sentences, options.threads)
        add("in-process predict", rates)
        status = 0
        for _ in range(options.repeats):
            say(f"trelliswork serve: {seconds:g} s")
            load = measure_ours(folder, requests_of(sentences, answers), seconds)
            share = load.words / load.seconds / rates["tokens_per_second"]
            held = {
                "share": round(share, 3),
                "bar": share >= BAR and load.percentile(0.99) < BAR_P99 and not load.errors,
            }
            add("trelliswork serve", load.row() | held)
            status |= load.errors > 0
        if options.peers is None or "spacy" in options.peers:
            say(f"spacy: {min(seconds, 30):g} s")
            peer = measure_spacy(labels, requests_of(sentences, None), min(seconds, 30.0))
            add("spacy", {"skipped": peer} if isinstance(peer, str) else peer.row())
    if options.record:
        origin = {
            "command": "python -m benchmarks serve",
            "machine": describe_processor(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }
        update(options.record, [{"peer": row["name"], "threads": options.threads} | row | origin for row in rows])
    for row in rows:
        text = (
            json.dumps(row)
            if options.json
            else "  ".join(f"{k}={v}" for k, v in row.items() if k not in ("bench", "case"))
        )
        print(text, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
