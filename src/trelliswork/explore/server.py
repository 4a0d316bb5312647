"""Where the page is served: a socket, the browser, and a Ctrl-C that ends at once."""

import errno
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

from trelliswork.errors import DataError, ValueRangeError
from trelliswork.explore.app import LOOPBACK, create_app


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str, allow_remote: bool) -> None:
    """Refuse an address that others can reach, unless that is wanted."""
    if not allow_remote and not is_loopback(host):
        raise ValueRangeError(
            f"host must be this machine (127.0.0.1, localhost or ::1), got {host!r}: others could use the model too. "
            "Say --allow-remote if that is wanted, or reach this machine by ssh -L."
        )


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(128)  # from now on a browser waits instead of being refused
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise DataError(f"port {port} of {host} is taken: choose another with --port, or 0 for any.") from None
        raise DataError(f"{host} cannot be listened at: {error.strerror}.") from None
    return found


def serve(
    model: Any,
    *,
    name: str = "",
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_remote: bool = False,
    ready: Callable[[str], object] = print,
) -> None:
    """Serve the page of a model until Ctrl-C.

    Parameters
    ----------
    model : Estimator
    name : str
        Shown on the page.
    host, port : str, int
        Port 0 takes a free one.
    allow_remote : bool
        Other addresses than those of this machine; everyone who reaches them can use the page.
    ready : callable
        Called with the address when it can be opened.
    """
    import uvicorn

    check_host(host, allow_remote)
    names = LOOPBACK if is_loopback(host) else ("*",) if host in ("0.0.0.0", "::") else (*LOOPBACK, host)
    app = create_app(model, name=name, hosts=names)
    listening = open_socket(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="critical",  # a request that fails tells it in the application's own log
        access_log=False,
        server_header=False,
        limit_concurrency=64,
        timeout_graceful_shutdown=1,
    )
    try:
        ready(address)
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        listening.close()
