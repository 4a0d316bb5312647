"""``trelliswork demo``: the first minute, on the bundled corpus."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

    from trelliswork.data import TreebankSentence, Vocabulary
    from trelliswork.distributions import LinearChain
    from trelliswork.learning import ChainEstimate


def demo() -> None:
    """Estimate a small tagger, tag sentences with confidences, and ask its posterior questions."""
    from rich.console import Console

    from trelliswork.data import Vocabulary, bundled
    from trelliswork.data.vocabulary import word_shape
    from trelliswork.learning import count_chain

    console = Console()
    train, test = bundled.load("train"), bundled.load("test")
    tags = Vocabulary.from_sequences(s.tags for s in train)
    words = Vocabulary.from_sequences((s.words for s in train), min_count=2, unknown=word_shape)
    tagger = count_chain([tags.ids(s.tags) for s in train], [words.ids(s.words) for s in train], len(tags), len(words))
    console.print(
        f"[bold]A tagger by counting[/]: {len(train):,} sentences, {sum(map(len, train)):,} words, {len(tags)} tags."
    )
    everything = posterior(tagger, words, [s.words for s in test])
    _show_accuracy(console, test, everything, words, tags)
    sentence, t, evidence = _telling_example(test, everything)
    one = posterior(tagger, words, [sentence.words])
    _show_confidences(console, sentence, one, tags)
    _show_k_best(console, one, tags)
    _show_evidence(console, sentence, one, tags, t, evidence)


def posterior(tagger: "ChainEstimate", words: "Vocabulary", sentences: list[tuple[str, ...]]) -> "LinearChain":
    """The distribution over tag sequences of each sentence: emissions as unary scores, transitions as pairwise ones."""
    import numpy as np

    from trelliswork.distributions import LinearChain

    lengths = [len(s) for s in sentences]
    log_unary = np.zeros((len(sentences), max(lengths), len(tagger.log_start)))
    for b, sentence in enumerate(sentences):
        log_unary[b, : len(sentence)] = tagger.log_emission[:, words.ids(sentence)].T
    return LinearChain(
        log_unary, tagger.log_transition, log_start=tagger.log_start, log_end=tagger.log_end, lengths=lengths
    )


def _telling_example(test: list["TreebankSentence"], chain: "LinearChain") -> tuple["TreebankSentence", int, "Tensor"]:
    """Of the least certain short sentences the one in which forcing a word's second-best tag moves most other words.

    Returns the sentence, the position of that word, and the evidence (1, T) for ``condition``.
    """
    import torch

    entropy = chain.entropy()
    readable = sorted((b for b, s in enumerate(test) if 6 <= len(s) <= 11), key=lambda b: -float(entropy[b]))[:40]
    marginals, best = chain.marginals()[readable], chain.argmax().labels[readable]
    evidence = torch.full_like(best, -1)
    doubtful = marginals.max(dim=2).values.masked_fill(best < 0, 2).argmin(dim=1)
    for row, t in enumerate(doubtful.tolist()):
        evidence[row, t] = marginals[row, t].topk(2).indices[1]
    full = torch.full((len(test), best.shape[1]), -1)
    full[readable] = evidence
    moved = (chain.condition(labels=full).argmax().labels[readable] != best).sum(dim=1)
    row = int(moved.argmax())
    sentence = test[readable[row]]
    return sentence, int(doubtful[row]), evidence[row : row + 1, : len(sentence)]


def _show_accuracy(
    console: "Console", test: list["TreebankSentence"], chain: "LinearChain", words: "Vocabulary", tags: "Vocabulary"
) -> None:
    hits = [
        (word in words, tags[label] == gold)
        for sentence, labels in zip(test, chain.argmax().labels.tolist(), strict=True)
        for word, gold, label in zip(sentence.words, sentence.tags, labels, strict=False)
    ]
    rare = [hit for known, hit in hits if not known]
    console.print(
        f"Accuracy on {len(test)} new sentences: [bold]{sum(hit for _, hit in hits) / len(hits):.1%}[/] of all words, "
        f"{sum(rare) / len(rare):.1%} of the {len(rare)} rare or unknown ones.\n"
    )


def _show_confidences(console: "Console", sentence: "TreebankSentence", one: "LinearChain", tags: "Vocabulary") -> None:
    from rich.table import Table

    best, marginals = one.argmax().labels[0].tolist(), one.marginals()[0]
    table = Table("word", "tag", "confidence", "next best", "gold", title_justify="left")
    table.title = "Tags with confidence: p(tag | whole sentence)"
    for t, word in enumerate(sentence.words):
        other = next(j for j in marginals[t].argsort(descending=True).tolist() if j != best[t])
        gold = sentence.tags[t]
        table.add_row(
            word,
            tags[best[t]],
            f"{marginals[t, best[t]]:.3f}",
            f"{tags[other]} {marginals[t, other]:.3f}",
            gold if gold == tags[best[t]] else f"[red]{gold}[/]",
        )
    console.print(table)


def _show_k_best(console: "Console", one: "LinearChain", tags: "Vocabulary") -> None:
    from rich.table import Table

    table = Table("probability", "tags", title="The five most probable tag sequences", title_justify="left")
    found, log_z = one.topk(5), one.log_partition()
    for labels, probability in zip(found.labels[0].tolist(), (found.scores[0] - log_z).exp().tolist(), strict=True):
        if probability > 0:
            table.add_row(f"{probability:.3f}", " ".join(tags.strings(labels)))
    console.print(table)


def _show_evidence(
    console: "Console", sentence: "TreebankSentence", one: "LinearChain", tags: "Vocabulary", t: int, evidence: "Tensor"
) -> None:
    from rich.table import Table

    given = one.condition(labels=evidence)
    probability = (given.log_partition() - one.log_partition()).exp().item()
    console.print(
        f"\n[bold]Force[/] {sentence.words[t]!r} to be {tags[int(evidence[0, t])]} (probability {probability:.3f}), "
        "and the whole posterior moves:"
    )
    table = Table("word", "before", "after")
    before, after = one.argmax().labels[0].tolist(), given.argmax().labels[0].tolist()
    p, q = one.marginals()[0], given.marginals()[0]
    for s, word in enumerate(sentence.words):
        table.add_row(
            word,
            f"{tags[before[s]]} {p[s, before[s]]:.3f}",
            f"{tags[after[s]]} {q[s, after[s]]:.3f}",
            style="bold" if after[s] != before[s] else "",
        )
    console.print(table)
    console.print(
        f"Entropy of the tags: {one.entropy().item():.2f} nats before, {given.entropy().item():.2f} after; "
        f"KL(after || before) = {given.kl(one).item():.2f} nats, which is -log p(evidence)."
    )
