"""Deterministic finite automata over numbered letters: well-known constructions on tables of next states."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import LimitError

Mask = NDArray[np.bool_]
MOST_STATES = 5_000  # of an automaton, while it is built


@dataclass(frozen=True, eq=False)
class Automaton:
    """A complete deterministic automaton over A letters; it starts in state 0.

    Examples
    --------
    >>> odd = Automaton(np.array([[0, 1], [1, 0]]), np.array([False, True]))  # an odd number of ones
    >>> odd.accepts([0, 1, 1, 1]), (odd & ~odd).is_empty
    (True, True)
    """

    step: NDArray[np.int32]  # (Q, A) the next state
    final: Mask  # (Q,) whether a sequence may end there

    def accepts(self, letters: Iterable[int]) -> bool:
        """Return whether a sequence of letters is accepted."""
        state = 0
        for letter in letters:
            state = int(self.step[state, letter])
        return bool(self.final[state])

    def __and__(self, other: "Automaton") -> "Automaton":
        """Return the minimal automaton of the sequences that both accept."""
        return self._product(other, np.logical_and)

    def __or__(self, other: "Automaton") -> "Automaton":
        """Return the minimal automaton of the sequences that one of the two accepts."""
        return self._product(other, np.logical_or)

    def __invert__(self) -> "Automaton":
        """Return the automaton of the other sequences."""
        return Automaton(self.step, ~self.final)

    def _product(self, other: "Automaton", combine: Callable[[Mask, Mask], Mask]) -> "Automaton":
        n = len(other.final)

        def following(code: int) -> list[int]:
            ahead: list[int] = (self.step[code // n].astype(np.int64) * n + other.step[code % n]).tolist()
            return ahead

        states, step = numbered(following, 0)
        codes = np.array(states)
        return Automaton(step, combine(self.final[codes // n], other.final[codes % n])).minimal()

    @cached_property
    def shortest(self) -> NDArray[np.float64]:
        """(Q,): the length of the shortest sequence that is accepted from each state; infinite if there is none."""
        lengths = np.where(self.final, 0.0, np.inf)
        while True:
            less = np.minimum(lengths, 1 + lengths[self.step].min(axis=1))
            if (less == lengths).all():
                return lengths
            lengths = less

    @property
    def live(self) -> Mask:
        """(Q,): states from which some sequence is accepted."""
        return self.shortest < np.inf

    @property
    def is_empty(self) -> bool:
        """Whether nothing is accepted."""
        return not self.live[0]

    def lengths(self, most: int) -> Mask:
        """Return which lengths (most + 1,) the sequences that are accepted have."""
        states, found = np.arange(len(self.final)) == 0, []
        for _ in range(most + 1):
            found.append((states & self.final).any())
            reached = np.zeros_like(states)
            reached[self.step[states]] = True
            states = reached
        return np.array(found)

    def minimal(self) -> "Automaton":
        """Return the smallest automaton of the same sequences, its states numbered in the order of their discovery.

        Automata of the same sequences become equal. States are told apart by the shortest sequences that they accept
        and reject, and then by the groups that they lead to (Moore, 1956).
        """
        columns = np.unique(self.step, axis=1)  # letters with one column are one letter
        told_apart = np.column_stack([self.shortest, (~self).shortest])
        group, n = np.unique(told_apart, axis=0, return_inverse=True)[1].reshape(-1), 0
        while group.max() + 1 > n:
            n = int(group.max()) + 1
            group = np.unique(np.column_stack([group, group[columns]]), axis=0, return_inverse=True)[1].reshape(-1)
        first = np.unique(group, return_index=True)[1]  # one state of each group
        groups, step = numbered(lambda one: group[self.step[first[one]]].tolist(), int(group[0]))
        return Automaton(step, self.final[first[groups]])

    def lifted(self, letters: NDArray[np.integer]) -> "Automaton":
        """Return the automaton that reads ``letters[k]`` where k stands."""
        return Automaton(np.ascontiguousarray(self.step[:, letters]), self.final)


def numbered(following: Callable[[int], list[int]], start: int) -> tuple[list[int], NDArray[np.int32]]:
    """Return the states that a start leads to, in order of discovery, and the table of next states by number.

    ``following(state)`` returns the next state for each letter.
    """
    numbers, states, steps = {start: 0}, [start], []
    for state in states:
        ahead = following(state)
        states += [other for other in dict.fromkeys(ahead) if other not in numbers]
        numbers |= {other: number for number, other in enumerate(states[len(numbers) :], len(numbers))}
        steps.append([numbers[other] for other in ahead])
        if len(states) > MOST_STATES:
            raise LimitError(f"this would need an automaton of more than {MOST_STATES:,} states.")
    return states, np.array(steps, np.int32)
