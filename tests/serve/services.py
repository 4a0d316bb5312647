"""A service in its own process, and a plain client."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

SENTENCES = 20  # per request


class Running:
    """``trelliswork serve`` as a process, on a free port of this machine."""

    def __init__(self, *words: object, key: str | None = None) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "TRELLISWORK_API_KEY"}
        environment |= {} if key is None else {"TRELLISWORK_API_KEY": key}
        command = [sys.executable, "-m", "trelliswork", "--threads", "1", "serve", *map(str, words), "--port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.stderr.read()
        self.port = int(self.address.rsplit(":", 1)[1].strip("/"))
        self.key = key

    def post(self, path, body, kind="application/json", headers=None):
        """Return status, headers and answer of a request on its own connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        own = {"authorization": f"Bearer {self.key}"} if self.key else {}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, raw, {"content-type": kind} | own | (headers or {}))
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        answer = json.loads(text) if response.headers.get_content_type() == "application/json" else text
        return response.status, response.headers, answer

    def get(self, path):
        own = {"authorization": f"Bearer {self.key}"} if self.key else {}
        with urllib.request.urlopen(urllib.request.Request(self.address + path, headers=own), timeout=20) as answer:
            return answer.read().decode()

    def metric(self, name: str) -> float:
        lines = [line for line in self.get("metrics").splitlines() if line.startswith(f"trelliswork_{name}")]
        return sum(float(line.split()[-1]) for line in lines)

    def until(self, condition, seconds=20.0) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "too late"
            time.sleep(0.05)

    @property
    def workers(self) -> list[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def connect(self, *parts: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        for part in parts:
            connection.sendall(part)
        return connection

    def stop(self) -> str:
        """End the service; return what it wrote to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.communicate(timeout=40)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def received(connection: socket.socket, until: bytes | None = None) -> bytes:
    """Return what a connection sends until some bytes come, or until it is closed."""
    parts = b""
    while until is None or until not in parts:
        more = connection.recv(65536)
        if not more:
            break
        parts += more
    return parts
