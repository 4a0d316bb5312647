"""Processes of the service that start, die and are measured; each test starts one of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import run_process
from tests.serve.conftest import TEXT
from tests.serve.services import Running

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def running():
    """Return a function that starts a service, which does not outlive a failed test."""
    started = []

    def start(*words):
        started.append(Running(*words))
        return started[-1]

    yield start
    for service in started:
        if service.process.poll() is None:
            for pid in (service.process.pid, *service.workers):
                os.kill(pid, signal.SIGKILL)
            service.process.communicate()


def resident(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_workers_end_with_their_master(folder):
    service = Running(folder / "tagger", "--workers", 2)
    workers = service.workers
    service.process.kill()
    service.process.communicate()
    service.until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


@pytest.mark.parametrize("size", [0, 100])
def test_weights_that_are_truncated_in_place_leave_the_old_model(running, tagger, tmp_path, size):
    tagger.save(tmp_path / "m")
    service = running(tmp_path / "m", "--workers", 2)
    workers, (file,) = service.workers, (tmp_path / "m").glob("weights-*")
    os.truncate(file, size)
    want = {"model": "m", "answers": [{"labels": labels} for labels in tagger.predict(TEXT)]}
    for _ in range(2):  # before and after they are asked to load it again
        for _ in range(4):
            assert service.post("/v1/tag", {"sentences": TEXT})[::2] == (200, want)
        service.process.send_signal(signal.SIGHUP)
        service.until(lambda: service.metric('reloads_total{result="failed"}') >= 2)
    assert service.workers == workers
    assert service.metric("restarts_total") == 0
    assert "was not loaded again" in service.stop()


def test_slow_requests_neither_block_health_checks_nor_the_end(running, folder):
    """Six requests with a megabyte of raw text each, for two workers."""
    service = running(folder / "tagger", "--workers", 2, "--grace", 3)
    body = json.dumps({"text": "-." * 500_000}).encode()
    head = b"POST /v1/tag HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    slow = [service.connect(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body) for _ in range(6)]
    for _ in range(5):
        began = time.monotonic()
        assert json.loads(service.get("healthz"))["status"] == "ok"
        assert service.post("/v1/tag", {"sentences": TEXT[:2]})[0] == 200
        assert time.monotonic() - began < 2
    began = time.monotonic()
    service.stop()
    assert time.monotonic() - began < 8
    for one in slow:
        one.close()


def test_a_damaged_model_is_one_line(folder, tmp_path, tagger):
    tagger.save(tmp_path / "m")
    (file,) = (tmp_path / "m").glob("weights-*")
    file.write_bytes(file.read_bytes() + b"x")
    done = run_process("serve", tmp_path / "m", "--workers", 2, "--port", 0, "--quiet")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "checksum" in done.stderr


def test_an_endless_stream_that_is_not_read_is_stopped_with_flat_memory(folder):
    service = Running(folder / "tagger", "--request-seconds", 2)
    (worker,) = service.workers
    head = b"POST /v1/tag HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
    data = "".join(json.dumps(sentence) + "\n" for sentence in TEXT).encode()
    chunk = f"{len(data):x}\r\n".encode() + data + b"\r\n"
    before, sent, began = resident(worker), 0, time.monotonic()
    with service.connect(head + b"Transfer-Encoding: chunked\r\n\r\n") as stream:
        try:
            while time.monotonic() < began + 30:
                stream.sendall(chunk)
                sent += len(chunk)
        except ConnectionError:  # closed by the server
            pass
    assert time.monotonic() - began < 20
    assert resident(worker) < before + 60, sent
    assert service.post("/v1/tag", {"sentences": TEXT[:1]})[0] == 200
    service.stop()


def test_a_long_stream_needs_little_memory(folder, tagger):
    """Two megabytes of lines, answered while they are sent."""
    service = Running(folder / "tagger")
    (worker,) = service.workers
    data = "".join(json.dumps(sentence) + "\n" for sentence in TEXT).encode() * 20
    service.post("/v1/tag", data[: len(data) // 20], "application/x-ndjson")
    before = resident(worker)
    status, _, text = service.post("/v1/tag", data, "application/x-ndjson")
    assert status == 200
    assert text.count("\n") == 20 * len(TEXT)
    assert resident(worker) < before + 30
    service.stop()


def test_the_benchmark_runs():
    script = [sys.executable, str(ROOT / "benchmarks" / "serve.py"), "--quick", "--seconds", "1", "--peers", ""]
    done = subprocess.run([*script, "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == ["in-process predict", "trelliswork serve"]
    assert rows[1]["errors"] == 0
    assert rows[1]["requests"] > 64
