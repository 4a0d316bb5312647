"""Wapiti's patterns, files and commands: ``python -m trelliswork.compat.wapiti train -p patterns train.txt model``.

Patterns have the commands ``%x`` (the token), ``%m`` (the first match of a regular expression in it) and ``%t``
(whether there is one); in capitals, without case. Models are folders in our format; ``label`` and ``dump`` also read
Wapiti's own text models.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Corpus, read_columns
from trelliswork.data.columns import write_columns_with
from trelliswork.data.corpus import Column
from trelliswork.data.files import Readable, atomic_write, open_text, shorten, source_name
from trelliswork.errors import ConvergenceWarning, DataError, TrellisworkError, ValueRangeError
from trelliswork.features.templates import Template
from trelliswork.integrations.convert import convert
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import load
from trelliswork.models.crf import CRF

ALGORITHMS = {"l-bfgs": "lbfgs", "sgd-l1": "sgd"}
KINDS = {"u": "U", "b": "B", "*": "UB"}
NAMED = 4  # positions beyond a sequence that have names of their own
_COMMAND = re.compile(
    r'%(?P<command>[xtmXTM])\[(?P<absolute>@?)\s*(?P<row>[-+]?\d{1,4}),\s*(?P<column>\d{1,4})'
    r'(?:,"(?P<regex>(?:\\.|[^"\\])*)")?\]'
)  # fmt: skip
_CLASSES = {"a": "a-zA-Z", "d": "0-9", "l": "a-z", "s": r"\s", "u": "A-Z", "w": "a-zA-Z0-9", "p": r"!-/:-@\[-`{-~"}


class Command(NamedTuple):
    """A command of a pattern, which makes one column."""

    kind: str  # x, m or t
    lower: bool
    absolute: bool
    row: int
    column: int
    regex: str | None

    def values(self, corpus: Corpus) -> Column:
        """Return its result for each token."""
        if self.column >= len(corpus.columns):
            n = len(corpus.columns)
            raise DataError(f"{corpus.source}: a pattern needs column {self.column}, counted from 0, of {n}.")
        column, ids = Column.of(corpus.columns[self.column]), _shifted(self, corpus)
        beyond = [f"_x{sign}{k}" for sign in "-+" for k in (*range(1, NAMED + 1), "#")]
        numbers = np.append(column.ids, 0)[np.maximum(ids, 0)]
        numbers[ids < 0] = len(column.distinct) - 1 - ids[ids < 0]
        return Column.of(Column([*map(self._result, [*column.distinct, *beyond])], numbers).strings)

    def _result(self, token: str) -> str:
        if self.regex is not None:
            found = expression(self.regex).search(token)
            token = ("true" if found else "false") if self.kind == "t" else found.group() if found else ""
        return token.lower() if self.lower else token


def _shifted(command: Command, corpus: Corpus) -> NDArray[np.int64]:
    """Return the token that a command means at each place; beyond the sequence -1 to -5 before it, -6 to -10 after."""
    lengths = np.diff(corpus.offsets)
    first, n = np.repeat(corpus.offsets[:-1], lengths), np.repeat(lengths, lengths)
    place = np.arange(len(first)) - first + command.row
    if command.absolute:  # from 1, or from the end
        place = np.where(command.row < 0, n, -1) + command.row
    beyond = np.where(place < 0, np.minimum(-place, NAMED + 1), NAMED + 1 + np.minimum(place - n + 1, NAMED + 1))
    return np.where((place < 0) | (place >= n), -beyond, first + place)


def expression(text: str) -> re.Pattern[str]:
    r"""Return a regular expression of Wapiti: ``. \a \d \l \p \s \u \w``, capitals for others, ``^ $ * ?``.

    A star takes as little as possible; classes are those of ASCII.
    """
    pieces, made, single = re.findall(r"\\.|.", text.removeprefix("^"), re.DOTALL), "", False
    for n, piece in enumerate(pieces, start=1):
        if piece in ("*", "?"):
            if not single:
                raise ValueRangeError(f"{shorten(text)}: a * or ? must follow a character, or be escaped.")
            made += "*?" if piece == "*" else "?"
        elif piece == "$" and n == len(pieces):
            made += r"\Z"
        elif len(piece) == 2 and piece[1].lower() in _CLASSES:
            made += f"[{'^' * piece[1].isupper()}{_CLASSES[piece[1].lower()]}]"
        else:
            made += "." if piece == "." else re.escape(piece[-1])
        single = piece not in ("*", "?")
    return re.compile((r"\A" if text.startswith("^") else "") + made, re.DOTALL)


class Patterns:
    """A template of Wapiti: patterns as templates over columns, one for each different command."""

    def __init__(self, text: str, source: str = "patterns") -> None:
        self.text, self.templates = text, list[Template]()
        commands: dict[Command, int] = {}
        plain = False  # whether there are weights of pairs of labels
        for number, line in enumerate(text.splitlines(), start=1):
            line = line.partition("#")[0].rstrip()
            if not line:
                continue
            kind, place = line[0].lower(), f"{source}:{number}"
            found = list(_COMMAND.finditer(line))
            right = all((m["regex"] is None) == (m["command"] in "xX") for m in found)
            if kind not in KINDS or line.count("%") - sum((m["regex"] or "").count("%") for m in found) != len(found):
                right = False
            if not right:
                raise DataError(
                    f'{place}: a pattern starts with u, b or *, and has commands such as %x[-1,0] and %m[0,0,"^\\u"], '
                    f"got {shorten(line)}."
                )
            macros = []
            for m in found:
                regex = m["regex"]
                own = Command(
                    m["command"].lower(), m["command"].isupper(), bool(m["absolute"]), int(m["row"]), int(m["column"]),
                    regex,
                )  # fmt: skip
                if regex is not None:
                    try:
                        expression(regex)
                    except ValueRangeError as error:
                        raise DataError(f"{place}: {error}") from None
                macros.append((0, commands.setdefault(own, len(commands))))
            edges = [1, *(at for m in found for at in m.span()), len(line)]
            pieces = [line[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
            for ours in KINDS[kind]:
                plain |= ours == "B"
                if ours == "U" or macros:
                    whole = (kind + pieces[0], *pieces[1:])
                    self.templates.append(Template(f"{ours}{line[1:]}", whole, tuple(macros)))
        self.commands = list(commands)
        if not self.templates or not plain:
            missing = "u or *" if plain else "b or *"
            raise DataError(f"{source}: expected a pattern that starts with {missing}: add one, such as the line b.")

    @classmethod
    def read(cls, path: str | Path) -> "Patterns":
        """Read a file of patterns."""
        with open_text(path) as lines:
            return cls("\n".join(lines), source_name(path))

    def __call__(self, corpus: Corpus) -> Corpus:
        """Return the results of the commands for each token of a corpus."""
        return replace(corpus, columns=[command.values(corpus) for command in self.commands])


class Wapiti:
    """A CRF with patterns.

    Parameters
    ----------
    patterns : Patterns or str
        Or their text.
    rho1, rho2 : float
        The penalty is rho1 |w| + rho2 / 2 |w|^2.
    feature_set : {"all", "observed"}
        Weights for all pairs of attribute and label, as Wapiti has them, or for those that occur, which is faster.
    **options
        Others of `CRF`, such as ``max_iter``.
    """

    def __init__(
        self, patterns: Patterns | str, *, rho1: float = 0.5, rho2: float = 0.0001, feature_set: str = "all",
        **options: Any,
    ) -> None:  # fmt: skip
        self.patterns: Patterns | None = patterns if isinstance(patterns, Patterns) else Patterns(patterns)
        more = {"feature_set": feature_set}
        features = self.patterns.templates
        self.crf = CRF(features, scheme=None, l1=rho1, l2=rho2 / 2, options=more, **options)

    def fit(self, X: Corpus, y: Sequence[Sequence[str]], **options: Any) -> "Wapiti":
        """Train on the columns of a corpus."""
        self.crf.fit(self.columns(X), y, **options)
        return self

    def columns(self, X: Corpus) -> Corpus:
        """Return what the CRF reads: the results of commands, or of a model of Wapiti its columns."""
        return X if self.patterns is None else self.patterns(X)

    def save(self, path: str | Path) -> None:
        """Write the model to a folder."""
        assert self.patterns is not None
        self.crf.input_ = {"format": "wapiti", "patterns": self.patterns.text}
        self.crf.save(path)

    @classmethod
    def load(cls, path: str | Path) -> "Wapiti":
        """Read a folder that ``save`` has written, or a text model of Wapiti."""
        crf: Any = load(path) if Path(path).is_dir() else convert(path)
        if not isinstance(crf, CRF):
            raise DataError(f"{path}: expected a CRF, got {type(crf).__name__}.")
        self = cls.__new__(cls)
        self.crf, text = crf.freeze(), crf.input_.get("patterns")
        self.patterns = None if text is None else Patterns(text, f"{path}: patterns")
        return self

    def weights(self) -> Iterator[tuple[str, str, str, float]]:
        """Yield attribute, label before (``#`` if it does not matter), label and weight; those of 0 are left out."""
        learned, labels = self.crf._learned, self.crf.labels_
        n = len(learned.weights)
        yield from ((name, "#", label, w) for name, label, w in learned.top_features(n, None) if w)
        yield from (row for row in learned.top_edge_features(n) if row[3])
        weights = learned.transitions()
        yield from (("b", labels[i], labels[j], float(weights[i, j])) for i, j in np.argwhere(weights).tolist())


def read(path: Readable) -> tuple[Corpus, list[list[str]]]:
    """Read a training file: the columns of the tokens, and the labels in the last one.

    Lines that are empty or have blanks only end a sequence.
    """
    corpus = read_columns(path)
    if len(corpus.columns) < 2:
        raise DataError(f"{source_name(path)}: expected tokens and, in the last column, labels; got one column.")
    return replace(corpus, columns=corpus.columns[:-1]), corpus.sentences(len(corpus.columns) - 1)


def _train(given: Any) -> None:
    if given.type != "crf" or given.algo not in ALGORITHMS:
        raise ValueRangeError(
            f"--type must be crf and --algo one of {', '.join(ALGORITHMS)}, got {given.type} and {given.algo}: bcd and "
            "rprop minimize what l-bfgs does."
        )
    if given.pattern is None:
        raise ValueRangeError("--pattern is needed: files without patterns have ready attributes, see CRF(None).")
    options: dict[str, Any] = {"algorithm": ALGORITHMS[given.algo], "max_iter": given.maxiter, "tol": given.stopeps}
    model = Wapiti(Patterns.read(given.pattern), rho1=given.rho1, rho2=given.rho2, patience=given.stopwin, **options)
    X, y = read(given.input)
    dev = None
    if given.devel is not None:
        held, gold = read(given.devel)
        dev = (model.columns(held), gold)
    start = None if given.model is None else Wapiti.load(given.model).crf
    say = partial(print, file=sys.stderr)
    model.fit(
        X, y, dev=dev, start=start, callback=lambda s: say(f"[{s.iteration:4}] obj={s.value:<12.2f} act={s.n_active}")
    )
    model.save(given.output)


def _label(given: Any) -> None:
    model = Wapiti.load(given.model)
    corpus = read_columns(given.input, keep_lines=True)
    X = model.columns(corpus)
    with ExitStack() as stack:
        out: TextIO = stack.enter_context(atomic_write(given.output))
        if given.nbest == 1 and not given.score:
            y = model.crf.predict(X, decoding="mbr" if given.post else "viterbi")
            flat = [label for row in y for label in row]
            if given.label:
                out.write("".join("".join(f"{label}\n" for label in row) + "\n" for row in y))
            else:
                write_columns_with(corpus, [flat], out, "\t")
        else:
            _write_ranked(model, corpus, X, given, out)
    if given.check:
        gold = corpus.sentences(len(corpus.columns) - 1)
        print(evaluate_tagging(gold, model.crf.predict(X), scheme=None).summary(), file=sys.stderr)


def _write_ranked(model: Wapiti, corpus: Corpus, X: Corpus, given: Any, out: TextIO) -> None:
    """Write the n best labelings of each sequence with their probabilities."""
    if given.score and not given.post:
        raise ValueRangeError("scores are probabilities: give --post, too.")
    rows = list(zip(*corpus.columns, strict=True))
    ranked = model.crf.predict_topk(X, given.nbest)
    marginals = model.crf.predict_marginals(X) if given.score else [[]] * len(X)
    for (a, b), best, p_of in zip(pairwise(corpus.offsets.tolist()), ranked, marginals, strict=True):
        for rank, (labels, p) in enumerate(best):
            if given.score:
                out.write(f"# {rank} {p:.6f}\n")
            for t, (cells, label) in enumerate(zip(rows[a:b], labels, strict=True)):
                shown = f"{label}/{p_of[t][label]:.6f}" if given.score else label
                out.write(f"{shown}\n" if given.label else "\t".join([" ".join(cells), shown]) + "\n")
            out.write("\n")


def _dump(given: Any) -> None:
    with atomic_write(given.output) as out:
        for name, before, label, weight in Wapiti.load(given.input).weights():
            out.write(f"{name}\t{before}\t{label}\t{weight:.{given.prec}f}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m trelliswork.compat.wapiti", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: Callable[[Any], None], *files: str) -> Any:
        own = commands.add_parser(name)
        own.set_defaults(run=run)
        own.add_argument("input")
        own.add_argument("output", nargs=None if "output" in files else "?", default="-")
        return own.add_argument

    add = command("train", _train, "output")
    for names, kind, default in (
        ("-p --pattern", str, None), ("-d --devel", str, None), ("-m --model", str, None), ("-a --algo", str, "l-bfgs"),
        ("-T --type", str, "crf"), ("-1 --rho1", float, 0.5), ("-2 --rho2", float, 0.0001), ("-i --maxiter", int, None),
        ("-t --nthread", int, None), ("-e --stopeps", float, 1e-5), ("-w --stopwin", int, 20),
    ):  # fmt: skip
        add(*names.split(), type=kind, default=default)
    for names in ("-c --compact", "-s --sparse"):
        add(*names.split(), action="store_true", help="always so here")
    add = command("label", _label)
    add("-m", "--model", required=True)
    add("-n", "--nbest", type=int, default=1)
    for names in ("-l --label", "-c --check", "-s --score", "-p --post"):
        add(*names.split(), action="store_true")
    add = command("dump", _dump)
    add("-p", "--prec", type=int, default=6)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code."""
    import warnings

    from trelliswork.compute.threads import set_num_threads

    given = _parser().parse_args(words)
    if getattr(given, "nthread", None):
        set_num_threads(given.nthread)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # --maxiter is the usual end
            given.run(given)
    except (TrellisworkError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
