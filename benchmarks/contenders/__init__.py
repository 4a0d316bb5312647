"""What is timed: ours and the peers, one module a benchmark; heavy imports stay inside the functions."""
