"""Trees under a grammar: minimum Bayes risk and Viterbi trees of sentences, and random trees."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Tree
from trelliswork.data.trees import tree_spans
from trelliswork.errors import ImpossibleError
from trelliswork.inference.span import Grammar, brackets, grammar
from trelliswork.models.pcfg.objective import Doubles, GrammarParameters, span_posteriors, text_batches

Decoding = Literal["mbr", "viterbi"]
Chart = NDArray[np.int64]  # (n, n): symbols at spans, -1 for none


def best_trees(parameters: GrammarParameters, sentences: Sequence[Sequence[int]], decoding: Decoding) -> list[Chart]:
    """Return the chart of each sentence.

    ``mbr``: the binary tree with most expected spans, each with its most probable symbol; time O(n^3) after
    inside-outside. ``viterbi``: the most probable tree; a low-rank grammar is expanded to all rules for it.
    """
    result: list[Chart | None] = [None] * len(sentences)
    batches = text_batches(sentences)
    if decoding == "viterbi":
        log_rules = parameters.dense_rules()
        for batch in batches:
            log_terminals = np.ascontiguousarray(parameters.log_emission.T[batch.ids])
            given = Grammar(parameters.log_root, log_rules, log_terminals, None, batch.lengths)
            charts, _ = grammar.topk(given, 1)
            for row, place in enumerate(batch.places):
                n = batch.lengths[row]
                result[place] = charts[row, 0, :n, :n]
    else:
        for batch, log_z, symbols in span_posteriors(parameters, batches):
            if np.isneginf(log_z).any():
                raise ImpossibleError(
                    f"sentence {int(batch.places[int(np.argmin(log_z))])} has no tree under the grammar. "
                    "Train with priors above 0, so that nothing is impossible."
                )
            labels = symbols.argmax(axis=3)
            charts, _ = brackets.topk(np.ascontiguousarray(symbols.sum(axis=3)[..., None]), batch.lengths, 1)
            for row, place in enumerate(batch.places):
                n = batch.lengths[row]
                result[place] = np.where(charts[row, 0] >= 0, labels[row], -1)[:n, :n]
    for place, sentence in enumerate(sentences):
        if len(sentence) == 1:  # no tree in the grammar: the word's most probable symbol
            best = parameters.sizes[0] + int(parameters.log_emission[:, sentence[0]].argmax())
            result[place] = np.array([[best]])
    return [chart for chart in result if chart is not None]


def named_tree(chart: Chart, words: Sequence[str], n_nonterminals: int) -> Tree:
    """Return a tree with symbols N0, N1, ... over spans and P0, P1, ... over words."""
    stack: list[Tree] = []
    n = len(words)
    # Spans by their last word, then from short to long: children come right before their parent.
    for j in range(n):
        for i in range(j, -1, -1):
            symbol = int(chart[i, j])
            if symbol < 0:
                continue
            if i == j:
                stack.append(Tree(f"P{symbol - n_nonterminals}", (words[j],)))
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(Tree(f"N{symbol}", (left, right)))
    assert len(stack) == 1, "a chart holds one binary tree"
    return stack[0]


def gold_spans(tree: Tree) -> set[tuple[int, int]]:
    """Return the spans of a gold tree."""
    return {(i, j) for i, j, _ in tree_spans(tree)}


def draw_tree(
    parameters: GrammarParameters, words: list[str], rng: np.random.Generator, max_length: int
) -> Tree | None:
    """Return a random tree of at most ``max_length`` words; ``None`` if it grew longer."""
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
