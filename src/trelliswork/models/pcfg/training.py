"""How a PCFG learns: words to ids, EM or gradients, checkpoints."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Vocabulary
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.learning.checkpoint import Checkpoint, fingerprint
from trelliswork.models.hmm.em import EMReport
from trelliswork.models.pcfg.em import Callback, GrammarPriors, restarts
from trelliswork.models.pcfg.objective import GrammarParameters, text_batches

UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class PCFGSettings:
    """The parameters of the estimator, see ``PCFG``."""

    n_nonterminals: int
    n_preterminals: int | None
    rank: int | None
    parameterisation: Literal["plain", "neural"]
    algorithm: Literal["em", "gradient"]
    root_prior: float
    rule_prior: float
    emission_prior: float
    min_count: int
    max_length: int | None
    max_iter: int
    tol: float
    n_restarts: int
    probe: int
    right_bias: float
    batch_size: int
    learning_rate: float
    curriculum: int | None
    embedding_size: int
    seed: int

    def check(self) -> None:
        """Refuse values that make no sense, alone or together."""
        for name in ("n_nonterminals", "min_count", "max_iter", "n_restarts", "probe", "batch_size", "embedding_size"):
            check_count(name, getattr(self, name))
        for name in ("n_preterminals", "rank", "curriculum"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.max_length is not None and self.max_length < 2:
            raise ValueRangeError(
                f"max_length must be 2 or more, got {self.max_length}: a tree has two words at least."
            )
        if self.parameterisation not in ("plain", "neural"):
            raise ValueRangeError(f"parameterisation must be 'plain' or 'neural', got {self.parameterisation!r}.")
        if self.algorithm not in ("em", "gradient"):
            raise ValueRangeError(f"algorithm must be 'em' or 'gradient', got {self.algorithm!r}.")
        if not self.tol >= 0 or not self.learning_rate > 0:
            raise ValueRangeError(
                f"tol must be 0 or more and learning_rate above 0, got {self.tol} and {self.learning_rate}."
            )
        if self.algorithm == "em":
            if self.parameterisation == "neural":
                raise ValueRangeError("a neural grammar has no EM: set algorithm='gradient'.")
            if self.curriculum is not None:
                raise ValueRangeError("curriculum is for algorithm='gradient': EM sums over all sentences each time.")
        elif self.n_restarts > 1 or self.right_bias:
            raise ValueRangeError("n_restarts and right_bias are for algorithm='em': try several seeds instead.")
        self.priors.check()

    @property
    def priors(self) -> GrammarPriors:
        """The pseudo-counts; words that are their own preterminals have none to learn."""
        emission = 0.0 if self.n_preterminals is None else self.emission_prior
        return GrammarPriors(self.root_prior, self.rule_prior, emission)


def word_table(sentences: Sequence[Sequence[str]], min_count: int) -> Vocabulary:
    """The words, most frequent first, and one symbol for those that are rare or unknown."""
    return Vocabulary.from_sequences(sentences, min_count=min_count, unknown=unknown_word, default=UNKNOWN)


def listed_words(words: list[str]) -> Vocabulary:
    """The same from a list."""
    return Vocabulary(words, unknown=unknown_word, default=UNKNOWN)


def known_words(words: Vocabulary) -> set[str]:
    """The words that have a number of their own."""
    return set(words.items) - {UNKNOWN}


def unknown_word(word: str) -> str:
    """All unknown words are one."""
    return UNKNOWN


def checked(sentences: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Refuse sentences without words."""
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str) or len(sentence) == 0:
            raise DataError(f"sentence {number} must be a list of one word or more, got {sentence!r}.")
    return sentences


def learn(
    sentences: Sequence[Sequence[str]],
    words: Vocabulary,
    settings: PCFGSettings,
    callback: Callback | None,
    checkpoint: str | os.PathLike[str] | None,
) -> tuple[GrammarParameters, EMReport]:
    """Parameters and how they were found."""
    most = np.inf if settings.max_length is None else settings.max_length
    ids = [words.ids(sentence) for sentence in sentences if 2 <= len(sentence) <= most]
    if not ids:
        raise DataError("no sentence to learn from: two words or more are wanted, and at most max_length.")
    identity = settings.n_preterminals is None
    sizes = settings.n_nonterminals, len(words) if identity else settings.n_preterminals or 0, len(words)
    kept = None if checkpoint is None else _checkpoint(checkpoint, settings, ids)
    if settings.algorithm == "em":
        return restarts(
            settings.n_restarts,
            sizes,
            settings.rank,
            text_batches(ids),
            seed=settings.seed,
            probe=settings.probe,
            max_iter=settings.max_iter,
            tol=settings.tol,
            priors=settings.priors,
            right_bias=settings.right_bias,
            identity=identity,
            callback=callback,
            checkpoint=kept,
        )
    return _by_gradient(ids, sizes, settings, callback, kept)


def _by_gradient(
    ids: list[list[int]],
    sizes: tuple[int, int, int],
    settings: PCFGSettings,
    callback: Callback | None,
    checkpoint: Checkpoint | None,
) -> tuple[GrammarParameters, EMReport]:
    import torch

    from trelliswork.models.pcfg.gradient import AdamSettings, train
    from trelliswork.models.pcfg.neural import GrammarModule

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        module = GrammarModule(
            *sizes,
            settings.rank,
            neural=settings.parameterisation == "neural",
            size=settings.embedding_size,
            identity=settings.n_preterminals is None,
        )
    adam = AdamSettings(
        learning_rate=settings.learning_rate, batch_size=settings.batch_size, curriculum=settings.curriculum
    )
    return train(
        module,
        ids,
        adam,
        priors=settings.priors,
        max_iter=settings.max_iter,
        tol=settings.tol,
        seed=settings.seed,
        callback=callback,
        checkpoint=checkpoint,
    )


def _checkpoint(path: str | os.PathLike[str], settings: PCFGSettings, ids: list[list[int]]) -> Checkpoint:
    """The checkpoint of a run on these sentences with these settings; more iterations may be asked for later."""
    plain = {k: v for k, v in asdict(settings).items() if k not in ("max_iter", "tol")}
    tokens: NDArray[np.int64] = np.concatenate([np.array(s, np.int64) for s in ids])
    return Checkpoint(path, fingerprint(plain, tokens, np.array([len(s) for s in ids])))
