"""How many threads compute, and how large a task may be.

``threads`` and ``limits`` change a setting of the whole process from now on. As the context of a ``with`` block they
restore it at the end of the block.

Examples
--------
>>> from trelliswork import machine
>>> with machine.threads(2), machine.limits(seconds=10):
...     machine.n_threads()
2
"""

from trelliswork.compute.limits import limits
from trelliswork.compute.threads import get_num_threads as n_threads
from trelliswork.compute.threads import num_threads as threads

__all__ = ["limits", "n_threads", "threads"]
