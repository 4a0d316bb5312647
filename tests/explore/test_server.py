"""The server: where it listens, and that Ctrl-C stops it at once."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from queue import Queue
from threading import Thread

import pytest

from trelliswork.errors import DataError, ValueRangeError
from trelliswork.serve.sockets import check_host, is_loopback, open_socket

pytestmark = pytest.mark.programs


def test_only_loopback_addresses_by_default():
    for host in ("127.0.0.1", "127.0.0.7", "::1", "localhost"):
        assert is_loopback(host)
        check_host(host, allow_remote=False)
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org", ""):
        with pytest.raises(ValueRangeError, match="--allow-remote"):
            check_host(host, allow_remote=False)
        check_host(host, allow_remote=True)


def test_a_port_in_use_and_an_address_of_another_machine():
    with open_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(DataError, match=f"port {port} .*--port"):
            open_socket("127.0.0.1", port)
    with pytest.raises(DataError, match="cannot listen on"):
        open_socket("203.0.113.1", 0)


@pytest.fixture
def running(model, tmp_path):
    model("kneser-ney").save(tmp_path / "words")
    command = [sys.executable, "-m", "trelliswork", "explore", str(tmp_path / "words"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def test_the_command_serves_until_ctrl_c(running):
    address = running.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(address + "api/model") as answer:
        assert json.load(answer)["name"] == "words"
    idle = socket.create_connection(
        ("127.0.0.1", int(address.rsplit(":", 1)[1].strip("/")))
    )  # an open connection of a browser
    started = time.monotonic()
    running.send_signal(signal.SIGINT)
    assert running.wait(10) == 0
    assert time.monotonic() - started < 5
    idle.close()
    assert running.stderr.read() == "Press Ctrl-C to stop.\n"


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--port", "70000"], ["nothing-here"]])
def test_wrong_commands_end_with_a_message(options):
    from typer.testing import CliRunner

    from trelliswork.cli import app

    arguments = options if options == ["nothing-here"] else ["model", *options]
    result = CliRunner().invoke(app, ["explore", *arguments])
    assert result.exit_code in (1, 2)
    assert result.output
    assert "Traceback" not in result.output


def test_half_sent_requests_do_not_block_the_server(model, monkeypatch):
    from trelliswork.explore import server
    from trelliswork.serve import protocol

    monkeypatch.setattr(protocol, "REQUEST_SECONDS", 0.5)
    addresses: Queue = Queue()
    options = {"port": 0, "ready": addresses.put}
    Thread(target=server.serve, args=(model("kneser-ney"),), kwargs=options, daemon=True).start()
    address = addresses.get(timeout=30)
    port = int(address.rsplit(":", 1)[1].strip("/"))
    body = (
        b"POST /api/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    )
    half = [socket.create_connection(("127.0.0.1", port)) for _ in range(server.MAX_CONNECTIONS + 10)]
    for number, one in enumerate(half):
        one.sendall(body if number % 2 else b"GET / HTTP/1.1\r\nHost: 127")
    time.sleep(0.7)
    with urllib.request.urlopen(address + "api/model", timeout=5) as answer:
        assert json.load(answer)["kind"] == "kneser-ney"
    for one in half:
        one.settimeout(5)
        while one.recv(4096):  # until the server closes the connection
            pass
        one.close()


@pytest.mark.parametrize("name", ["crf", "factorial-crf", "hmm-2", "parser", "pcfg", "kneser-ney", "mrf-lm", "numbers"])
def test_models_are_prepared_before_the_first_request(model, name):
    from trelliswork.explore.abilities import explorer_of, warm_up

    explorer = explorer_of(model(name))
    answered = []
    for ability, answer in explorer.abilities.items():
        explorer.abilities[ability] = lambda body, a=answer, n=ability: answered.append(n) or a(body)
    warm_up(explorer)
    assert answered or not explorer.reader.example()
