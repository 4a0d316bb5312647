"""Language models on the page: score sentences, fill blanks, next words, random sentences, neighbors of words."""

import math
from collections.abc import Callable
from typing import Any

from trelliswork.data.vocabulary import END
from trelliswork.explore.abilities import Abilities, Answer, layer_answer, plain
from trelliswork.explore.requests import BLANKS, Body, RequestError, TokenReader
from trelliswork.models.tasks import NextWord, Ranked, Tagger, TreeParser
from trelliswork.report.learned import embeddings, neighbors

MAX_WORDS = 200
MAX_ANSWERS = 50  # words in a list
MAX_SAMPLES = 50
MAX_SAMPLE_LENGTH = 200
MAX_LINES = 20  # sentences that are scored at once
MAX_SEED = 2**31 - 1
SIZES = {"order": "order", "context_size": "context size", "rank": "rank", "n_states_": "states"}


class TextExplorer:
    """A language model; it offers what its class has."""

    def __init__(self, model: Any, reader: TokenReader | None = None) -> None:
        self.model = model
        self.reader = reader or TokenReader(max_words=MAX_WORDS)
        self.any_word = hasattr(model, "log_conditional")  # whether a blank in a sentence to score is any word
        states = hasattr(model, "predict_marginals") and not isinstance(model, Tagger | TreeParser)
        offered: dict[str, tuple[bool, Callable[[Body], Answer]]] = {
            "fill": (True, self.fill),
            "next": (isinstance(model, NextWord), self.next),
            "score": (True, self.score),
            "sample": (True, self.sample),
            "neighbors": (embeddings(model) is not None, self.neighbors),
            "tag": (states, self.states),
        }
        self.abilities: Abilities = {name: answer for name, (has, answer) in offered.items() if has}

    def facts(self) -> Answer:
        """Return the sizes of the model."""
        about = []
        for name, title in SIZES.items():
            value = getattr(self.model, name, None)
            if isinstance(value, int) and not (name == "rank" and getattr(self.model, "form", "") == "full"):
                about.append([title, f"{value:,}"])
        layers = [{"name": "state", "labels": self._state_names()}] if "tag" in self.abilities else []
        return {"about": about, "layers": layers, "evidence": False, "word": self._word(), "any_word": self.any_word}

    def score(self, body: Body) -> Answer:
        """Return log p of each line, and its perplexity per token (the end counts if it is an event)."""
        lines = [line for line in body.text("text").splitlines() if line.strip()]
        body.close()
        if len(lines) > MAX_LINES:
            raise RequestError("the text", f"at most {MAX_LINES} sentences, one per line", f"{len(lines)} lines")
        read = [self.reader.read(line, blanks=self.any_word) for line in lines]
        values = self.model.log_evidence([tokens for tokens, _ in read]).tolist()
        has_end = bool(getattr(self.model, "end", True))
        answers = []
        for (_, words), value in zip(read, values, strict=True):
            mean = -value / (len(words) + has_end)
            perplexity = math.exp(mean) if mean < 700 else math.inf
            answers.append({"words": words, "log_p": plain(value), "perplexity": plain(perplexity)})
        kind, bound = getattr(self.model, "evidence_kind", "exact"), getattr(self.model, "evidence_bound", None)
        return {"sentences": answers, "kind": kind, "bound": bound}

    def fill(self, body: Body) -> Answer:
        """Return the most probable words of each blank, given all other words."""
        tokens, words = self.reader.read(body.text("sentence"), blanks=True)
        n = body.whole("n", 10, 1, MAX_ANSWERS)
        body.close()
        blanks = [t for t, token in enumerate(tokens) if token is None]
        if not blanks:
            raise RequestError("the sentence", f"at least one blank {BLANKS[0]}", "no blank")
        lists = zip(blanks, self.model.fill(tokens, n), strict=True)
        return {"words": words, "blanks": [{"token": t, "words": _ranked(row)} for t, row in lists]}

    def next(self, body: Body) -> Answer:
        """Return the most probable next words, and the probability of the end."""
        tokens, words = self.reader.read(body.text("sentence"))
        n = body.whole("n", 10, 1, MAX_ANSWERS)
        body.close()
        ranked = self.model.predict_next(tokens, len(self.model.vocabulary_) + 1)
        following = [(word, p) for word, p in ranked if word != END]
        return {"words": words, "next": _ranked(following[:n]), "end": plain(dict(ranked).get(END, 0.0))}

    def sample(self, body: Body) -> Answer:
        """Return random sentences; the same seed gives the same ones."""
        n = body.whole("n", 5, 1, MAX_SAMPLES)
        seed = body.whole("seed", 0, 0, MAX_SEED)
        options = {"seed": seed, "max_length": body.whole("max_length", 40, 2, MAX_SAMPLE_LENGTH)}
        body.close()
        if hasattr(self.model, "sample_with_states"):
            pairs = self.model.sample_with_states(n, **options)
        else:
            pairs = [(words, None) for words in self.model.sample(n, **options)]
        answers = [{"words": [str(word) for word in words], "states": states} for words, states in pairs]
        return {"sentences": answers, "seed": seed}

    def neighbors(self, body: Body) -> Answer:
        """Return the words with the most similar vectors."""
        word = body.text("word").strip()
        n = body.whole("n", 10, 1, MAX_ANSWERS)
        body.close()
        vocabulary = self.model.vocabulary_
        if word not in vocabulary or vocabulary.id(word) == 0:
            raise RequestError("the word", f"one of the {len(vocabulary) - 1:,} words of the model", word)
        near = neighbors(self.model, word, n)
        return {"word": word, "neighbors": [{"word": other, "cosine": plain(cosine)} for other, cosine in near]}

    def states(self, body: Body) -> Answer:
        """Return path and marginals of hidden states; evidence cannot be given."""
        words = self.reader.words(body.text("sentence"))
        body.whole("k", 1, 1, 1)
        body.close()
        (path,) = self.model.predict([words])
        (rows,) = self.model.predict_marginals([words])
        names = self._state_names()
        marginals = [dict(zip(names, row.tolist(), strict=True)) for row in rows]
        layer = layer_answer("state", names, (path, marginals), None)
        return {"words": words, "kind": "exact", "layers": [layer], "best": []}

    def _state_names(self) -> list[str]:
        return [f"#{z}" for z in range(self.model.n_states_)]

    def _word(self) -> str:
        """Return a first word for neighbors: a frequent one of some length."""
        if "neighbors" not in self.abilities:
            return ""
        items = self.model.vocabulary_.items[1:400]
        return next((word for word in items if len(word) > 3 and word.isalpha()), items[0] if items else "")


def _ranked(words: Ranked) -> list[Answer]:
    return [{"word": str(word), "p": plain(p)} for word, p in words]
