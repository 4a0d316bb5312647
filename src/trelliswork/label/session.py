"""A session of labeling: what is labeled, who has which sentence, and answers given what an annotator has fixed."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Event, RLock
from typing import Any

from trelliswork.answers import Want, ask, layer_labels
from trelliswork.data.files import remove_leftovers
from trelliswork.errors import DataError, ImpossibleError, ValueRangeError
from trelliswork.label.journal import Journal
from trelliswork.label.pool import OUTSIDE, Labels, Pool, record, spans_of, write_records

HELD = 5  # each so many sentences one is drawn at random, and its labels are for the estimate alone
LEASE = 600.0  # seconds that a sentence is kept for the person who has it
LONGEST = 6  # words of a phrase that is labeled as before
MAX_LABEL = 64  # characters
MAX_OPTIONS = 5  # labels that are shown for a word
STATES = ("done", "part", "skip")


@dataclass
class Saved:
    """An answer about a sentence; ``state`` is done, part (some labels are open) or skip."""

    labels: Labels
    state: str
    who: str = ""
    held: bool = False


class Phrases:
    """The labels of phrases so far. A phrase that always had the same label is labeled so again."""

    def __init__(self, spans: bool) -> None:
        self._spans = spans
        self._kinds: dict[tuple[str, ...], Counter[str]] = {}
        self._outside: Counter[str] = Counter()

    def count(self, words: Sequence[str], labels: Labels, sign: int = 1) -> None:
        """Add the phrases of a labeled sentence, or take them away with ``sign`` -1."""
        if not self._spans:
            for word, label in zip(words, labels, strict=True):
                if label is not None:
                    self._kinds.setdefault((word,), Counter())[label] += sign
            return
        for kind, start, stop in spans_of(labels):
            self._kinds.setdefault(tuple(words[start:stop]), Counter())[kind] += sign
        for word, label in zip(words, labels, strict=True):
            self._outside[word] += sign * (label == OUTSIDE)

    def labels(self, words: Sequence[str]) -> Labels:
        """Return the labels of words in known phrases, longest first; ``None`` for the others."""
        found: Labels = [None] * len(words)
        t = 0
        while t < len(words):
            n = LONGEST if self._spans else 1
            for stop in range(min(len(words), t + n), t, -1):
                phrase = tuple(words[t:stop])
                kinds = +self._kinds.get(phrase, Counter[str]())
                sure = kinds.total() > (0 if self._spans else 1) and not self._outside[words[t]]
                if len(kinds) == 1 and sure:
                    (kind,) = kinds
                    found[t:stop] = [f"B-{kind}", *[f"I-{kind}"] * (stop - t - 1)] if self._spans else [kind]
                    t = stop - 1
                    break
            t += 1
        return found


class Session:
    """Sentences, the answers so far, and the model that a `Loop` replaces.

    Parameters
    ----------
    pool : Pool
        Sentences; those with labels count as answered.
    out : Path
        Output in JSON lines. Its journal is beside it, with ``.journal`` at the end of the name.
    labels : sequence of str
        Types of spans, or tags, beside those of the pool and the model.
    model : tagger, optional
        Answers until a model of the answers is better.
    """

    def __init__(self, pool: Pool, out: Path, labels: Sequence[str] = (), model: Any = None) -> None:
        self.journal_path = out.with_name(f"{out.name}.journal")
        if out.exists() and not self.journal_path.exists():
            raise DataError(f"{out}: exists, but was not written from a journal beside it. Choose another --out.")
        self.pool, self.out, self.given, self.model = pool, out, model, model
        self.spans = pool.task == "spans"
        self.journal = Journal(
            self.journal_path, {"pool": pool.digest, "sentences": len(pool), "task": pool.task, "version": 1}
        )
        remove_leftovers(out)
        self.lock, self.wake = RLock(), Event()
        self.answers: dict[int, Saved] = {}
        self.labels: list[str] = []
        self.phrases = Phrases(self.spans)
        self.queue: deque[int] = deque()  # chosen by the loop
        self.curve: list[dict[str, Any]] = []
        self.doubts: list[dict[str, Any]] = []  # answers that a confident model contradicts
        self.clicks, self.fresh, self.version = 0, 0, 0
        self.dirty, self.trouble = False, ""
        self._leases: dict[int, tuple[str, float]] = {}
        self._drawn: set[int] = set()  # at random, for the estimate
        self._served = 0
        self._random = Random(pool.digest)
        self._order = list(range(len(pool)))
        self._random.shuffle(self._order)
        names = [] if model is None else layer_labels(model)[""]
        if self.spans and any(name != OUTSIDE and name[:2] not in ("B-", "I-") for name in names):
            raise DataError("--model must have labels in BIO for --task spans: train it with --scheme bio.")
        for label in [*labels, *(self._kind(name) for name in names if name != OUTSIDE or not self.spans)]:
            self._name(label)
        for n, own in enumerate(pool.labels):
            if own is not None:
                self._set(n, Saved(own, "done" if None not in own else "part"))
        for entry in self.journal.entries:
            if "sentence" in entry:
                self._set(entry["sentence"], Saved(*(entry[name] for name in ("labels", "state", "who", "held"))))
                self.clicks += entry["clicks"]
            else:
                self.curve.append(entry)

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _kind(self, label: str) -> str:
        """Return the type of a label of spans, or a tag."""
        return label[2:] if self.spans else label

    def _name(self, kind: str) -> None:
        """Add a type or tag that is new."""
        if kind in self.labels:
            return
        if not kind or len(kind) > MAX_LABEL or kind.split() != [kind] or kind == "_":
            raise ValueRangeError(f"a label must be 1 to {MAX_LABEL} characters without spaces, got {kind[:80]!r}.")
        self.labels.append(kind)

    def _set(self, n: int, saved: Saved) -> None:
        old = self.answers.get(n)
        if old is not None:
            self.phrases.count(self.pool.words[n], old.labels, -1)
        for label in saved.labels:
            if label is not None and not (self.spans and label == OUTSIDE):
                self._name(self._kind(label))
        if saved.state == "skip":
            saved.labels = [None] * len(self.pool.words[n])
        self.phrases.count(self.pool.words[n], saved.labels)
        self.answers[n] = saved
        self._leases.pop(n, None)

    def check_number(self, n: Any) -> int:
        """Return the number of a sentence; anything else is an error."""
        if type(n) is not int or not 0 <= n < len(self.pool):
            raise ValueRangeError(f"sentence must be a number from 0 to {len(self.pool) - 1}, got {n!r}.")
        return n

    def check(self, n: Any, labels: Any) -> tuple[int, Labels]:
        """Return the number of a sentence and labels as they should be; anything else is an error."""
        size = len(self.pool.words[self.check_number(n)])
        if not isinstance(labels, list) or len(labels) != size:
            raise ValueRangeError(f"labels must be a list of {size}, null where nothing is fixed.")
        open_type = ""
        for label in labels:
            if label is not None and not isinstance(label, str):
                raise ValueRangeError(f"a label must be a string or null, got {label!r}.")
            kind = "" if label in (None, OUTSIDE) or not self.spans else label[2:]
            inside = label is not None and label.startswith("I-")
            if self.spans and label not in (None, OUTSIDE) and (label[:2] not in ("B-", "I-") or not kind):
                raise ValueRangeError(f"a label of spans must be O, B-TYPE or I-TYPE, got {label!r}.")
            if self.spans and inside and kind != open_type:
                raise ValueRangeError(f"{label} must follow B-{kind} or I-{kind}.")
            open_type = kind
        return n, labels

    def save(self, n: int, labels: Labels, state: str, who: str = "", clicks: int = 0) -> None:
        """Save an answer: when this returns, it is on the disk."""
        if state not in STATES:
            raise ValueRangeError(f"state must be one of {', '.join(STATES)}, got {state!r}.")
        if state == "done" and None in labels:
            raise ValueRangeError("a sentence is done when all of its words have labels, got null for some.")
        with self.lock:
            for label in labels:
                if label is not None and not (self.spans and label == OUTSIDE):
                    self._name(self._kind(label))
            old = self.answers.get(n)
            held = n in self._drawn or (old is not None and old.held)
            entry = {"sentence": n, "labels": labels, "state": state, "who": who, "held": held, "clicks": clicks}
            self.journal.append(entry | {"time": round(time.time(), 3)})
            self._set(n, Saved(list(labels), state, who, held))
            self.clicks += clicks
            self.fresh += 1
            self.dirty = True
        self.wake.set()

    def write(self) -> None:
        """Write the output."""
        with self.lock:
            rows = sorted((n, saved.labels, saved.state) for n, saved in self.answers.items() if saved.state != "skip")
            self.dirty = False
        try:
            write_records(self.out, (record(self.pool, n, labels, state == "done") for n, labels, state in rows))
        except BaseException:
            self.dirty = True
            raise

    # ---- sentences --------------------------------------------------------------------------------------------------

    def next(self, who: str = "") -> int | None:
        """Return the sentence that a person labels next, for that person alone; ``None`` if all are labeled."""
        with self.lock:
            now = time.monotonic()
            self._leases = {n: lease for n, lease in self._leases.items() if lease[1] > now}
            own = next((n for n, (name, _) in self._leases.items() if name == who), None)
            if own is not None:
                return own
            self._served += 1
            drawn = self._served % HELD == 0 or not self.queue
            n = self._pop(self.queue) if not drawn else None
            if n is None:
                n = self._pop_random()
                if n is not None and self._served % HELD == 0:
                    self._drawn.add(n)
            if n is not None:
                self._leases[n] = who, now + LEASE
            return n

    def _free(self, n: int) -> bool:
        return n not in self.answers and n not in self._leases

    def _pop(self, queue: deque[int]) -> int | None:
        while queue:
            n = queue.popleft()
            if self._free(n):
                return n
        return None

    def _pop_random(self) -> int | None:
        while self._order and self._order[-1] in self.answers:
            self._order.pop()
        return next((n for n in reversed(self._order) if self._free(n)), None)

    def candidates(self, most: int) -> list[int]:
        """Return sentences without labels, in random order: no more than ``most``."""
        with self.lock:
            some: list[int] = []
            for n in reversed(self._order):
                if n not in self.answers:
                    some.append(n)
                    if len(some) == most:
                        break
            return some

    def sentence(self, n: int) -> dict[str, Any]:
        """Return a sentence: its words, the labels that are saved, or those of phrases that were labeled before."""
        with self.lock:
            words, saved = self.pool.words[n], self.answers.get(n)
            before = self.phrases.labels(words) if saved is None else [None] * len(words)
            labels = before if saved is None else saved.labels
            state = "" if saved is None else saved.state
        same = [label is not None for label in before]
        return {"sentence": n, "words": words, "labels": labels, "same": same, "state": state}

    def answer(self, n: int, labels: Labels) -> dict[str, Any]:
        """Return the most probable labels of a sentence given those that are fixed, with probabilities."""
        words, model = self.pool.words[n], self.model
        if model is None:
            plain = [label if label is not None else OUTSIDE if self.spans else None for label in labels]
            found = [{"type": k, "start": a, "stop": b, "p": None} for k, a, b in spans_of(plain) if self.spans]
            return {"labels": plain, "p": [None] * len(words), "options": [[] for _ in words], "spans": found}
        names = set(layer_labels(model)[""])
        known = evidence(labels, self.spans, names)
        want = Want(outcomes=True, spans=self.spans)
        try:
            (given,) = ask(model, [words], want, known=[known])
        except ImpossibleError:  # for a model that rules labels out: the person is right
            (given,) = ask(model, [words], want)
        best = [label if label is not None else own for label, own in zip(labels, given.value, strict=True)]
        if self.spans:
            best = _well_formed(best)
        fixed = [label is not None for label in labels]
        p = [1.0 if own else row.get(label, 0.0) for own, row, label in zip(fixed, given.outcomes, best, strict=True)]
        options = [sorted(row.items(), key=lambda one: -one[1])[:MAX_OPTIONS] for row in given.outcomes]
        by_place = {(span.start, span.stop, span.type): q for span, q in given.spans or ()}
        spans = [
            {"type": k, "start": a, "stop": b, "p": 1.0 if all(fixed[a:b]) else by_place.get((a, b, k), min(p[a:b]))}
            for k, a, b in (spans_of(best) if self.spans else ())
        ]
        return {
            "labels": best, "p": [round(q, 4) for q in p], "spans": spans,
            "options": [[[label, round(q, 4)] for label, q in row if q >= 0.0005] for row in options],
        }  # fmt: skip

    def status(self) -> dict[str, Any]:
        """Return what the page says beside the sentence."""
        with self.lock:
            states = Counter(saved.state for saved in self.answers.values())
            return {
                "task": self.pool.task, "labels": self.labels, "sentences": len(self.pool), "clicks": self.clicks,
                **{state: states[state] for state in STATES}, "version": self.version, "curve": self.curve[-200:],
                "doubts": self.doubts, "model": self.model is not None, "trouble": self.trouble,
            }  # fmt: skip

    def listed(self, query: str, most: int = 100) -> list[dict[str, Any]]:
        """Return labeled sentences with a text, the last ones first."""
        found: list[dict[str, Any]] = []
        with self.lock:
            for n in reversed(self.answers):
                saved, text = self.answers[n], " ".join(self.pool.words[n])
                kinds = " ".join(sorted({self._kind(label) for label in saved.labels if label not in (None, OUTSIDE)}))
                if query.lower() in f"{text} {kinds} {saved.who}".lower():
                    found.append(
                        {"sentence": n, "text": text[:200], "state": saved.state, "kinds": kinds, "who": saved.who}
                    )
                    if len(found) == most:
                        break
        return found


def evidence(labels: Labels, spans: bool, names: set[str]) -> list[Any]:
    """Return labels as ``fit`` and ``known=`` take them: a span that is fixed ends where it ends.

    ``names`` are the labels of the model: one that it does not know is no evidence, nor is the rest of its span.
    """
    known: list[Any] = [label if label in names else None for label in labels]
    if not spans:
        return known
    for _, start, stop in spans_of(labels):
        if None in known[start:stop]:
            known[start:stop] = [None] * (stop - start)
    for t, (before, label) in enumerate(pairwise(labels), start=1):
        if label is None and before not in (None, OUTSIDE):
            known[t] = names - {f"I-{before[2:]}"}
    return known


def _well_formed(labels: Labels) -> Labels:
    """Return labels in BIO whose I follows a label of its type."""
    out: Labels = []
    for t, label in enumerate(labels):
        wrong = label is not None and label[:2] == "I-" and (t == 0 or out[-1] is None or out[-1][2:] != label[2:])
        out.append(f"B-{label[2:]}" if wrong and label is not None else label)
    return out
