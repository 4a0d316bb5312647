"""NDJSON: one sentence per line in, one answer per line out. Answers flow while lines arrive, memory is bounded."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trelliswork.serve.abilities import Ability
from trelliswork.serve.app import NDJSON, Served, Service, explained, to_json
from trelliswork.serve.engine import Job
from trelliswork.serve.protocol import PENDING
from trelliswork.serve.requests import BUSY, RequestError, Tokens, read_json

AHEAD = 4  # groups of lines whose answers are not sent yet
GROUP_WORDS = 2_000  # that are answered together
PATIENCE = 0.02  # seconds until the next try if the queue is full
Group = list["dict[str, Any] | Job"]  # lines that failed, and jobs of one sentence or more


class Stream(Response):
    """A response that reads the request while it is sent; Starlette's own listens for nothing but the end of it."""

    def __init__(self, service: Service, served: Served, ability: Ability, request: Request) -> None:
        super().__init__(media_type=NDJSON)
        self._options = ability.read_options(dict(request.query_params), text=True)
        self._service, self._served, self._ability, self._scope = service, served, ability, request.scope
        self._groups: asyncio.Queue[Group | None] = asyncio.Queue(AHEAD)
        self._n_lines = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send lines of answers while lines of sentences are read."""
        headers = [header for header in self.raw_headers if header[0] != b"content-length"]
        self._scope[PENDING] = 0
        self._reading = asyncio.ensure_future(self._read(receive))
        await asyncio.sleep(0)  # a client that asks whether to continue is told so before the answer begins
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        async with aclosing(self._answers()) as answers:
            async for lines in answers:
                await send({"type": "http.response.body", "body": lines, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answers(self) -> AsyncGenerator[bytes, None]:
        try:
            while (group := await self._groups.get()) is not None:
                lines: list[str] = []
                for part in group:
                    lines += await self._lines(part)
                self._scope[PENDING] -= 1
                yield "".join(lines).encode(errors="replace")
        finally:
            self._reading.cancel()

    async def _lines(self, part: "dict[str, Any] | Job") -> list[str]:
        """Return the answers of a job; if it fails as a whole, each sentence is answered alone."""
        if not isinstance(part, Job):
            return [_line(part)]
        try:
            answers = await self._service.wait(part)
        except Exception as error:
            if len(part.items) == 1 or (isinstance(error, RequestError) and error.status >= 500):
                return [_line({"error": explained(error).to_dict()})] * len(part.items)
            lines: list[str] = []
            for sentence in part.items:
                lines += await self._lines(await self._submit([sentence]))
            return lines
        self._service.count(self._served, self._ability, len(part.items), part.words)
        return [_line(answer) for answer in answers]

    async def _read(self, receive: Receive) -> None:
        """Group the lines that have come, up to a number of words; do not wait for more."""
        rest, more = b"", True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                more = message.get("more_body", False)
                *lines, rest = (rest + message.get("body", b"")).split(b"\n")
                if not more and rest.strip():
                    lines.append(rest)
                await self._groups_of(lines)
                if len(rest) > self._service.settings.max_body:
                    most = f"at most {self._service.settings.max_body:,} bytes"
                    error = RequestError(f"line {self._n_lines + 1}", most, "more").to_dict()
                    await self._put([{"error": error}])
                    break
        finally:
            await self._groups.put(None)

    async def _groups_of(self, lines: list[bytes]) -> None:
        group: Group = []
        sentences: list[Tokens] = []
        words = 0
        for line in lines:
            self._n_lines += 1
            try:
                sentences.append(sentence := self._sentence(line, f"line {self._n_lines}"))
                words += len(sentence)
            except RequestError as error:
                group += [*await self._submitted(sentences), {"error": error.to_dict()}]
                words += 1
            if words >= GROUP_WORDS:
                await self._put(group + await self._submitted(sentences))
                group, words = [], 0
        if group := group + await self._submitted(sentences):
            await self._put(group)

    def _sentence(self, line: bytes, where: str) -> Tokens:
        sentence = self._served.form.sentence(read_json(line, where), where, self._ability.blanks)
        most = min(self._service.settings.max_words, self._ability.max_words or sys.maxsize)
        if len(sentence) > most:
            raise RequestError(where, f"at most {most:,} words", f"{len(sentence):,} words")
        return sentence

    async def _submitted(self, sentences: list[Tokens]) -> Group:
        """Return the job of sentences that were collected, if any, and empty the list."""
        taken = list(sentences)
        sentences.clear()
        return [await self._submit(taken)] if taken else []

    async def _put(self, group: Group) -> None:
        self._scope[PENDING] += 1
        await self._groups.put(group)

    async def _submit(self, sentences: list[Tokens]) -> Job:
        """Have sentences answered; if the queue is full, wait: a stream is slowed down, not refused."""
        words = sum(map(len, sentences))
        while True:
            try:
                return self._service.submit(self._served, self._ability, self._options, sentences, words)
            except RequestError as error:
                if error.status != BUSY:
                    raise
                await asyncio.sleep(PATIENCE)


def _line(answer: dict[str, Any]) -> str:
    return to_json(answer) + "\n"
