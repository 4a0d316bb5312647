"""What a page shows of grammars: an induced tree, rules and words, and brackets against gold ones."""

from collections.abc import Mapping
from typing import Any

from trelliswork.errors import ValueRangeError
from trelliswork.metrics.brackets import BracketReport
from trelliswork.models.pcfg.objective import span_posteriors, text_batches
from trelliswork.report.markup import percent
from trelliswork.report.samples import READABLE, Sample
from trelliswork.report.tables import bars, folded, table, word_lists
from trelliswork.report.taggers import Section
from trelliswork.report.trees import constituent_tree

SYMBOLS = 40  # that are listed
RULES = 20_000_000  # that may be laid out for a list


def tree_section(grammar: Any, sample: Sample) -> list[Section]:
    """The tree with most expected spans of a sentence, and the probabilities of its spans."""
    low, high = READABLE
    lengths = sample.lengths()
    fit = [n for n, size in enumerate(lengths) if size > 1]
    if not fit:
        return []
    n = min(fit, key=lambda n: (not low <= lengths[n] <= high, abs(lengths[n] - high)))
    words = sample.words()[n]
    (tree,) = grammar.predict([words])
    pictures = [constituent_tree(tree, span_probabilities(grammar, words), title="The grammar's tree")]
    if sample.gold is not None:
        pictures.append(constituent_tree(sample.gold[n], title="The gold tree"))
    return [("An induced tree", f"The bracketing with most expected spans of a sentence of the {sample.part} part.",
             pictures)]  # fmt: skip


def span_probabilities(grammar: Any, words: list[str]) -> dict[tuple[int, int], float]:
    """p(span | sentence) by (first, last), whatever its symbol."""
    ((_, _, symbols),) = span_posteriors(grammar.parameters_, text_batches([grammar.words_.ids(words)]))
    p = symbols[0].sum(axis=2)
    n = len(words)
    return {(i, j): float(p[i, j]) for i in range(n) for j in range(i + 1, n)}


def learned_sections(grammar: Any) -> list[Section]:
    """The most probable rules and words of the grammar's symbols."""
    N, P, _ = grammar.parameters_.sizes
    blocks = []
    if N * (N + P) ** 2 <= RULES:
        rules = {f"N{a}": [(f"{x} {y}", p) for x, y, p in grammar.top_rules(a, 6)] for a in range(min(N, SYMBOLS))}
        blocks.append(word_lists(rules, title="Rules", headers=("symbol", "becomes")))
    if grammar.n_preterminals is not None:
        words = {f"P{x}": grammar.top_words(x, 8) for x in range(min(P, SYMBOLS))}
        blocks.append(word_lists(words, title="Words", headers=("symbol", "words")))
    try:
        made = [" ".join(words) for words, _ in grammar.sample(5)]
    except ValueRangeError:  # all sentences that it draws are too long
        made = []
    blocks.append(folded("Sentences that it makes up", *made))
    return [("What it learned", "Symbols have no names: N stand over spans, P over words.", blocks)]


def bracket_sections(reports: Mapping[str, BracketReport], perplexity: float) -> list[Section]:
    """Brackets against those of gold trees, and the trees that everyone must beat."""
    rows = [
        [
            name,
            r.n_sentences,
            percent(r.sentence_f1, 2),
            percent(r.f1, 2),
            percent(r.precision, 2),
            percent(r.recall, 2),
        ]
        for name, r in reports.items()
    ]
    headers = ["sentences", "count", "F1 a sentence", "F1 of all brackets", "precision", "recall"]
    longest = list(reports.values())[-1]
    compared = [
        ("this grammar", 100 * longest.sentence_f1),
        ("left-branching trees", 100 * longest.left_f1),
        ("right-branching trees", 100 * longest.right_f1),
        ("the best binary trees", 100 * longest.best_f1),
    ]
    note = f"Unlabelled brackets; perplexity {perplexity:.2f} per word."
    return [
        ("Figures", note, [table(headers, rows)]),
        ("Beside trees that know nothing", "F1 a sentence, of all sentences.",
         [bars(compared, headers=("trees", "F1"), digits=2)]),
    ]  # fmt: skip
