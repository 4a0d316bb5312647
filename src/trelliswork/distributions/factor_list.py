"""Factors as passed by users, grouped into tensors by shape."""

import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import as_array
from trelliswork.distributions.tensors import as_tensor, host
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph import Tables
from trelliswork.inference.graph.potentials import Integers


@dataclass(frozen=True)
class Group(Tables):
    """Table factors over variables with the same numbers of states, and the tensor that their tables came from."""

    tensor: Tensor  # (1 or B, U, s1, .., sk)
    members: Integers | None = None  # (F,) positions in the user's list; None for factors passed as arrays

    @classmethod
    def of(cls, variables: Any, which: Any, tensor: Tensor, members: Any = None) -> "Group":
        """Return the group of factors whose tables are in a tensor."""
        scopes, numbers = np.array(variables, np.int64), np.array(which, np.int64)
        places = None if members is None else np.array(members, np.int64)
        return cls(scopes, numbers, np.array(host(tensor), order="C"), tensor, places)


def doubles(name: str, values: Any) -> Tensor:
    """Return a copy on the CPU in float64; tensors keep their gradient."""
    tensor = as_tensor(name, values.clone() if isinstance(values, Tensor) else np.array(as_array(name, values)))
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueRangeError(f"{name} must contain real numbers, got {tensor.dtype}.")
    return tensor.to(device="cpu", dtype=torch.float64)


def from_list(factors: Iterable[tuple[Any, Any]], n_states: Integers) -> list[Group]:
    """Group pairs (variables, log_table) by shape; a table object that is passed several times is shared."""
    lists: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for f, factor in enumerate(factors):
        try:
            variables, table = factor
        except (TypeError, ValueError):
            raise ShapeError(f"factor {f} must be a pair (variables, log_table), got {reprlib.repr(factor)}.") from None
        given = as_array(f"the variables of factor {f}", variables)
        if given.dtype.kind not in "iu" and given.size:
            raise ValueRangeError(f"the variables of factor {f} must be integers, got {reprlib.repr(variables)}.")
        scope = tuple(given.reshape(-1).tolist())
        for v in scope:
            if not 0 <= v < len(n_states):
                raise ValueRangeError(f"factor {f} has variable {v}, but there are {len(n_states)}, numbered from 0.")
        shape = tuple(int(n_states[v]) for v in scope)
        got = tuple(table.shape if isinstance(table, Tensor) else as_array(f"the table of factor {f}", table).shape)
        if got not in (shape, (*got[:1], *shape)):
            raise ShapeError(
                f"the table of factor {f} must have shape {shape} or (B, {', '.join(map(str, shape))}), the states of "
                f"variables {list(scope)}, got {got}."
            )
        batched = got[0] if len(got) > len(shape) else 0
        scopes, which, tables, members = lists.setdefault((shape, batched), ([], [], {}, []))
        # the table itself is kept beside its number, so that its id is not reused
        number, _ = tables.setdefault(id(table), (len(tables), table))
        which.append(number)
        scopes.append(scope)
        members.append(f)
    groups = []
    for (_, batched), (scopes, which, tables, members) in lists.items():
        stacked = torch.stack([doubles("a table", table) for _, table in tables.values()], dim=1 if batched else 0)
        groups.append(Group.of(scopes, which, stacked if batched else stacked[None], members))
    return groups


def from_arrays(given: Sequence[Any]) -> Group:
    """Return the group of an entry (variables (F, k), log_tables[, which]).

    ``log_tables`` is (s1, .., sk), one for all; (U, s1, .., sk), with U = F or ``which``; or (B, U, s1, .., sk).
    """
    if len(given) not in (2, 3):
        raise ShapeError(
            "an entry of tables must be (variables, log_tables) or (variables, log_tables, which), "
            f"got {len(given)} items."
        )
    variables = as_array("variables", given[0])
    if variables.ndim != 2 or variables.dtype.kind not in "iu":
        raise ShapeError(f"variables must be integers of shape (F, k), got {variables.dtype} {variables.shape}.")
    F, k = variables.shape
    tables = doubles("log_tables", given[1])
    if not k <= tables.ndim <= k + 2:
        raise ShapeError(
            f"log_tables of factors over k={k} variables must have shape (s1, .., sk), (U, s1, .., sk) or "
            f"(B, U, s1, .., sk), got {tuple(tables.shape)}."
        )
    while tables.ndim < k + 2:
        tables = tables[None]
    U = tables.shape[1]
    if len(given) == 3:
        which = as_array("which", given[2])
        if which.dtype.kind not in "iu":
            raise ValueRangeError(f"which must contain integers, got {which.dtype}.")
    elif U in (1, F):
        which = np.arange(F) if U == F else np.zeros(F, np.int64)
    else:
        raise ShapeError(f"log_tables has U={U} tables for F={F} factors: pass which, the table of each factor.")
    return Group.of(variables, which, tables)
