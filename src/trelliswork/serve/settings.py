"""Settings of a service, which the master hands to its workers as JSON."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trelliswork.errors import DataError, ValueRangeError
from trelliswork.serve.abilities import Named, abilities_of

KEY_VARIABLE = "TRELLISWORK_API_KEY"
RESERVED = ("tag", "parse", "score", "fill", "next", "sample", "neighbors", "posterior", "models")
NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Settings:
    """Models and limits; all limits but ``workers`` are per worker."""

    models: dict[str, str] = field(default_factory=dict)  # directories by name
    workers: int = 1
    threads: int = 1  # of each worker
    max_body: int = 1 << 20  # bytes of a request, or of a line of a stream
    max_words: int = 20_000  # of a request
    max_queue: int = 256  # requests that wait
    max_connections: int = 1024
    timeout: float = 30.0  # seconds for an answer
    request_seconds: float = 10.0  # seconds for a client to send a request, or to read a part of the answer
    grace: float = 30.0  # seconds to finish requests before the end
    batch_words: int = 16_000  # that are answered together
    tokenizer: str = "rules"  # of raw text
    page: bool = False  # whether models have a page in a browser
    raw: bool = False  # whether what is typed there is raw text
    copies: dict[str, str] = field(default_factory=dict)  # files in memory with the weights of models, by name
    hosts: tuple[str, ...] = ("*",)  # names that requests may use

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Settings":
        """Return the settings in a line of JSON."""
        plain = json.loads(line)
        return cls(**plain | {"hosts": tuple(plain["hosts"])})

    @property
    def abilities(self) -> Named:
        """Abilities by the name of the model; only descriptions of models are read."""
        from trelliswork.models import estimator_class

        found: Named = {}
        for name, path in self.models.items():
            cls = estimator_class(path)
            found[name] = abilities_of(cls, self.page)
            if not found[name]:
                raise DataError(f"{path}: a model of kind {cls.family!r} cannot be served.")
        return found


def named_models(given: Sequence[str]) -> dict[str, str]:
    """Return directories of models by name: ``NAME=DIRECTORY``, or the directory, whose last part is the name."""
    models: dict[str, str] = {}
    for text in given:
        name, _, path = text.rpartition("=") if not Path(text).exists() else ("", "", text)
        name = name or Path(path).resolve().name
        if NAME.fullmatch(name) is None or name in RESERVED:
            raise ValueRangeError(
                f"{name!r} cannot be the name of a model: use letters, digits, '.', '-' and '_', at most 64, and none "
                f"of {', '.join(RESERVED)}. Give another one with NAME=DIRECTORY."
            )
        if name in models:
            raise ValueRangeError(f"two models are called {name!r}: give one another name with NAME=DIRECTORY.")
        models[name] = str(Path(path).absolute())
    return models


def page_name(directory: str) -> str:
    """Return the name of the only model of a page: that of its directory, if it can be one."""
    name = Path(directory).resolve().name
    return name if NAME.fullmatch(name) and name not in RESERVED else "model"


def api_key() -> bytes | None:
    """Return the API key of the environment; ``None`` if requests need none."""
    if KEY_VARIABLE not in os.environ:
        return None
    key = os.environ[KEY_VARIABLE].strip()
    if len(key) < 16 or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueRangeError(
            f"{KEY_VARIABLE} must be at least 16 ASCII characters without spaces, got {len(key)} characters. "
            "Choose a random one: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return key.encode()
