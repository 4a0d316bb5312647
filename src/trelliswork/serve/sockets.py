"""Addresses and listening sockets: this machine only, unless others are allowed."""

import errno
import ipaddress
import socket

from trelliswork.errors import DataError, ValueRangeError

BACKLOG = 1024  # connections that wait to be accepted
Socket = socket.socket
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")  # names of this machine


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


def open_socket(host: str, port: int) -> Socket:
    """Return a listening socket; port 0 chooses a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)  # from now on connections wait instead of being refused
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise DataError(
                f"port {port} of {host} is in use: choose another with --port, or 0 for a free one."
            ) from None
        raise DataError(f"cannot listen on {host}: {error.strerror}.") from None
    return listening


def address(host: str, listening: Socket) -> str:
    """Return the address of a listening socket for a browser."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"
