"""Grammars with probabilities from embeddings with residual networks, and their training by Adam.

This is the N-PCFG of Kim, Dyer and Rush (2019): rule probabilities are computed from symbol
embeddings by shared networks, and maximum likelihood gives much better trees than with free parameters. At low rank,
the three factors are networks of the same embeddings (Yang, Zhao and Tu, 2021; Chiu, Deng and Rush, 2021).
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from trelliswork.compute.torch_threads import one_thread
from trelliswork.inference.span.autograd import grammar_log_partition, lowrank_log_partition
from trelliswork.learning.descent import descend
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Watch
from trelliswork.models.pcfg.objective import GrammarParameters, TextBatch
from trelliswork.models.pcfg.training import GrammarPriors, log_prior

GAIN_EPOCHS = 3  # epochs that together must gain enough
BETAS = 0.75, 0.999  # decay of the running means of Adam: those of Chiu, Deng and Rush (2021)
CLIP = 3.0  # maximum norm of a gradient
Named = dict[str, Tensor]  # the arrays of `GrammarParameters` as tensors


def log_evidence(grammar: Named, batch: TextBatch) -> Tensor:
    """Return log p (B,) of the sentences of a batch in float64."""
    log_terminals = grammar["log_emission"].T[torch.from_numpy(batch.ids)]
    log_root, lengths = grammar["log_root"], torch.from_numpy(batch.lengths)
    if "log_rules" in grammar:
        return grammar_log_partition(log_root, grammar["log_rules"], log_terminals, None, lengths)
    log_up, log_left, log_right = grammar["log_up"], grammar["log_left"], grammar["log_right"]
    return lowrank_log_partition(log_root, log_up, log_left, log_right, log_terminals, lengths)


class _Residual(nn.Module):
    """x + relu(L2 relu(L1 x))."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.second(torch.relu(self.first(x))))


def _network(size: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, size), _Residual(size), _Residual(size), nn.Linear(size, n_out))


class GrammarModule(nn.Module):
    """Torch module that computes a grammar; without a ``rank``, of dense rules.

    Probabilities come from embeddings of ``size`` numbers by networks. With ``identity`` the words themselves are the
    preterminals; emissions are not learned.
    """

    def __init__(
        self,
        n_nonterminals: int,
        n_preterminals: int,
        n_words: int,
        rank: int | None,
        *,
        size: int,
        identity: bool,
        seed: int,
    ) -> None:
        super().__init__()
        N, P, S = n_nonterminals, n_preterminals, n_nonterminals + n_preterminals
        self.sizes, self.rank = (N, P, n_words), rank
        self.identity = torch.eye(P).log() if identity else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.root_embedding = nn.Parameter(torch.randn(1, size))
            self.symbols = nn.Parameter(torch.randn(S, size))
            self.root = _network(size, N)
            if rank is None:
                self.rules: nn.Module = nn.Linear(size, S * S)
            else:
                self.up, self.left, self.right = _network(size, rank), _network(size, rank), _network(size, rank)
            if not identity:
                self.leaves = nn.Parameter(torch.randn(P, size))
                self.emission = _network(size, n_words)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(self) -> Named:
        """Return the grammar of the current parameters."""
        N, P, _ = self.sizes
        logits = {"log_root": self.root(self.root_embedding)[0]}
        if self.rank is None:
            logits["log_rules"] = self.rules(self.symbols[:N])
        else:
            logits["log_up"] = self.up(self.symbols[:N])
            logits["log_left"], logits["log_right"] = self.left(self.symbols).T, self.right(self.symbols).T
        if self.identity is None:
            logits["log_emission"] = self.emission(self.leaves)
        logs = {name: torch.log_softmax(values, dim=-1) for name, values in logits.items()}
        if self.rank is None:
            logs["log_rules"] = logs["log_rules"].view(N, N + P, N + P)
        return logs if self.identity is None else logs | {"log_emission": self.identity}

    @torch.no_grad()
    def arrays(self) -> GrammarParameters:
        """Return the grammar as arrays for the engines, normalized in float64."""
        arrays = {}
        for name, values in self().items():
            events = (1, 2) if name == "log_rules" else (-1,)
            arrays[name] = (values.double() - values.double().logsumexp(dim=events, keepdim=True)).numpy()
        return GrammarParameters(**arrays)


def train(
    module: GrammarModule,
    sentences: Sequence[Sequence[int]],
    *,
    learning_rate: float = 2e-3,
    batch_size: int = 16,
    priors: GrammarPriors,
    max_iter: int,
    tol: float,
    watch: Watch,
    seed: int = 0,
) -> tuple[GrammarParameters, FitReport]:
    """Maximize log evidence plus log prior for ``max_iter`` epochs.

    The log evidence of an epoch is summed during the epoch, before each step. Training stops early when three epochs
    together gain less than ``tol`` of the value. Batches depend on ``seed`` and the number of the epoch alone.
    """
    adam = torch.optim.Adam(module.parameters(), lr=learning_rate, betas=BETAS)
    found, report = descend(
        partial(_epoch, module, adam, sentences, priors, batch_size, seed),
        dict(module.named_parameters()),
        adam,
        watch,
        max_iter=max_iter,
        settled=partial(_settled, tol),
        snapshot=lambda: module.arrays().named(),
    )
    return GrammarParameters(**found), report


def _epoch(
    module: GrammarModule,
    adam: torch.optim.Adam,
    sentences: Sequence[Sequence[int]],
    priors: GrammarPriors,
    size: int,
    seed: int,
    number: int,
) -> Step:
    """Take one step per batch of sentences of similar length, in random order."""
    rng, lengths = np.random.default_rng([seed, number]), np.array([len(s) for s in sentences], np.int64)
    order = rng.permutation(len(lengths))
    order = order[np.argsort(lengths[order], kind="stable")]
    value = evidence = 0.0
    with one_thread():
        for k in rng.permutation(-(-len(order) // size)):
            batch = TextBatch.select(sentences, order[size * k : size * (k + 1)])
            adam.zero_grad(set_to_none=True)
            grammar = module()
            log_z = log_evidence(grammar, batch).sum()
            objective = log_z + len(batch.ids) / len(sentences) * log_prior(grammar, priors)
            (-objective / len(batch.ids)).backward()
            value, evidence = value + float(objective.detach()), evidence + float(log_z.detach())
            torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            adam.step()
    return Step(number, value, log_evidence=evidence)


def _settled(tol: float, steps: Sequence[Step]) -> str | None:
    """Return why training has converged, if the last epochs gained too little."""
    values = [step.value for step in steps]
    if not tol or len(values) <= GAIN_EPOCHS:
        return None
    settled = max(values[-GAIN_EPOCHS:]) - max(values[:-GAIN_EPOCHS]) < tol * abs(values[-1])
    return f"{GAIN_EPOCHS} epochs gained less than {tol:g} of the objective" if settled else None
