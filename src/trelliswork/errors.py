"""The errors users see. Each message says what was wrong, what was wanted, what came, and the way out."""


class TrellisworkError(Exception):
    """Base of all errors raised on purpose by this package."""


class ShapeError(TrellisworkError, ValueError):
    """An array has the wrong number of axes or sizes that do not fit each other."""


class ValueRangeError(TrellisworkError, ValueError):
    """An argument has the right shape but a value that cannot be used, such as nan."""


class ImpossibleError(TrellisworkError, ValueError):
    """A distribution gives every structure probability zero, so there is nothing to decode or draw."""
