"""How many threads compute, how large a task may be, and where compiled kernels are.

``threads`` and ``limits`` change a setting of the whole process from now on. As the context of a ``with`` block they
restore it at the end of the block.

Examples
--------
>>> from trelliswork import machine
>>> with machine.threads(2), machine.limits(seconds=10):
...     machine.n_threads()
2
"""

from trelliswork.compute.kernel_cache import cache_directory
from trelliswork.compute.limits import limits
from trelliswork.compute.threads import get_num_threads as n_threads
from trelliswork.compute.threads import num_threads as threads

__all__ = ["cache_directory", "limits", "n_threads", "threads"]
