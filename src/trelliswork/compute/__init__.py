"""Shared numerical tools: compilation, SIMD, threads, random numbers and argument checks.

The room is above its budget: a kernel cache that never is stale, Ctrl-C during kernels and groups of processes stay.
"""
