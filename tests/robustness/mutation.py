"""Mutation of inputs: bytes, lines, numbers, JSON documents and safetensors headers; every step is drawn by one rng."""

import json
import random
import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

INTERESTING = (
    b"\n", b"\n\n", b"\r\n", b"\r", b"\t", b" ", b"\0", b"_", b"-", b"#", b":", b"\\", b"\\:", b"(", b")", b"[", b"]",
    b"{", b"}", b'"', b"%", b",", b".", b"0", b"1", b"-1", b"1.1", b"1-2", b"99999999999999999999",
    b"1e999", b"-1e999", b"nan", b"inf", b"1_0", b"\xff", b"\x80", b"\xc3", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b",
    "\u00a0".encode(), "\u2028".encode(), "\u0663".encode(), "\U0001f600".encode(), b"\x0b", b"\x0c", b"\x1c", b"\x85",
    b"-DOCSTART-", b"<s>", b"</s>", b"<unk>", b"None",
)  # fmt: skip
LARGE = (b"9" * 5000, b"(" * 300, b"[" * 5000, b"x" * 70_000)
PLAIN = (
    None, True, False, 0, -1, 1, 2, 10**9, 2**31, 2**63, 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "x",
    "1", "<s>", "<unk>", "\0", "\ud800", "x" * 5000, [], {}, [[]], [None], {"": None}, [0] * 1000, "F32", "I64", "BOOL",
)  # fmt: skip
MAX_SIZE = 1 << 18
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes] = ()) -> bytes:
    """Return the input after 1 to 8 random changes; ``others`` are inputs to splice, ``words`` those of the format."""
    for _ in range(min(8, 1 + int(rng.expovariate(0.7)))):
        data = _step(rng, data, others, words)[:MAX_SIZE]
    return data


def _step(rng: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    if rng.random() < 0.003:
        return data[:a] + rng.choice(LARGE) + data[a:]
    match rng.randrange(13):
        case 0 if data:
            at = rng.randrange(len(data))
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 1 | 2:
            return data[:a] + rng.choice(words or INTERESTING) + data[a:]
        case 3 | 4:
            return data[:a] + rng.choice(INTERESTING) + data[min(b, a + rng.randrange(8)) :]
        case 5:
            return data[:a] + data[min(b, a + rng.randrange(40)) :]
        case 6:
            return data[:b] + data[a:b] * rng.choice([1, 1, 2, 30]) + data[b:]
        case 7:
            other = rng.choice(others)
            return data[:a] + other[rng.randrange(len(other) + 1) :]
        case 8:
            return data[:a]
        case 9:
            numbers = list(_NUMBER.finditer(data))
            if not numbers:
                return data
            where, new = rng.choice(numbers), str(rng.choice([0, 1, 2, 3, -1, 10, 255, 10**6, 2**31, 2**63, 10**30]))
            return data[: where.start()] + new.encode() + data[where.end() :]
        case 10 | 11:
            lines = data.split(b"\n")
            at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
            line = lines.pop(at) if rng.random() < 0.5 else lines[at]
            lines.insert(to, line)
            return b"\n".join(lines)
        case _:
            return data[:a] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 6))) + data[a:]


def mutated_json(rng: random.Random, text: bytes) -> bytes:
    """Return a JSON document with 1 to 3 values replaced, deleted, repeated or exchanged."""
    document = json.loads(text)
    for _ in range(rng.randrange(1, 4)):
        places = list(_places(document))
        if not places:
            return json.dumps(rng.choice(PLAIN)).encode()
        parent, key = rng.choice(places)
        match rng.randrange(5):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.insert(key, parent[key])
            case 2:
                other, place = rng.choice(places)
                parent[key] = json.loads(json.dumps(other[place])) if _has(other, place) else None
            case _:
                parent[key] = deepcopy(rng.choice(PLAIN))
    if rng.random() < 0.02:
        return b"[" * 100_000
    return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _has(parent: Any, key: Any) -> bool:
    return key in parent if isinstance(parent, dict) else key < len(parent)


def _places(document: Any, most: int = 3000) -> list[tuple[Any, Any]]:
    """Return containers and keys of the values of a document, those near the top first."""
    places: list[tuple[Any, Any]] = []
    level = [document]
    while level and len(places) < most:
        below = []
        for node in level:
            items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
            for key, value in items:
                places.append((node, key))
                below.append(value)
        level = below
    return places


def mutated_arrays(rng: random.Random, data: bytes) -> bytes:
    """Return a safetensors file with changes in its header or its numbers."""
    size = int.from_bytes(data[:8], "little")
    header, numbers = data[8 : 8 + size], data[8 + size :]
    if rng.random() < 0.6:
        header = mutated_json(rng, header)
        return len(header).to_bytes(8, "little") + header + numbers
    changed = bytearray(numbers)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(max(1, len(changed) - 8)) if changed else 0
        changed[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, b"\x7f" * 8, rng.randbytes(8)])[: len(changed) - at]
    return data[: 8 + size] + bytes(changed)
