r"""Feature hashing: a fixed hash maps attributes to :math:`2^b` ids, so that no strings are stored.

Unseen strings have ids too, the state is a list of templates, and data can come in parts. The price: attributes that
collide share their weights, and ids have no names. Weinberger et al. (2009), but without their random signs: values of
attributes that collide in a token are added.

The hash does not depend on the machine, the process or the order of the data. :math:`h_p(s)` is BLAKE2b of the UTF-8
bytes of s with a digest of 8 bytes, read as a little-endian number, and the text p as its ``person`` parameter (which
separates the kinds of strings). An id is the upper b bits of a 64-bit hash:

.. math:: \mathrm{id}(\text{ready attribute } s) = \lfloor h_{\mathrm{string}}(s) / 2^{64 - b} \rfloor          \tag{1}

.. math:: k_0 = h_{\mathrm{template}}(\text{template}), \quad k_m = \mathrm{mix}(k_{m-1} \oplus v_m), \quad
          \mathrm{id} = \lfloor k_M / 2^{64 - b} \rfloor                                                    \tag{2}

with :math:`v_m` the :math:`h_{\mathrm{string}}` of the string at macro m of M, or :math:`h_{\mathrm{outside}}` of
``_B-1``, ``_B+1``, ... beyond the sentence; mix is the finalizer of SplitMix64. A template is hashed as the JSON of
``[pieces, macros, skip_outside, where]``.
"""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import shorten
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import check_columns, compress
from trelliswork.features.kernels.columns import hash_template
from trelliswork.features.ready import Names, Sentences
from trelliswork.features.templates import Template, reach

MOST_BITS = 30  # ids are int32


def check_hash_bits(hash_bits: object, min_count: int) -> None:
    """Raise ValueRangeError if the number of bits is not valid, or combined with ``min_count``."""
    if not isinstance(hash_bits, int) or isinstance(hash_bits, bool) or not 1 <= hash_bits <= MOST_BITS:
        raise ValueRangeError(
            f"hash_bits must be an integer from 1 to {MOST_BITS} (2**hash_bits ids), or None for no hashing, "
            f"got {hash_bits!r}."
        )
    if min_count > 1:
        raise ValueRangeError(
            f"min_count must be 1 with hash_bits, got {min_count}: hashed attributes are not stored and cannot be "
            "counted. Leave out one of the two."
        )


def hash_string(string: str, person: bytes = b"string") -> int:
    """Return h of the module docstring, 0 to 2**64 - 1; ``person`` is b"string", b"outside" or b"template"."""
    if not isinstance(string, str):
        raise DataError(f"with hash_bits an attribute must be a string, got {shorten(string)}.")
    text = string.encode("utf-8", "surrogatepass")  # strings of undecodable bytes contain lone surrogates
    return int.from_bytes(blake2b(text, digest_size=8, person=person).digest(), "little")


class _Hashed:
    """Attributes with ids of ``hash_bits`` bits."""

    def __init__(self, hash_bits: int) -> None:
        self.hash_bits = hash_bits
        self.n_attributes = 1 << hash_bits

    def names(self) -> list[str]:
        """Return ``#0``, ``#1``, ...: strings are not stored."""
        return [f"#{k}" for k in range(self.n_attributes)]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return nothing: there is nothing to learn."""
        return {}, {}

    def restore(self, plain: object, arrays: object) -> None:
        """Do nothing."""


class HashedTemplateExtractor(_Hashed):
    """Hashed attributes of columns by templates, eq. 2; the counterpart of ``TemplateExtractor``.

    A template that is listed twice makes the same attribute twice. Time: one BLAKE2b per distinct string of a column,
    and a mix of 64 bits per macro and token.
    """

    def __init__(self, templates: Sequence[Template], hash_bits: int) -> None:
        super().__init__(hash_bits)
        self.templates = list(templates)
        texts = [json.dumps([t.pieces, t.macros, t.skip_outside, t.where]) for t in self.templates]
        self._keys = np.array([hash_string(text, b"template") for text in texts], np.uint64)
        beyond = range(1, reach(self.templates) + 1)
        self._before, self._after = (
            np.array([hash_string(f"_B{sign}{k}", b"outside") for k in beyond], np.uint64) for sign in "-+"
        )

    def transform(self, columns: Sequence[Sequence[str]], offsets: NDArray[np.int64]) -> Attributes:
        """Return the attributes of a corpus."""
        check_columns(self.templates, len(columns))
        offsets = np.asarray(offsets, np.int64)
        used = max((t.n_columns for t in self.templates), default=0)
        hashes = np.empty((used, len(columns[0])), np.uint64)
        for c in range(used):
            hashes[c] = np.fromiter(map(_Hashes().__getitem__, columns[c]), np.uint64, len(columns[c]))
        table = np.empty((len(self.templates), len(columns[0])), np.int32)
        shift = np.uint64(64 - self.hash_bits)
        for template, key, out in zip(self.templates, self._keys, table, strict=True):
            rows, which = np.array(template.macros, np.int64).reshape(-1, 2).T.copy()
            beyond = (self._before, self._after, template.skip_outside)
            hash_template(hashes, offsets, key, rows, which, *beyond, shift, out)
            left_out = template.leaves_out(offsets)
            if left_out is not None:
                out[left_out] = -1
        return compress(table, offsets, self.n_attributes)

    fit = transform  # there is nothing to learn


class HashedReadyExtractor(_Hashed):
    """Hashed attributes that the user computed, eq. 1, with values; the counterpart of ``ReadyExtractor``."""

    def transform(self, X: Sentences) -> Attributes:
        """Return the attributes of sentences."""
        names = Names()
        rows = names.read(X, learn=True)
        ids = np.array([hash_string(name) >> (64 - self.hash_bits) for name in names.listed()], np.int32)
        return rows.attributes(ids[rows.ids], self.n_attributes)

    fit = transform  # there is nothing to learn


class _Hashes(dict[str, int]):
    """Hashes of strings, each computed once."""

    def __missing__(self, string: str) -> int:
        self[string] = value = hash_string(string)
        return value
