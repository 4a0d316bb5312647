"""Errors and warnings. A message states what was wrong, what was expected, and what to do."""


class TrellisworkError(Exception):
    """Base class of the errors of this package."""


class ShapeError(TrellisworkError, ValueError):
    """An array has the wrong number of axes, or sizes that do not agree."""


class ValueRangeError(TrellisworkError, ValueError):
    """An argument has an invalid value, such as nan."""


class ImpossibleError(TrellisworkError, ValueError):
    """A distribution gives every structure probability zero, so there is nothing to decode or sample."""


class DataError(TrellisworkError, ValueError):
    """A file or a sentence does not follow its format; the message names file and line."""


class ApproximationWarning(UserWarning):
    """An approximation lost more than expected; the message has the figures."""


class ConvergenceWarning(UserWarning):
    """Training or inference stopped before convergence; the message has the figures."""


class NotFittedError(TrellisworkError, ValueError, AttributeError):
    """A model was used before it was fitted."""
