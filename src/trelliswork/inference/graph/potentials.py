r"""Variables and factors of a graph as flat arrays: the input of every engine.

.. math:: p(x) = \frac1Z \exp\Big(\sum_v u_v(x_v) + \sum_f \theta_f(x_f)\Big)

A graph has V variables with any number of states each. The states of all variables are concatenated on one flat axis:
those of variable v are ``offsets[v]:offsets[v + 1]``. Factors over one variable, and evidence, are summed into
``log_unary``; table factors over 2 to 4 variables form groups with equal numbers of states; a structured factor has its
own dynamic program. A batch holds B graphs of the same shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_scores
from trelliswork.compute.limits import check_cost
from trelliswork.errors import ShapeError, ValueRangeError

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
MAX_ARITY = 4
GRAPHS = {"noun": "assignment of graph", "parts": "states of factors"}  # for error messages


@dataclass(frozen=True)
class Tables:
    """Table factors over variables with the same numbers of states."""

    variables: Integers  # (F, k) variables of each factor, all different; k = 1 to 4
    which: Integers  # (F,) table of each factor: tables may be shared
    log_tables: Doubles  # (1 or B, U, s1, .., sk) U tables, for all graphs or for each; -inf is impossible

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the numbers of states (s1, .., sk) of the variables of a factor."""
        return self.log_tables.shape[2:]

    def __len__(self) -> int:
        return len(self.variables)

    def dense(self, start: int = 0, stop: int | None = None) -> Doubles:
        """Return the tables of factors ``start:stop``, one per factor: (1 or B, F, s1, .., sk)."""
        return self.log_tables[:, self.which[start:stop]]


class Propagation(NamedTuple):
    """Response of a structured factor to messages from its variables.

    A message is never computed by dividing a belief by the variable's message, which may be zero.
    """

    log_value: Doubles  # (B,) log of the sum over all x of f(x) times the messages; -inf if nothing is possible
    log_beliefs: Doubles  # (B, N) normalized belief of each variable, flat; all -inf where nothing is possible
    log_messages: Doubles  # (B, N) to each variable, flat: its belief without its own message, up to a constant


class BestPropagation(NamedTuple):
    """Response of a structured factor in max-product."""

    value: Doubles  # (B,) largest log f(x) plus the messages; -inf if nothing is possible
    log_messages: Doubles  # (B, N) best score with each state, without the variable's own message, up to a constant
    assignment: Integers  # (B, k) states that reach the value; -1 where nothing is possible


@runtime_checkable
class Propagator(Protocol):
    """A factor with its own dynamic program ("structured factor").

    ``N`` is the sum of ``n_states``: the states of the factor's variables, concatenated in the order of ``variables``.
    Engines may call the methods with any number of rows B when the factor's ``n_graphs`` is 1. The expected score and
    the entropy of its belief follow from a propagation:
    E[log f] + H = log_value - sum_i <belief_i, log m_i>.

    Three members are optional. ``weigh(messages)`` returns messages (B, N) for messages (B, N) in probability space, up
    to a constant for each variable; where one is below 1e-200, belief propagation asks ``propagate`` instead.
    ``parameters`` are torch tensors from which the factor computes its scores, and ``log_value(log_messages)`` is the
    value of ``propagate`` as a function of tensors: its gradient by the parameters is part of that of log Z.
    """

    variables: Integers  # (k,) all different
    n_states: Integers  # (k,)
    n_graphs: int  # 1 if its parameters are shared by all graphs, else B

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Return value, beliefs and messages for messages (B, N): sum-product."""

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Return value, messages and the best states for messages (B, N): max-product."""

    def score(self, assignment: Integers) -> Doubles:
        """Return log f (B,) of states (B, k)."""

    def table(self, max_size: int = 1_000_000) -> Doubles:
        """Return the dense log-table (n_graphs, s1, .., sk); raise an error beyond ``max_size`` entries."""


