"""Compiled operations on rows of states, with one pass over each row: products with matrices of blocks, and messages.

Arrays of states are (rows, k), one row per sentence. ``words[b]`` is the row of ``emission`` (W, k) of the word at this
position, ``which[b]`` the matrix of ``stack`` (M, k, k') that leads from row b. Kernels are serial; groups of sentences
are distributed to threads (``sweep.py``).
"""

from trelliswork.compute.jit import kernel


@kernel(fast=True)
def through(rows, stack, which, out):
    """Compute out[b] = rows[b] @ stack[which[b]]."""
    for b in range(len(which)):
        matrix = stack[which[b]]
        for j in range(out.shape[1]):
            out[b, j] = 0
        for i in range(rows.shape[1]):
            value = rows[b, i]
            for j in range(out.shape[1]):
                out[b, j] += value * matrix[i, j]


@kernel(fast=True)
def back(rows, stack, which, out):
    """Compute out[b] = stack[which[b]] @ rows[b]."""
    for b in range(len(which)):
        matrix = stack[which[b]]
        for i in range(out.shape[1]):
            total = rows[b, 0] * 0
            for j in range(rows.shape[1]):
                total += matrix[i, j] * rows[b, j]
            out[b, i] = total


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
def absorb(beta, alpha, emission, words, norms, posterior, message):
    """Set posterior = alpha * beta, and message = emission[words] * beta / norms, for the position before."""
    S = alpha.shape[1]
    for b in range(len(words)):
        row = emission[words[b]]
        scale = beta[b, 0] * 0
        if norms[b] > 0:
            scale = scale + 1 / norms[b]
        for z in range(S):
            posterior[b, z] = alpha[b, z] * beta[b, z]
            message[b, z] = row[z] * beta[b, z] * scale
