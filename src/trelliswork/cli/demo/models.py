"""Models of ``trelliswork demo``: trained on the bundled corpus, evaluated on its test part."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trelliswork.cli.progress import bar, describe

if TYPE_CHECKING:
    from trelliswork.data import TreebankSentence
    from trelliswork.metrics.dependencies import ParseReport
    from trelliswork.metrics.tagging import TaggingReport
    from trelliswork.models import CRF, DependencyParser, MRFLanguageModel

TAGGER_ITERATIONS, FIELD_ITERATIONS, EPOCHS, LABEL_EPOCHS = 60, 40, 3, 4
ORDER, RANK, MIN_COUNT = 2, 20, 3  # of the language model


@dataclass(frozen=True)
class Part:
    """A part of the corpus by columns."""

    sentences: "list[TreebankSentence]"

    @property
    def words(self) -> list[list[str]]:
        """Words of each sentence."""
        return [list(s.words) for s in self.sentences]

    @property
    def tags(self) -> list[list[str]]:
        """Part-of-speech tags."""
        return [list(s.tags) for s in self.sentences]

    @property
    def trees(self) -> list[list[tuple[int, str]]]:
        """Head and label of each word."""
        return [list(zip(s.heads, s.relations, strict=True)) for s in self.sentences]

    @property
    def n_tokens(self) -> int:
        """Number of words of all sentences."""
        return sum(map(len, self.sentences))


@dataclass
class Trained:
    """Trained models and their results.

    Attributes
    ----------
    tagger, parser, language_model : Estimator
        Models; the parser uses predicted tags.
    tagging, parsing : TaggingReport, ParseReport
        Results on the test part.
    perplexity : float
        Upper bound of the language model's perplexity on the test part.
    tagged : list of lists of (word, tag)
        The test part with predicted tags.
    seconds : dict of str to float
        Training times by model.
    """

    train: Part
    dev: Part
    test: Part
    tagger: "CRF"
    parser: "DependencyParser"
    language_model: "MRFLanguageModel"
    tagging: "TaggingReport"
    parsing: "ParseReport"
    perplexity: float
    tagged: list[list[tuple[str, str]]]
    seconds: dict[str, float]


def train(n_sentences: int, quiet: bool, say: Callable[[str], object]) -> Trained:
    """Train all three, with one line of output each; Ctrl-C interrupts at once."""
    from trelliswork.data import bundled
    from trelliswork.metrics.tagging import evaluate_tagging
    from trelliswork.models import CRF, DependencyParser, MRFLanguageModel

    part, dev, test = (Part(bundled.load(name)) for name in ("train", "dev", "test"))
    part = Part(part.sentences[:n_sentences])
    say(f"The bundled corpus: {len(part.sentences):,} training sentences, {part.n_tokens:,} words.")
    clock = _Clock()

    tagger = CRF("pos", tol=1e-4, max_iter=TAGGER_ITERATIONS)
    with bar("tagger: reading features", TAGGER_ITERATIONS, quiet) as show:
        _fit(tagger, show, "tagger", part.n_tokens, part.words, part.tags, dev=(dev.words, dev.tags))
    clock.stop("tagger")
    predicted = tagger.predict(test.words)
    tagging = evaluate_tagging(test.tags, predicted, words=test.words, known_words=tagger.known_words())
    say(f"[bold]Tagger[/] (CRF), {clock.last:.0f} s: {tagging.accuracy:.1%} of the words of {len(test.sentences)} new "
        f"sentences have the correct tag, {tagging.unknown_accuracy or 0:.1%} of the unknown ones.")  # fmt: skip

    parser = DependencyParser(2, max_iter=EPOCHS, max_iter_second_order=EPOCHS, max_iter_labels=LABEL_EPOCHS)
    with_tags = [list(zip(w, t, strict=True)) for w, t in zip(part.words, part.tags, strict=True)]
    clock.start()
    with bar("parser", 2 * EPOCHS + LABEL_EPOCHS, quiet) as show:
        _fit(parser, show, "parser", part.n_tokens, with_tags, part.trees)
    clock.stop("parser")
    tagged = [list(zip(w, t, strict=True)) for w, t in zip(test.words, predicted, strict=True)]
    parsing = parser.evaluate(tagged, test.trees)
    say(f"[bold]Parser[/] (second order), {clock.last:.0f} s: {parsing.uas:.1%} of the words have the correct head, "
        f"{parsing.las or 0:.1%} also the correct label; tags are predicted.")  # fmt: skip

    lm = MRFLanguageModel(ORDER, RANK, min_count=MIN_COUNT, max_iter=FIELD_ITERATIONS)
    clock.start()
    with bar("language model", FIELD_ITERATIONS, quiet) as show:
        _fit(lm, show, "language model", part.n_tokens, part.words)
    clock.stop("language model")
    perplexity = lm.perplexity(test.words)
    say(f"[bold]Language model[/] (Markov random field of {len(lm.vocabulary_) - 1:,} words), {clock.last:.0f} s: "
        f"perplexity at most {perplexity:.0f} per token, rare words as <unk>.\n")  # fmt: skip
    return Trained(part, dev, test, tagger, parser, lm, tagging, parsing, perplexity, tagged, clock.seconds)


class _Clock:
    """Times in seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = 0.0
        self.start()

    def start(self) -> None:
        self.started = time.perf_counter()

    def stop(self, name: str) -> None:
        self.last = self.seconds[name] = time.perf_counter() - self.started


def _fit(model: Any, show: Callable[[int, str], None], name: str, n_tokens: int, *data: Any, **options: Any) -> None:
    """Fit with a progress bar, without a warning at the last iteration, which is intended."""
    import warnings

    from trelliswork.errors import ConvergenceWarning

    total = 2 * EPOCHS + LABEL_EPOCHS if name == "parser" else model.max_iter

    def callback(step: Any) -> None:
        show(step.iteration, f"{name}: {describe(step, n_tokens, total)}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(*data, callback=callback, **options)