class CheckedFactor:
    """A factor from outside this package, whose answers are checked before kernels read them."""

    def __init__(self, factor: Propagator) -> None:
        self.factor, self.name = factor, type(factor).__name__
        self.variables, self.n_states = (
            self._checked(name, np.asarray(getattr(factor, name)), None, "iu").astype(np.int64)
            for name in ("variables", "n_states")
        )
        if self.variables.ndim != 1 or self.n_states.shape != self.variables.shape:
            raise ShapeError(f"{self.name}: variables and n_states must be lists of the same length.")
        self.n_graphs = int(factor.n_graphs)
        self.parameters = tuple(getattr(factor, "parameters", ()))
        if hasattr(factor, "weigh"):
            self.weigh = self._weigh

    def _weigh(self, messages: Doubles) -> Doubles:
        return self._checked("the messages of weigh", self.factor.weigh(messages), messages.shape)  # type: ignore[attr-defined]

    def log_value(self, log_messages: Any) -> Any:
        """Return the checked value (B,) as a tensor."""
        value = self.factor.log_value(log_messages)  # type: ignore[attr-defined]
        self._checked("the value of log_value", value.detach(), (len(log_messages),))
        return value

    def propagate(self, log_messages: Doubles) -> Propagation:
        """Return the checked answer of the factor: sum-product."""
        value, beliefs, messages = self.factor.propagate(log_messages)
        B, N = log_messages.shape
        return Propagation(
            self._checked("the value of propagate", value, (B,)),
            self._checked("the beliefs of propagate", beliefs, (B, N)),
            self._checked("the messages of propagate", messages, (B, N)),
        )

    def best(self, log_messages: Doubles) -> BestPropagation:
        """Return the checked answer of the factor: max-product."""
        value, messages, states = self.factor.best(log_messages)
        B, N = log_messages.shape
        k = len(self.variables)
        states = self._checked("the states of best", states, (B, k), "iu").astype(np.int64)
        if ((states < -1) | (states >= self.n_states)).any():
            raise ValueRangeError(f"{self.name}: the states of best must be below n_states, or -1 for none.")
        return BestPropagation(
            self._checked("the value of best", value, (B,)),
            self._checked("the messages of best", messages, (B, N)),
            states,
        )

    def score(self, assignment: Integers) -> Doubles:
        """Return the checked score of states (B, k)."""
        return self._checked("score", self.factor.score(assignment), (len(assignment),))

    def table(self, max_size: int = 1_000_000) -> Doubles:
        """Return the checked dense log-table (n_graphs, s1, .., sk)."""
        shape = (self.n_graphs, *self.n_states.tolist())
        if float(np.prod(np.array(shape, float))) > max_size:
            raise ValueRangeError(f"{self.name} has a table of shape {shape}, more than {max_size:,} entries.")
        return self._checked("table", self.factor.table(max_size), shape)

    def _checked(self, what: str, given: Any, shape: tuple[int, ...] | None, kinds: str = "fiu") -> NDArray[Any]:
        """Return an array of doubles (of integers if ``kinds`` says so) of the expected shape, without nan or +inf."""
        array = np.asarray(given)
        if array.dtype.kind not in kinds or (shape is not None and array.shape != shape):
            numbers = "integers" if kinds == "iu" else "numbers"
            expected = numbers if shape is None else f"{numbers} of shape {shape}"
            raise ShapeError(f"{self.name}: expected {expected} as {what}, got {array.dtype} of shape {array.shape}.")
        if kinds == "iu":
            return array
        array = np.ascontiguousarray(array, np.float64)
        if not (array < np.inf).all():
            raise ValueRangeError(f"{self.name}: {what} has nan or +inf; scores are finite, or -inf for impossible.")
        return array


def checked_factor(factor: Propagator) -> Propagator:
    """Return a factor of this package as it is, and another one with checks."""
    return factor if type(factor).__module__.startswith("trelliswork.") else CheckedFactor(factor)


