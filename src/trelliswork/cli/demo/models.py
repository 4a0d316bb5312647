"""Models of ``trelliswork demo``: trained on the bundled corpus, evaluated on its test part."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from trelliswork.cli.progress import bar, describe

if TYPE_CHECKING:
    from trelliswork.data import TreebankSentence
    from trelliswork.metrics.dependencies import ParseReport
    from trelliswork.metrics.tagging import TaggingReport
    from trelliswork.models import CRF, DependencyParser, MRFLanguageModel

TAGGER_ITERATIONS, FIELD_ITERATIONS, EPOCHS, LABEL_EPOCHS = 60, 40, 3, 4
ORDER, RANK, MIN_COUNT = 2, 20, 3  # of the language model


class Part(NamedTuple):
    """A part of the corpus, as sentences and by columns."""

    sentences: "list[TreebankSentence]"
    words: list[list[str]]
    tags: list[list[str]]
    trees: list[list[tuple[int, str]]]  # head and label of each word


def _part(sentences: "list[TreebankSentence]") -> Part:
    trees = [list(zip(s.heads, s.relations, strict=True)) for s in sentences]
    return Part(sentences, [list(s.words) for s in sentences], [list(s.tags) for s in sentences], trees)


class Trained(NamedTuple):
    """Trained models and their results on the test part."""

    train: Part
    test: Part
    tagger: "CRF"
    parser: "DependencyParser"  # uses predicted tags
    language_model: "MRFLanguageModel"
    tagging: "TaggingReport"
    parsing: "ParseReport"
    perplexity: float  # upper bound
    tagged: list[list[tuple[str, str]]]  # the test part with predicted tags
    seconds: dict[str, float]  # training times by model


def train(n_sentences: int, quiet: bool, say: Callable[[str], object]) -> Trained:
    """Train all three, with one line of output each; Ctrl-C interrupts at once."""
    from trelliswork.data import bundled
    from trelliswork.experiments.running import fit
    from trelliswork.metrics.tagging import evaluate_tagging
    from trelliswork.models import CRF, DependencyParser, MRFLanguageModel

    part, dev, test = (
        _part(bundled.load("train")[:n_sentences]),
        _part(bundled.load("dev")),
        _part(bundled.load("test")),
    )
    n_tokens = sum(map(len, part.words))
    say(f"The bundled corpus: {len(part.sentences):,} training sentences, {n_tokens:,} words.")
    seconds: dict[str, float] = {}

    def learn(name: str, model: Any, total: int, *data: Any, first: str = "", **options: Any) -> None:
        """Train with a progress bar, whose text is ``first`` before the first iteration."""

        def callback(step: Any) -> None:
            show(step.iteration, f"{name}: {describe(step, n_tokens, total)}")

        with bar(first or name, total, quiet) as show:
            seconds[name] = fit(model, *data, callback=callback, **options)

    tagger = CRF("pos", tol=1e-4, max_iter=TAGGER_ITERATIONS)
    start, dev_data = "tagger: reading features", (dev.words, dev.tags)
    learn("tagger", tagger, TAGGER_ITERATIONS, part.words, part.tags, first=start, dev=dev_data)
    predicted = tagger.predict(test.words)
    tagging = evaluate_tagging(test.tags, predicted, words=test.words, known_words=tagger.known_words())
    say(f"[bold]Tagger[/] (CRF), {seconds['tagger']:.0f} s: {tagging.accuracy:.1%} of the words of "
        f"{len(test.sentences)} new sentences have the correct tag, {tagging.unknown_accuracy or 0:.1%} of the unknown "
        "ones.")  # fmt: skip

    parser = DependencyParser(2, max_iter=EPOCHS, max_iter_second_order=EPOCHS, max_iter_labels=LABEL_EPOCHS)
    held_out = _with_tags(dev.words, dev.tags), dev.trees
    learn("parser", parser, 2 * EPOCHS + LABEL_EPOCHS, _with_tags(part.words, part.tags), part.trees, dev=held_out)
    tagged = _with_tags(test.words, predicted)
    parsing = parser.evaluate(tagged, test.trees)
    say(f"[bold]Parser[/] (second order), {seconds['parser']:.0f} s: {parsing.uas:.1%} of the words have the correct "
        f"head, {parsing.las or 0:.1%} also the correct label; tags are predicted.")  # fmt: skip

    lm = MRFLanguageModel(ORDER, RANK, min_count=MIN_COUNT, max_iter=FIELD_ITERATIONS)
    learn("language model", lm, FIELD_ITERATIONS, part.words)
    perplexity = lm.perplexity(test.words)
    say(f"[bold]Language model[/] (Markov random field of {len(lm.vocabulary_) - 1:,} words), "
        f"{seconds['language model']:.0f} s: perplexity at most {perplexity:.0f} per token, rare words as <unk>.\n"
    )  # fmt: skip
    return Trained(part, test, tagger, parser, lm, tagging, parsing, perplexity, tagged, seconds)


def _with_tags(words: list[list[str]], tags: list[list[str]]) -> list[list[tuple[str, str]]]:
    return [list(zip(w, t, strict=True)) for w, t in zip(words, tags, strict=True)]
