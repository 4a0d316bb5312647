"""Arrays in; log partition functions, marginals and best structures out. No strings, files or estimators."""