@dataclass(frozen=True)
class Wiring:
    """B factor graphs of one shape, as flat arrays; created by `wire`."""

    n_graphs: int  # B
    n_states: Integers  # (V,)
    offsets: Integers  # (V + 1,) the states of variable v are offsets[v]:offsets[v + 1] of any flat vector of states
    log_unary: Doubles  # (B, offsets[-1]) all factors over one variable and the evidence, summed
    groups: tuple[Tables, ...]  # factors over 2 to 4 variables
    structured: tuple[Propagator, ...]

    @property
    def n_variables(self) -> int:
        """Return V."""
        return len(self.n_states)

    @property
    def structured_name(self) -> str:
        """Return the name of the first structured factor, for messages."""
        first = self.structured[0]
        return first.name if isinstance(first, CheckedFactor) else type(first).__name__

    @property
    def n_factors(self) -> int:
        """Return the number of table factors over two or more variables and of structured factors."""
        return sum(len(group) for group in self.groups) + len(self.structured)

    def score(self, assignment: Integers) -> Doubles:
        """Return the sum of all log-potentials (B,) of states (B, V); time O(V + number of factors)."""
        rows = np.arange(self.n_graphs)
        total = self.log_unary[rows[:, None], self.offsets[:-1] + assignment].sum(axis=1)
        for group in self.groups:
            states = assignment[:, group.variables]  # (B, F, k)
            first = rows[:, None] if len(group.log_tables) > 1 else np.zeros((1, 1), np.int64)
            total = total + group.log_tables[(first, group.which, *np.moveaxis(states, 2, 0))].sum(axis=1)
        for factor in self.structured:
            total = total + factor.score(assignment[:, factor.variables])
        return total

    def indicators(self, assignment: Integers) -> tuple[Doubles, ...]:
        """Return (B, F, s1, .., sk) for each group: 1 at the states (B, V) of each factor; all 0 where one is -1."""
        indicators = []
        rows, graphs = np.flatnonzero((assignment >= 0).all(axis=1)), self.n_graphs
        for group in self.groups:
            beliefs = np.zeros((graphs, len(group), *group.shape))
            states = assignment[rows][:, group.variables]  # (possible graphs, F, k)
            beliefs[(rows[:, None], np.arange(len(group)), *np.moveaxis(states, 2, 0))] = 1
            indicators.append(beliefs)
        return tuple(indicators)

    def with_unary(self, log_unary: Doubles) -> "Wiring":
        """Return the same graphs with other unary scores (B, offsets[-1])."""
        return replace(self, log_unary=log_unary)

    def select(self, graphs: Integers) -> "Wiring":
        """Return some graphs of the batch; structured factors must have the same parameters for all graphs."""
        groups = tuple(
            group if len(group.log_tables) == 1 else replace(group, log_tables=group.log_tables[graphs])
            for group in self.groups
        )
        return replace(self, n_graphs=len(graphs), log_unary=self.log_unary[graphs], groups=groups)


