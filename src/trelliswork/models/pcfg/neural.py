"""Grammars with probabilities from embeddings with residual networks, as torch parameters.

This is the N-PCFG of Kim, Dyer and Rush (2019): rule probabilities are computed from symbol
embeddings by shared networks, and maximum likelihood gives much better trees than with free parameters. At low rank,
the three factors are networks of the same embeddings (Yang, Zhao and Tu, 2021; Chiu, Deng and Rush, 2021).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from trelliswork.inference.span.autograd import grammar_log_partition, lowrank_log_partition
from trelliswork.models.pcfg.objective import GrammarParameters, TextBatch


class GrammarTensors(NamedTuple):
    """`GrammarParameters` as tensors."""

    log_root: Tensor
    log_rules: Tensor | None
    log_up: Tensor | None
    log_left: Tensor | None
    log_right: Tensor | None
    log_emission: Tensor

    def log_evidence(self, batch: TextBatch) -> Tensor:
        """Return log p (B,) of the sentences of a batch in float64."""
        log_terminals = self.log_emission.T[torch.from_numpy(batch.ids)]
        lengths = torch.from_numpy(batch.lengths)
        if self.log_rules is not None:
            return grammar_log_partition(self.log_root, self.log_rules, log_terminals, None, lengths)
        assert self.log_up is not None
        assert self.log_left is not None
        assert self.log_right is not None
        return lowrank_log_partition(self.log_root, self.log_up, self.log_left, self.log_right, log_terminals, lengths)

    def arrays(self) -> GrammarParameters:
        """Return the parameters as arrays for the engines, normalized in float64."""
        arrays = {}
        for name, tensor in self._asdict().items():
            if tensor is not None:
                double = tensor.detach().double()
                events = (1, 2) if name == "log_rules" else (-1,)
                arrays[name] = (double - double.logsumexp(dim=events, keepdim=True)).numpy()
        return GrammarParameters(**arrays)


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
    """Torch module that computes `GrammarTensors`; without a ``rank``, of dense rules.

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
    ) -> None:
        super().__init__()
        N, P, S = n_nonterminals, n_preterminals, n_nonterminals + n_preterminals
        self.sizes, self.rank = (N, P, n_words), rank
        self.identity = torch.eye(P).log() if identity else None
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

    def forward(self) -> GrammarTensors:
        """Return the grammar of the current parameters."""
        N, P, _ = self.sizes
        S = N + P
        logs = {name: torch.log_softmax(value, dim=-1) for name, value in self._logits().items()}
        emission = logs["emission"] if self.identity is None else self.identity
        rules = None if self.rank is not None else logs["rules"].view(N, S, S)
        return GrammarTensors(logs["root"], rules, logs.get("up"), logs.get("left"), logs.get("right"), emission)

    def _logits(self) -> dict[str, Tensor]:
        N = self.sizes[0]
        logits = {"root": self.root(self.root_embedding)[0]}
        if self.rank is None:
            logits["rules"] = self.rules(self.symbols[:N])
        else:
            logits["up"] = self.up(self.symbols[:N])
            logits["left"], logits["right"] = self.left(self.symbols).T, self.right(self.symbols).T
        if self.identity is None:
            logits["emission"] = self.emission(self.leaves)
        return logits
