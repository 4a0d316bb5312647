"""All experiments by name: paper, content, data, full and quick settings.

Light to import: the module of an experiment is loaded when it runs.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.tables import Say, Table
from trelliswork.errors import DataError, ValueRangeError

Settings = Mapping[str, Any]
PAPERS = {
    0: "A fast variational approach for learning Markov random field language models (Jernite, Rush, Sontag)",
    1: "Learning in conditional random fields (Eisenstein, lecture notes)",
    2: "Sparse forward-backward using minimum divergence beams (Pal, Sutton, McCallum)",
    3: "Variational inference for structured NLP models (Burkett, Klein)",
    4: "Scaling hidden Markov language models (draft of March 2021)",
}
EWT = tuple(f"ud-en-ewt/en_ewt-ud-{part}.conllu" for part in ("train", "dev", "test"))
RAW = ("wikitext-2/wiki.train.tokens", "ptb-lm/ptb.train.txt", "raw-text/*.txt.gz")
CONLL = ("conll2000/train.txt", "conll2000/test.txt")
NAMES = tuple(f"conll2002/{code}.{part}" for code in ("esp", "ned") for part in ("train", "testb"))
SEQUOIA = tuple(f"ud-french-sequoia/fr_sequoia-ud-{part}.conllu" for part in ("train", "dev", "test"))
RECORDS = ("usaddress/train.xml", "probablepeople/person.xml", "anystyle/core.xml")


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Its function takes the folder of the data, if it needs any, the settings and ``say``, and returns a `Table`.
    """

    name: str  # of the command, such as "nettalk"
    paper: int  # a key of PAPERS
    about: str  # content, in one line
    function: str  # "module:function"
    folder: str | None = None  # of its data within that of all data ("": that folder itself); None if it needs none
    files: tuple[str, ...] = ()  # required files, as patterns within the folder
    full: Settings = field(default_factory=dict)  # settings of the reproduction
    small: Settings = field(default_factory=dict)  # settings that differ in a quick run
    minutes: float = 1.0  # approximate time on two cores with the full settings

    def settings(self, quick: bool, given: Settings | None = None) -> dict[str, Any]:
        """Return the full or quick settings, replaced by those in ``given`` that are not ``None``."""
        chosen = {**self.full, **(self.small if quick else {})}
        return chosen | {key: value for key, value in (given or {}).items() if value is not None}

    def locate(self, data: str | Path) -> Path:
        """Return its folder within ``data``, or ``data`` itself if there is no such folder."""
        inside = Path(data) / (self.folder or "")
        return inside if inside.is_dir() else Path(data)

    def missing(self, data: str | Path | None) -> list[str]:
        """Return the required files that are missing, with the name of their folder."""
        if self.folder is None:
            return []
        wanted = [f"{self.folder}/{name}".lstrip("/") for name in self.files]
        if not data:
            return wanted
        place = self.locate(data)
        return [shown for shown, name in zip(wanted, self.files, strict=True) if not any(place.glob(name))]

    def run(
        self,
        data: str | Path | None = None,
        *,
        quick: bool = False,
        given: Settings | None = None,
        say: Say = lambda _: None,
    ) -> Table:
        """Compute the table from ``data``, the folder of all data sets or of the one that is needed.

        Quick runs use the small settings, and mark the table and the notes of its figures; ``given`` overrides both.
        """
        if self.folder is not None and not data:
            raise DataError(f"{self.name} needs {', '.join(self.missing(None))}: pass the folder with the data.")
        module, _, name = self.function.partition(":")
        function: Callable[..., Table] = getattr(importlib.import_module(module), name)
        place = () if self.folder is None or data is None else (self.locate(data),)
        table = function(*place, **self.settings(quick, given), say=say)
        if not quick:
            return table
        small = {key: value for key, value in self.settings(True, given).items() if value != self.full.get(key)}
        return table.quick(describe(small))


def describe(settings: Settings) -> str:
    """Return settings as text such as ``max_iter=15, parts=k1 lbl``."""
    shown = {key: value for key, value in settings.items() if value is not None}
    return ", ".join(
        f"{key}={' '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for key, value in shown.items()
    )


def find(name: str) -> Experiment:
    """Return the experiment of that name."""
    for experiment in EXPERIMENTS:
        if experiment.name == name:
            return experiment
    raise ValueRangeError(f"no experiment is called {name!r}; there are {', '.join(e.name for e in EXPERIMENTS)}.")


