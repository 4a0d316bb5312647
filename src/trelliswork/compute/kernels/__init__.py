"""Compiled helpers shared by the kernels of several structures."""