def starts(lengths: Any) -> Integers:
    """Return the starts of consecutive pieces of these lengths, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int64, copy=False)


def wire(
    n_states: Any,
    tables: Sequence[Tables] = (),
    *,
    structured: Sequence[Propagator | Tables] = (),
    log_unary: Any = None,
    n_graphs: int | None = None,
) -> Wiring:
    """Check a graph and convert it to flat arrays; time O(total size of variables, factors and tables).

    Tables are over 1 to 4 variables; those over one variable are summed into ``log_unary``, (sum of ``n_states``,) or
    (B, sum of ``n_states``). A `ChainFactor` is tables. ``n_graphs``, B, is inferred from the arrays by default.
    """
    sizes = np.asarray(n_states)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes.size and sizes.min() < 1):
        raise ValueRangeError("n_states must be a list of positive integers, one for each variable.")
    B = 1 if n_graphs is None else int(n_graphs)
    total, largest = float(sizes.sum(dtype=np.float64)), float(sizes.max(initial=0))
    n_bytes = 8.0 * B * max(10 * total, 2 * len(sizes) * largest)
    check_cost(f"a graph of {len(sizes):,} variables with up to {largest:,.0f} states", n_bytes=n_bytes)
    sizes = sizes.astype(np.int64)
    offsets = starts(sizes)
    tables = [*tables, *(Tables(f.variables, f.which, f.log_tables) for f in structured if isinstance(f, Tables))]
    batches = {1 if n_graphs is None else int(n_graphs)} | {len(group.log_tables) for group in tables}
    factors = [checked_factor(f) for f in structured if not isinstance(f, Tables)]
    batches |= {factor.n_graphs for factor in factors}
    unary = np.zeros((1, offsets[-1])) if log_unary is None else np.asarray(log_unary, np.float64)
    unary = unary[None] if unary.ndim == 1 else unary
    if unary.ndim != 2 or unary.shape[1] != offsets[-1]:
        raise ShapeError(
            f"log_unary must have shape (B, N) with N={offsets[-1]} states in total, got {np.shape(log_unary)}."
        )
    B = max(batches | {len(unary)})
    if not batches | {len(unary)} <= {1, B}:
        raise ShapeError(
            f"arrays for different numbers of graphs: {sorted(batches | {len(unary)})}. "
            "Each array must be for 1 or B graphs."
        )
    unary = np.array(np.broadcast_to(unary, (B, offsets[-1])))
    groups = []
    for group in tables:
        _check_tables(group, sizes)
        if group.variables.shape[1] > 1:
            if len(group):
                groups.append(group)
            continue
        at = offsets[group.variables[:, 0], None] + np.arange(group.shape[0])  # (F, s)
        scores = np.broadcast_to(group.dense(), (B, *at.shape))
        for b in range(B):
            np.add.at(unary[b], at, scores[b])
    for factor in factors:
        _check_variables(np.asarray(factor.variables)[None], sizes, tuple(factor.n_states), "structured factor")
    check_scores("log_unary", unary)
    return Wiring(B, sizes, offsets, unary, tuple(groups), tuple(factors))


def _check_tables(group: Tables, sizes: Integers) -> None:
    """Raise an error for shapes, values or variables that do not match."""
    if group.variables.ndim != 2 or not 1 <= group.variables.shape[1] <= MAX_ARITY:
        raise ShapeError(
            f"variables must have shape (F, k) with k from 1 to {MAX_ARITY}, got {group.variables.shape}: "
            "split larger factors, or use a structured factor."
        )
    F, k = group.variables.shape
    if group.log_tables.ndim != k + 2:
        raise ShapeError(f"log_tables must have {k + 2} axes, (1 or B, U, s1, .., s{k}), got {group.log_tables.shape}.")
    if group.which.shape != (F,):
        raise ShapeError(f"which must have shape (F,), got {group.which.shape}: axis 0 should be F={F}.")
    U = group.log_tables.shape[1]
    if F and (group.which.min() < 0 or group.which.max() >= U):
        raise ValueRangeError(f"which must be between 0 and U-1={U - 1}, got {group.which.min()}..{group.which.max()}.")
    check_scores("log_tables", group.log_tables)
    _check_variables(group.variables, sizes, group.shape, "factor")


def _check_variables(variables: Integers, sizes: Integers, shape: tuple[int, ...], what: str) -> None:
    """Check that variables (F, k) exist, differ within a factor, and match the shape of the table."""
    if variables.size == 0:
        return
    if variables.dtype.kind not in "iu":
        raise ValueRangeError(f"variables must be integers, got dtype {variables.dtype}.")
    if variables.min() < 0 or variables.max() >= len(sizes):
        bad = int(np.flatnonzero(((variables < 0) | (variables >= len(sizes))).any(axis=1))[0])
        raise ValueRangeError(
            f"{what} {bad} has variables {variables[bad].tolist()}, but there are {len(sizes)}, numbered from 0."
        )
    ordered = np.sort(variables, axis=1)
    twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if twice.size:
        raise ValueRangeError(
            f"{what} {twice[0]} has a variable twice: {variables[twice[0]].tolist()}. "
            "Use the diagonal of its table as a factor over fewer variables."
        )
    wrong = np.flatnonzero((sizes[variables] != np.asarray(shape)).any(axis=1))
    if wrong.size:
        got = sizes[variables[wrong[0]]].tolist()
        raise ShapeError(
            f"{what} {wrong[0]} over variables {variables[wrong[0]].tolist()} has a table of shape {tuple(shape)}, "
            f"but they have {got} states."
        )