ROOM = "experiments"
EXPERIMENTS: tuple[Experiment, ...] = (  # in the order of the papers
    Experiment(
        "mrf-exact", 0, "exact against lifted training on a tiny text (figure 5)", f"{ROOM}.mrf_exact:mrf_exact",
        full={"n_positions": 12, "n_words": 4, "max_iter": 100, "seed": 0},
        small={"max_iter": 20}, minutes=0.2,
    ),
    Experiment(
        "mrf-ptb", 0, "bounds of the lifted language model (figure 6)", f"{ROOM}.mrf_ptb:mrf_ptb",
        "ptb-lm", ("ptb.train.txt", "ptb.valid.txt"),
        full={"parts": ("k1", "chain", "weighted", "from-k1", "star", "full", "lbl", "kn"), "rank": 30, "l2": 2.5,
              "max_iter": 150, "estimates": True, "seed": 0},
        small={"quick": True, "parts": ("k1", "weighted", "star", "lbl", "kn"), "rank": 10, "max_iter": 15}, minutes=20,
    ),
    Experiment(
        "mrf-neighbors", 0, "nearest words by three kinds of embeddings (table 1), and ratings of word pairs",
        f"{ROOM}.mrf_neighbors:mrf_neighbors", "ptb-lm", ("ptb.train.txt", "ptb.valid.txt"),
        full={"parts": ("neighbors", "similarity"), "rank": 30, "minutes": 4.0}, minutes=20,
        small={"words": ("company", "has", "dollar"), "rank": 10, "minutes": 0.05, "max_words": 1500,
               "n_sentences": 5000},
    ),
    Experiment(
        "mrf-tagging", 0, "the Markov random field tagger against HMMs (table 2)", f"{ROOM}.mrf_tagging:mrf_tagging",
        "", (*CONLL, *EWT),
        full={"datasets": ("conll2000", "ud-en-ewt"), "n_words": (1, 3), "max_iter": 60, "l2": 0.5},
        small={"n_words": (1,), "max_iter": 8, "n_sentences": 500}, minutes=2,
    ),
    Experiment(
        "chain-tagging", 1, "parts of speech by HMMs and a CRF", f"{ROOM}.chain_tagging:chain_tagging",
        "", (*CONLL, *EWT),
        full={"datasets": ("ud-en-ewt", "conll2000"), "l2": 1.0, "max_iter": 100},
        small={"max_iter": 15, "n_sentences": 1000}, minutes=1,
    ),
    Experiment(
        "chain-induction", 1, "parts of speech induced from words by EM", f"{ROOM}.chain_tagging:chain_induction",
        "ud-en-ewt", ("en_ewt-ud-train.conllu",),
        full={"n_states": 45, "max_iter": 200, "n_restarts": 5, "seed": 0},
        small={"n_states": 20, "max_iter": 20, "n_restarts": 1, "n_sentences": 2000}, minutes=0.5,
    ),
    Experiment(
        "active-learning", 1, "labels that a CRF needs if it chooses the sentences, against random choice",
        f"{ROOM}.chain_tagging:active_learning", "ud-en-ewt", ("en_ewt-ud-train.conllu", "en_ewt-ud-test.conllu"),
        full={"target": 93.0, "by": ("random", "entropy", "expected-gain"), "first": 100, "growth": 1.2, "l2": 0.1,
              "max_iter": 60, "n_seeds": 3, "seed": 0},
        small={"target": 80.0, "n_sentences": 1500, "growth": 1.6, "max_iter": 15, "n_seeds": 1,
               "by": ("random", "expected-gain")},
        minutes=25,
    ),
    Experiment(
        "labeling", 1, "clicks of a simulated annotator of names, with and without the help of the labeling page",
        f"{ROOM}.labeling:labeling", "conll2002", ("esp.train", "esp.testa"),
        full={"targets": (65.0, 70.0), "n_seeds": 3, "max_sentences": 4_000, "seed": 0},
        small={"targets": (40.0,), "n_seeds": 1, "max_sentences": 60, "n_test": 300}, minutes=20,
    ),
    Experiment(
        "representations", 1, "little labeled data: a tagger with clusters and vectors of words from raw text",
        f"{ROOM}.chain_tagging:representations", "", (*EWT, *RAW),
        full={"sizes": (100, 300, 1000, 3000), "n_clusters": 1000, "n_words": 50_000, "n_dims": 100, "l2": 1.0,
              "max_iter": 100},
        small={"sizes": (100, 300), "n_clusters": 100, "n_words": 5000, "n_dims": 30, "max_iter": 30,
               "max_sentences": 20_000}, minutes=8,
    ),
    Experiment(
        "calibration", 1, "calibration errors of taggers before and after a temperature, and decisions about spans",
        f"{ROOM}.confidence:calibration", "", (*CONLL, *EWT),
        full={"max_iter": 80, "max_iter_joint": 50},
        small={"max_iter": 10, "max_iter_joint": 5, "n_sentences": 300}, minutes=5,
    ),
    Experiment(
        "fields", 1, "fields of addresses, names and references: accuracy, probabilities, accepted records",
        f"{ROOM}.fields:fields", "records", RECORDS, full={"n_folds": 5}, small={"n_sentences": 150}, minutes=2,
    ),
    Experiment(
        "word-knowledge", 1, "what clusters add to taggers and chunkers; names with clusters and a learned lexicon",
        f"{ROOM}.confidence:knowledge", "", (*EWT, *CONLL, *NAMES, *RAW),
        full={"n_clusters": 1000, "max_iter": 100},
        small={"n_clusters": 50, "max_iter": 10, "n_sentences": 300, "max_sentences": 5000}, minutes=8,
    ),
    Experiment(
        "beams-decoding", 2, "states that beams need for the exact Viterbi path (section 4.1)",
        f"{ROOM}.beams:decoding",
        full={"n_models": 5, "n_sequences": 100, "n_states": 100, "n_symbols": 1000, "seed": 0},
        small={"n_models": 1, "n_sequences": 20}, minutes=0.1,
    ),
    Experiment(
        "beams-training", 2, "CRF training within beams (figure 1)", f"{ROOM}.beams:training",
        full={"n_sequences": 50, "n_states": 100, "l2": 0.003, "max_iter": 200, "seed": 0},
        small={"n_sequences": 15, "n_states": 40, "max_iter": 40}, minutes=1,
    ),
    Experiment(
        "nettalk", 2, "letters to phonemes by exact CRFs and within beams (figure 2)", f"{ROOM}.nettalk:nettalk",
        "nettalk", ("nettalk.data",),
        full={"orders": (1, 2), "exact_second": False, "max_iter": 100, "l2": 0.5, "seed": 0},
        small={"n_words": 1000, "max_iter": 25}, minutes=3,
    ),
    Experiment(
        "factorial", 3, "joint parts of speech and chunks, against two CRFs", f"{ROOM}.factorial:factorial",
        "conll2000", ("train.txt", "test.txt"),
        full={"sizes": (200, 1000, 0), "engines": ("bp",), "l2": 1.0}, small={"sizes": (200,)}, minutes=8,
    ),
    Experiment(
        "bp-parsing", 3, "dependency parsers of the first and second order", f"{ROOM}.bp_parsing:bp_parsing",
        "ud-en-ewt", ("*-ud-train.conllu", "*-ud-test.conllu"),
        full={"orders": (1, 2), "n_sentences": 0, "seed": 0}, small={"n_sentences": 1000}, minutes=2,
    ),
    Experiment(
        "parser-confidence", 3, "second-order parsers: accuracy, calibration, predicted tags, clusters",
        f"{ROOM}.confidence:parsers", "", (*EWT, *SEQUOIA, *RAW),
        full={"n_clusters": 1000},
        small={"n_clusters": 50, "n_sentences": 200, "max_sentences": 5000, "rows": ("EWT, gold tags",)}, minutes=15,
    ),
    Experiment(
        "bp-accuracy", 3, "second-order belief propagation against enumeration", f"{ROOM}.bp_accuracy:bp_accuracy",
        full={"n_models": 200, "projective": True, "seed": 0}, small={"n_models": 20}, minutes=0.1,
    ),
    Experiment(
        "bp-marginals", 3, "marginals of trained second-order parsers by variants of belief propagation",
        f"{ROOM}.bp_marginals:bp_marginals",
        full={"n_train": 1000, "n_test": 120, "n_sweeps": 5000, "calibrated": False, "seed": 0},
        small={"n_train": 60, "n_test": 8, "n_sweeps": 200}, minutes=1,
    ),
    Experiment(
        "bp-cost", 3, "cost of second-order against first-order inference", f"{ROOM}.bp_accuracy:bp_cost",
        full={"n_sentences": 32, "seed": 0},
        small={"n_sentences": 8, "lengths": (10, 20, 40), "n_repeats": 3, "n_train": 100}, minutes=0.2,
    ),
    Experiment(
        "kernel-hmm", 4, "perplexity of HMM language models by states and rank", f"{ROOM}.kernel_hmm:kernel_hmm",
        "ptb-lm", ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
        full={"sizes": ("128", "256", "512", "1024", "1024/64", "1024/256", "4096/256"), "max_iter": 2,
              "max_minutes": 30.0, "n_sentences": 0, "kneser_ney": True, "seed": 0},
        small={"sizes": ("32", "128/32"), "max_iter": 1, "n_sentences": 2000}, minutes=32,
    ),
    Experiment(
        "large-hmm", 4, "perplexity of HMM language models with 2^15 states in blocks", f"{ROOM}.large_hmm:large_hmm",
        "ptb-lm", ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
        full={"sizes": (32768,), "max_iter": 11, "n_sentences": 0, "kneser_ney": True, "seed": 0},
        small={"sizes": (8192,), "max_iter": 10}, minutes=30,
    ),
    Experiment(
        "kernel-features", 4, "approximations of the exponential kernel, by features",
        f"{ROOM}.kernel_features:kernel_features",
        full={"features": (16, 64, 256, 1024), "n_states": 256, "n_dims": 8, "norm": 1.5, "seed": 0},
        small={"features": (16, 64), "n_states": 64}, minutes=0.2,
    ),
    Experiment(
        "low-rank-pcfg", 4, "low-rank grammars: cost, perplexity and induced trees",
        f"{ROOM}.low_rank_pcfg:low_rank_pcfg", "treebank-sample/combined", ("*.mrg",),
        full={"parts": ("cost", "perplexity", "induction"), "ranks": (4, 8, 16, 32, 64), "n_seeds": 5, "max_iter": 40,
              "seed": 0},
        small={"parts": ("perplexity", "induction"), "ranks": (4, 16), "n_seeds": 1, "max_iter": 5}, minutes=2,
    ),
)  # fmt: skip
