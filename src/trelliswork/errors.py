"""The errors users see. Each message says what was wrong, what was wanted, what came, and the way out."""


class TrellisworkError(Exception):
    """Base of all errors raised on purpose by this package."""


class ShapeError(TrellisworkError, ValueError):
    """An array has the wrong number of axes or sizes that do not fit each other."""


class ValueRangeError(TrellisworkError, ValueError):
    """An argument has the right shape but a value that cannot be used, such as nan."""


class ImpossibleError(TrellisworkError, ValueError):
    """A distribution gives every structure probability zero, so there is nothing to decode or draw."""


class DataError(TrellisworkError, ValueError):
    """A file or a sentence is not as its format asks; the message names the file and the line."""


class ApproximationWarning(UserWarning):
    """An approximation lost more than it should; the message tells the figures."""


class ConvergenceWarning(UserWarning):
    """Training or inference stopped before it was done; the message says how far it came."""


class NotFittedError(TrellisworkError, ValueError, AttributeError):
    """A model is asked for something before it has learned anything."""
