"""The server of the page: address, socket, and an immediate stop on Ctrl-C."""

import errno
import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import Any

from trelliswork.data.tokenize import Tokenizer
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.explore.abilities import warm_up
from trelliswork.explore.app import LOOPBACK, create_app

MAX_CONNECTIONS = 256
PATIENCE = 2.0  # seconds before a line says what is being waited for


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str, allow_remote: bool) -> None:
    """Raise an error for an address that other machines can reach, unless that is allowed."""
    if not allow_remote and not is_loopback(host):
        raise ValueRangeError(
            f"host must be this machine (127.0.0.1, localhost or ::1), got {host!r}: others could use the model too. "
            "Add --allow-remote to allow that, or connect to this machine with ssh -L."
        )


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # from now on connections wait instead of being refused
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise DataError(
                f"port {port} of {host} is in use: choose another with --port, or 0 for a free one."
            ) from None
        raise DataError(f"cannot listen on {host}: {error.strerror}.") from None
    return listening


def _prepare(app: Any, waiting: Callable[[], object] | None) -> None:
    """Have the model answer once; call ``waiting`` if that takes long."""
    timer = threading.Timer(PATIENCE, waiting or (lambda: None))
    timer.daemon = True
    timer.start()
    try:
        warm_up(app.state.explorer)
    finally:
        timer.cancel()


def serve(
    model: Any,
    *,
    name: str = "",
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_remote: bool = False,
    ready: Callable[[str], object] = print,
    waiting: Callable[[], object] | None = None,
    split: Tokenizer | None = None,
) -> None:
    """Serve the page of a model until Ctrl-C.

    Parameters
    ----------
    model : Estimator
    name : str
        Shown on the page.
    host, port : str, int
        Port 0 chooses a free port.
    allow_remote : bool
        Whether the address may be one that other machines can reach; everyone there can use the page.
    ready : callable
        Called with the address when the page can be opened.
    waiting : callable, optional
        Called if the first answer of the model, which is prepared before, takes long.
    split : callable, optional
        A tokenizer of raw text. Default: words are between white space.
    """
    import uvicorn

    from trelliswork.explore.protocol import TimedProtocol

    check_host(host, allow_remote)
    names = LOOPBACK if is_loopback(host) else ("*",) if host in ("0.0.0.0", "::") else (*LOOPBACK, host)
    app = create_app(model, name=name, hosts=names, split=split)
    listening = open_socket(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    silent: Any = {"log_level": "critical", "access_log": False}  # the application logs failed requests itself
    limits: Any = {"limit_concurrency": MAX_CONNECTIONS, "timeout_graceful_shutdown": 1}
    config = uvicorn.Config(app, http=TimedProtocol, lifespan="off", server_header=False, **silent, **limits)
    try:
        _prepare(app, waiting)
        ready(address)
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # the usual way to stop it
    finally:
        listening.close()
