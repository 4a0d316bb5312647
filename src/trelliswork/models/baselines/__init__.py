"""Left-to-right language models for comparison: Kneser-Ney n-grams, and the log-bilinear model."""
