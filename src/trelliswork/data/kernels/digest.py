"""Compiled digest of large files, as fast as memory: it finds accidental damage, not that of an attacker."""

import numpy as np

from trelliswork.compute.jit import kernel

LANES = 8
_PRIME = np.uint64(0x9E3779B185EBCA87)
_LEFT, _RIGHT = np.uint64(29), np.uint64(35)


@kernel
def mix(values, lanes):
    """Mix values (n, 8) of uint64 into lanes (8,). A change of one value always changes its lane."""
    a, b, c, d = lanes[0], lanes[1], lanes[2], lanes[3]
    e, f, g, h = lanes[4], lanes[5], lanes[6], lanes[7]
    for i in range(len(values)):
        a, b = a ^ values[i, 0], b ^ values[i, 1]
        c, d = c ^ values[i, 2], d ^ values[i, 3]
        e, f = e ^ values[i, 4], f ^ values[i, 5]
        g, h = g ^ values[i, 6], h ^ values[i, 7]
        a, b = ((a << _LEFT) | (a >> _RIGHT)) * _PRIME, ((b << _LEFT) | (b >> _RIGHT)) * _PRIME
        c, d = ((c << _LEFT) | (c >> _RIGHT)) * _PRIME, ((d << _LEFT) | (d >> _RIGHT)) * _PRIME
        e, f = ((e << _LEFT) | (e >> _RIGHT)) * _PRIME, ((f << _LEFT) | (f >> _RIGHT)) * _PRIME
        g, h = ((g << _LEFT) | (g >> _RIGHT)) * _PRIME, ((h << _LEFT) | (h >> _RIGHT)) * _PRIME
    lanes[0], lanes[1], lanes[2], lanes[3] = a, b, c, d
    lanes[4], lanes[5], lanes[6], lanes[7] = e, f, g, h
