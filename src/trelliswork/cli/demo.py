"""``trelliswork demo``: the first minute, on the bundled corpus."""


def demo() -> None:
    """Estimate a small tagger, tag sentences with confidences, and ask its posterior questions."""
    import numpy as np
    import torch
    from rich.console import Console
    from rich.table import Table

    from trelliswork.data import bundled
    from trelliswork.data.vocabulary import Vocabulary, word_shape
    from trelliswork.distributions import LinearChain
    from trelliswork.learning import count_chain

    console = Console()
    train, test = bundled.load("train"), bundled.load("test")
    tags = Vocabulary.from_sequences(s.tags for s in train)
    words = Vocabulary.from_sequences((s.words for s in train), min_count=2, unknown=word_shape)
    estimate = count_chain(
        [tags.ids(s.tags) for s in train], [words.ids(s.words) for s in train], len(tags), len(words)
    )
    console.print(
        f"[bold]A tagger by counting[/]: {len(train):,} sentences, {sum(map(len, train)):,} words, {len(tags)} tags."
    )

    def posterior(sentences: list[tuple[str, ...]]) -> LinearChain:
        """The distribution over tag sequences of each sentence."""
        lengths = [len(s) for s in sentences]
        log_unary = np.zeros((len(sentences), max(lengths), len(tags)))
        for b, sentence in enumerate(sentences):
            log_unary[b, : len(sentence)] = estimate.log_emission[:, words.ids(sentence)].T
        return LinearChain(
            log_unary, estimate.log_transition, log_start=estimate.log_start, log_end=estimate.log_end, lengths=lengths
        )

    chain = posterior([s.words for s in test])
    right = known = known_right = total = 0
    for sentence, labels in zip(test, chain.argmax().labels.tolist(), strict=True):
        for word, gold, label in zip(sentence.words, sentence.tags, labels, strict=False):
            hit = tags[label] == gold
            total, right = total + 1, right + hit
            if word in words:
                known, known_right = known + 1, known_right + hit
    console.print(
        f"Accuracy on {len(test)} new sentences: [bold]{right / total:.1%}[/] of all words, "
        f"{(right - known_right) / max(total - known, 1):.1%} of the {total - known} rare or unknown ones.\n"
    )

    # The least certain sentence of readable length has the most to show.
    entropy = chain.entropy()
    readable = [b for b, s in enumerate(test) if 6 <= len(s) <= 10]
    b = max(readable, key=lambda b: float(entropy[b]))
    sentence = test[b]
    one = posterior([sentence.words])
    best, marginals = one.argmax().labels[0].tolist(), one.marginals()[0]
    doubtful = int(marginals.max(dim=1).values.argmin())
    table = Table(title="Tags with confidence: p(tag | whole sentence)", title_justify="left")
    for name in ("word", "tag", "confidence", "next best", "gold"):
        table.add_column(name)
    for t, word in enumerate(sentence.words):
        order = marginals[t].argsort(descending=True).tolist()
        other = next(j for j in order if j != best[t])
        table.add_row(
            word,
            tags[best[t]],
            f"{marginals[t, best[t]]:.3f}",
            f"{tags[other]} {marginals[t, other]:.3f}",
            sentence.tags[t] if sentence.tags[t] == tags[best[t]] else f"[red]{sentence.tags[t]}[/]",
        )
    console.print(table)

    table = Table(title="The five most probable tag sequences", title_justify="left")
    for name in ("probability", "tags"):
        table.add_column(name)
    found = one.topk(5)
    for labels, score in zip(found.labels[0].tolist(), found.scores[0].tolist(), strict=True):
        if score > -np.inf:
            table.add_row(f"{np.exp(score - one.log_partition().item()):.3f}", " ".join(tags.strings(labels)))
    console.print(table)

    second = int(marginals[doubtful].argsort(descending=True)[1])
    evidence = torch.full((1, len(sentence)), -1)
    evidence[0, doubtful] = second
    given = one.condition(labels=evidence)
    log_probability = (given.log_partition() - one.log_partition()).item()
    console.print(
        f"\n[bold]Force[/] {sentence.words[doubtful]!r} to be {tags[second]} "
        f"(p = {np.exp(log_probability):.3f}), and the posterior moves:"
    )
    table = Table()
    for name in ("word", "before", "after"):
        table.add_column(name)
    moved, after = given.marginals()[0], given.argmax().labels[0].tolist()
    for t, word in enumerate(sentence.words):
        style = "bold" if after[t] != best[t] else ""
        table.add_row(
            word,
            f"{tags[best[t]]} {marginals[t, best[t]]:.3f}",
            f"{tags[after[t]]} {moved[t, after[t]]:.3f}",
            style=style,
        )
    console.print(table)
    console.print(
        f"Entropy of the tags: {one.entropy().item():.2f} nats before, {given.entropy().item():.2f} after; "
        f"KL(after || before) = {given.kl(one).item():.2f} nats, which is -log p of the evidence."
    )
