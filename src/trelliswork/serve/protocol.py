"""HTTP with time limits, so that clients which send half of a request, or do not read the answer, hold nothing."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_SECONDS = 0.5  # that a new connection has to send something when the server ends
PENDING = "trelliswork.pending"  # in the scope of a stream: number of groups of lines that are not answered


class JoinedWrites:
    """A transport that sends the parts of an answer which are written at the same time by one call of the system.

    Each call gives up the interpreter lock, which a thread that computes may then keep for long.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data at the end of this turn of the event loop."""
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        """Send what was written."""
        data = b"".join(self._parts)
        self._parts.clear()
        if data:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection when all is sent."""
        self.flush()
        self._transport.close()


class TimedProtocol(H11Protocol):
    """A connection that is closed if a request is not complete, or a part of the answer not read, in time."""

    request_seconds = 10.0  # from the first byte of a request to its last; of a stream, between two parts
    _timer: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _begun = False  # whether bytes of a request have come that is not complete
    _served = False
    _ending = False

    def connection_made(self, transport: Any) -> None:
        """Expect the first request."""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        transport.set_write_buffer_limits(0)  # told at once if the client does not read
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Handle a part of a request."""
        self._begun = True
        super().data_received(data)
        if self._is_stream():
            self._stop()
        self._expect()
        if self._ending and self.cycle is not None:
            self.cycle.keep_alive = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start a clock when the client does not read."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self.request_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the clock when it has read."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self.flow is not None:
            super().resume_writing()

    def shutdown(self) -> None:
        """Close the connection, after the request that it is about to send or to have answered, if any."""
        self._ending = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif not self._begun and not self._served:
            self.loop.call_later(FIRST_SECONDS, self._close_unless_begun)
        elif not self._begun:
            super().shutdown()

    def _close_unless_begun(self) -> None:
        if not self._begun and not self.transport.is_closing():
            self.transport.close()

    def _is_stream(self) -> bool:
        """Return whether the body of the request is NDJSON, which may take as long as it goes on."""
        if self.conn.their_state is not h11.SEND_BODY or self.scope is None:
            return False
        return any(name == b"content-type" and b"ndjson" in value for name, value in self.headers)

    def _expect(self) -> None:
        """Start the clock if a request is incomplete and it does not run; stop it if the request is complete."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._begun, self._served = False, True
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.request_seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._timer = None
        if self._is_stream() and (self.flow.read_paused or self.scope.get(PENDING)):  # it waits for us
            self._expect()
        else:
            self.transport.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
