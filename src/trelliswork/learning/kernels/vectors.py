"""Compiled operations on long vectors, without temporaries.

BLAS is avoided because its threads keep spinning for a while after a call and compete with ours for the cores.
"""

from trelliswork.compute.jit import kernel


@kernel(fast=True)
def dot(x, y):
    """Return the sum of x * y in float64."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@kernel
def add_scaled(y, a, x):
    """y += a * x, in place."""
    for i in range(len(y)):
        y[i] += a * x[i]


@kernel
def step_to(w, step, direction, out):
    """out = w + step * direction."""
    for i in range(len(w)):
        out[i] = w[i] + step * direction[i]


@kernel
def differences(new, old, new_gradient, old_gradient, s, y):
    """s = new - old, y = new_gradient - old_gradient, in the precision of s and y."""
    for i in range(len(new)):
        s[i] = new[i] - old[i]
        y[i] = new_gradient[i] - old_gradient[i]
