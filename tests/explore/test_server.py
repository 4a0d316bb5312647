"""The server: where it listens, and that Ctrl-C stops it at once."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from trelliswork.errors import DataError, ValueRangeError
from trelliswork.explore.server import check_host, is_loopback, open_socket


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
