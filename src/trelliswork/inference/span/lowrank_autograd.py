"""Former place of ``lowrank_log_partition``, which is in ``autograd``."""

from trelliswork.inference.span.autograd import lowrank_log_partition

__all__ = ["lowrank_log_partition"]
