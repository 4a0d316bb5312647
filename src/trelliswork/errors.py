"""Errors and warnings. A message states what was wrong, what was expected, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

# Modules that the core does without, and the extra that installs each.
EXTRAS = {
    "torch": "torch",
    "starlette": "serve",
    "uvicorn": "serve",
    "spacy": "spacy",
    "transformers": "hf",
    "datasets": "hf",
    "pandas": "pandas",
}


class TrellisworkError(Exception):
    """Base class of the errors of this package."""

    sentence: int | None = None  # the number, from 0, of the sentence that it is about
    token: int = 0  # the number of the token there

    def at(self, sentence: int, token: int = 0) -> Self:
        """Set the place, so that who knows the file can name the line; return the error itself."""
        self.sentence, self.token = sentence, token
        return self


class ShapeError(TrellisworkError, ValueError):
    """An array has the wrong number of axes, or sizes that do not agree."""


class ValueRangeError(TrellisworkError, ValueError):
    """An argument has an invalid value, such as nan."""


class ImpossibleError(TrellisworkError, ValueError):
    """A distribution gives every structure probability zero, so there is nothing to decode or sample."""


class DataError(TrellisworkError, ValueError):
    """A file or a sentence does not follow its format; the message names file and line."""


class LimitError(TrellisworkError, ValueError):
    """Work is predicted to take more time or memory than a limit allows; the message names the limit."""


class TrellisworkWarning(UserWarning):
    """Base class of the warnings of this package."""


class ApproximationWarning(TrellisworkWarning):
    """An approximation lost more than expected; the message has the figures."""


class ConvergenceWarning(TrellisworkWarning):
    """Training or inference stopped before convergence; the message has the figures."""


class DataWarning(TrellisworkWarning):
    """Data were read in a way that may differ from what was meant; the message says how, and what to do."""


class ProcessError(TrellisworkError, RuntimeError):
    """Processes that share work have lost one of them, or cannot reach each other."""

    silent = False  # whether another process has told the user already


class NotFittedError(TrellisworkError, ValueError, AttributeError):
    """A model was used before it was fitted."""


class MissingExtraError(TrellisworkError, ImportError):
    """Something needs an optional package; the message has the command that installs it."""


@contextmanager
def extras_for(purpose: str) -> Iterator[None]:
    """Turn the failed import of an optional module into an error that names the extra; also a decorator.

    Examples
    --------
    >>> with extras_for("this example"):
    ...     import math
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        command = f"pip install 'trelliswork[{EXTRAS[module]}]'"
        raise MissingExtraError(f"{purpose} needs {module}, which is not installed. Run: {command}") from None
