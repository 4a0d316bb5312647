"""Random trees from a grammar, top down."""

import numpy as np

from trelliswork.data import Tree
from trelliswork.models.pcfg.objective import Doubles, GrammarParameters


def draw_tree(
    parameters: GrammarParameters, words: list[str], rng: np.random.Generator, max_length: int
) -> Tree | None:
    """A tree of at most ``max_length`` words; ``None`` if it grew longer, which is to be drawn again."""
    N = parameters.sizes[0]
    open_symbols = [_draw(parameters.log_root, rng)]
    order: list[int] = []  # symbols, parents before children, left before right
    n_words = 1
    while open_symbols:
        symbol = open_symbols.pop()
        order.append(symbol)
        if symbol < N:
            n_words += 1
            if n_words > max_length:
                return None
            left, right = _children(parameters, symbol, rng)
            open_symbols += [right, left]
    stack: list[Tree] = []
    for symbol in reversed(order):
        if symbol >= N:
            word = words[_draw(parameters.log_emission[symbol - N], rng)]
            stack.append(Tree(f"P{symbol - N}", (word,)))
        else:
            first = stack.pop()
            stack.append(Tree(f"N{symbol}", (first, stack.pop())))
    return stack[0]


def _children(parameters: GrammarParameters, symbol: int, rng: np.random.Generator) -> tuple[int, int]:
    if parameters.log_rules is not None:
        S = parameters.log_rules.shape[1]
        left, right = divmod(_draw(parameters.log_rules[symbol].reshape(-1), rng), S)
        return left, right
    log_up, log_left, log_right = parameters.factors
    r = _draw(log_up[symbol], rng)
    return _draw(log_left[r], rng), _draw(log_right[r], rng)


def _draw(log_p: Doubles, rng: np.random.Generator) -> int:
    ends = np.cumsum(np.exp(log_p))
    return min(int(np.searchsorted(ends, rng.random() * ends[-1], side="right")), len(ends) - 1)
