"""Arrays in; log partition functions, marginals and best structures out. No strings, files or estimators.

The room is a little above its budget: most kernels exist twice, in probability space, which is fast, and in log space,
which is right for every input.
"""
