"""Attacks on the program from outside; `make test` runs a fast part, `make test-all` all of them."""
