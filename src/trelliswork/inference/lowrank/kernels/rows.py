"""Compiled operations on messages between two matrix products, with one pass over each row.

Arrays of states are (rows, S), one row per sentence. ``words[b]`` is the row of ``emission`` (W, S) of the word at this
position. Kernels are serial; groups of sentences are distributed to threads (``sweep.py``).
"""

from trelliswork.compute.jit import kernel


@kernel(fast=True)
def observe(alpha, emission, words, norms):
    """Multiply alpha by emission[words] and normalize each row; norms (rows,) are the sums before."""
    S = alpha.shape[1]
    for b in range(len(words)):
        row = emission[words[b]]
        total = row[0] * 0
        for z in range(S):
            value = alpha[b, z] * row[z]
            alpha[b, z] = value
            total += value
        norms[b] = total
        scale = 1 / total if total > 0 else total * 0
        for z in range(S):
            alpha[b, z] *= scale


@kernel(fast=True)
def absorb(beta, alpha, emission, words, norms, counts, out):
    """Add alpha * beta to counts[words]; out = emission[words] * beta / norms is the message to the position before."""
    S = alpha.shape[1]
    for b in range(len(words)):
        w = words[b]
        scale = beta[b, 0] * 0
        if norms[b] > 0:
            scale = scale + 1 / norms[b]
        for z in range(S):
            counts[w, z] += alpha[b, z] * beta[b, z]
            out[b, z] = emission[w, z] * beta[b, z] * scale


@kernel(fast=True)
def add_band(alpha, band, out):
    """Add alpha[b, z] * band[z, k] to out[b, z + k - K]: transitions to neighbors, band (S, 2 K + 1)."""
    S, width = band.shape
    K = width // 2
    for b in range(len(alpha)):
        for k in range(width):
            shift = k - K
            for z in range(max(0, -shift), min(S, S - shift)):
                out[b, z + shift] += alpha[b, z] * band[z, k]


@kernel(fast=True)
def add_band_back(message, band, out):
    """Add message[b, z + k - K] * band[z, k] to out[b, z]."""
    S, width = band.shape
    K = width // 2
    for b in range(len(message)):
        for k in range(width):
            shift = k - K
            for z in range(max(0, -shift), min(S, S - shift)):
                out[b, z] += message[b, z + shift] * band[z, k]


@kernel(fast=True)
def band_counts(alpha, message, counts):
    """Add the sum over rows of alpha[b, z] * message[b, z + k - K] to counts[z, k]."""
    S, width = counts.shape
    K = width // 2
    for b in range(len(alpha)):
        for k in range(width):
            shift = k - K
            for z in range(max(0, -shift), min(S, S - shift)):
                counts[z, k] += alpha[b, z] * message[b, z + shift]


@kernel(fast=True)
def apply_operators(compressed, operators, which, out):
    """Compute out[b] = compressed[b] @ operators[which[b]]: a step in rank space, operators (W, R, R)."""
    R = compressed.shape[1]
    for b in range(len(which)):
        operator = operators[which[b]]
        for j in range(R):
            out[b, j] = 0
        for i in range(R):
            value = compressed[b, i]
            for j in range(R):
                out[b, j] += value * operator[i, j]


@kernel
def best_before(score, log_transition, best, back):
    """Compute best[z'] = max over z of score[z] + log_transition[z, z'], and back[z'], the first z that attains it."""
    S = len(best)
    for j in range(S):
        best[j] = -float("inf")
        back[j] = 0
    for z in range(len(score)):
        if score[z] > -float("inf"):
            row = log_transition[z]
            for j in range(S):
                value = score[z] + row[j]
                if value > best[j]:
                    best[j] = value
                    back[j] = z
