"""Shared numerical tools: compilation, SIMD, threads, random numbers and argument checks."""
