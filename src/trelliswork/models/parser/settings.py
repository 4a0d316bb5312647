"""The settings of a parser, checked before anything is learned."""

import math
from typing import Any

import numpy as np

from trelliswork.compute.checks import check_count
from trelliswork.errors import ValueRangeError
from trelliswork.models.parser.data import is_whole
from trelliswork.models.parser.tags import check_tagger

COUNTS = ("min_count", "epochs", "second_epochs", "label_epochs", "batch_size", "max_iter", "tree_every", "patience")
RATES = ("rate", "second_rate", "label_rate")
SHARES = ("threshold", "damping")


def check_settings(settings: dict[str, Any]) -> None:
    """Refuse what no training can use; all settings are checked, those of the second order for order 1 too."""
    order, bits, seed = (settings[name] for name in ("order", "hash_bits", "seed"))
    if not is_whole(order) or order not in (1, 2):
        raise ValueRangeError(f"order must be 1 or 2, got {order!r}.")
    for name in ("projective", "single_root"):
        if not isinstance(settings[name], bool):
            raise ValueRangeError(f"{name} must be True or False, got {settings[name]!r}.")
    check_tagger(settings["tagger"])
    if not is_whole(bits) or not 8 <= bits <= 30:
        raise ValueRangeError(f"hash_bits must be a whole number from 8 to 30, got {bits!r}.")
    for name in COUNTS:
        check_count(name, settings[name])
    for name in RATES:
        value = settings[name]
        if not _is_number(value) or not 0 < value < math.inf:
            raise ValueRangeError(f"{name} must be more than 0 and finite, got {value!r}.")
    for name in SHARES:
        value = settings[name]
        if not _is_number(value) or not 0 <= value < 1:
            raise ValueRangeError(f"{name} must lie between 0 and 1, and below 1, got {value!r}.")
    if not _is_number(settings["tolerance"]) or not settings["tolerance"] >= 0:
        raise ValueRangeError(f"tolerance must not be negative, got {settings['tolerance']!r}.")
    if not is_whole(seed) or seed < 0:
        raise ValueRangeError(f"seed must be a whole number from 0 on, got {seed!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
