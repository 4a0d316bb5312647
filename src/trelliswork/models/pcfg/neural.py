"""Grammars with probabilities from embeddings with residual networks, as torch parameters.

This is the N-PCFG of Kim, Dyer and Rush (2019): rule probabilities are computed from symbol
embeddings by shared networks, and maximum likelihood gives much better trees than with free parameters. At low rank,
the three factors are networks of the same embeddings (Yang, Zhao and Tu, 2021; Chiu, Deng and Rush, 2021).
"""

import torch
from torch import Tensor, nn

from trelliswork.inference.span.autograd import grammar_log_partition, lowrank_log_partition
from trelliswork.models.pcfg.objective import GrammarParameters, TextBatch

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
