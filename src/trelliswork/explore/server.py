"""The server of the page, with an immediate stop on Ctrl-C."""

import threading
from collections.abc import Callable
from typing import Any

from trelliswork.data.tokenize import Tokenizer
from trelliswork.explore.abilities import warm_up
from trelliswork.explore.app import create_app
from trelliswork.serve.sockets import LOOPBACK, address, check_host, is_loopback, open_socket

MAX_CONNECTIONS = 256
PATIENCE = 2.0  # seconds before a line says what is being waited for


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

    from trelliswork.serve.protocol import TimedProtocol

    check_host(host, allow_remote)
    names = LOOPBACK if is_loopback(host) else ("*",) if host in ("0.0.0.0", "::") else (*LOOPBACK, host)
    app = create_app(model, name=name, hosts=names, split=split)
    listening = open_socket(host, port)
    silent: Any = {"log_level": "critical", "access_log": False}  # the application logs failed requests itself
    limits: Any = {"limit_concurrency": MAX_CONNECTIONS, "timeout_graceful_shutdown": 1}
    config = uvicorn.Config(app, http=TimedProtocol, lifespan="off", server_header=False, **silent, **limits)
    try:
        _prepare(app, waiting)
        ready(address(host, listening))
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # the usual way to stop it
    finally:
        listening.close()
