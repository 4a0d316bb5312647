"""Compiled forward-backward and Viterbi within beams."""
