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


ALPHA, BAND, MESSAGE = 0, 1, 2


@kernel(fast=True)
def through_band(alpha, band, message, into):
    """Add the products of two of alpha[b, z], band[z, k] and message[b, z + k - K] to the third, ``into``.

    ``band`` (S, 2 K + 1) are transitions to neighbors.
    """
    S, width = band.shape
    for b in range(len(alpha)):
        for k in range(width):
            shift = k - width // 2
            first, last = max(0, -shift), min(S, S - shift)
            if into == ALPHA:
                for z in range(first, last):
                    alpha[b, z] += message[b, z + shift] * band[z, k]
            elif into == BAND:
                for z in range(first, last):
                    band[z, k] += alpha[b, z] * message[b, z + shift]
            else:
                for z in range(first, last):
                    message[b, z + shift] += alpha[b, z] * band[z, k]


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
