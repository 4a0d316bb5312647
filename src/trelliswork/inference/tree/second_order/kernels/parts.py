"""Enumeration of the parts of second-order trees; see ``second_order.parts``."""

from trelliswork.compute.jit import kernel


@kernel
def find_sides(node_ptr, out_start, modifiers, side_ptr, sides, sibling_ptr):
    """Fill the sides that have candidates, left before right, and the offsets of each sentence."""
    at, part = 0, 0
    for b in range(len(node_ptr) - 1):
        for node in range(node_ptr[b], node_ptr[b + 1]):
            first, last, h = out_start[node], out_start[node + 1], node - node_ptr[b]
            middle = first
            while middle < last and modifiers[middle] < h:
                middle += 1
            for arc, step, size in ((middle - 1, -1, middle - first), (middle, 1, last - middle)):
                if size > 0:
                    sides[at] = arc, step, size, part
                    at += 1
                    part += (size + 1) * (size + 2) // 2
        side_ptr[b + 1], sibling_ptr[b + 1] = at, part


@kernel
def fill_siblings(sides, heads, sibling_heads, previous, following, which):
    """Fill the parts of all sides, in the order of `Parts`."""
    for s in range(len(sides)):
        first, step, size, k = sides[s]
        for j in range(1, size + 2):
            for i in range(j):
                sibling_heads[k], which[k] = heads[first], step
                previous[k] = first + step * (i - 1) if i > 0 else -1
                following[k] = first + step * (j - 1) if j <= size else -1
                k += 1


@kernel
def find_grandparents(node_ptr, out_start, in_start, in_arcs, heads, modifiers, ptr, upper, lower):
    """Fill the pairs of arcs word by word: each arc into it with all arcs out of it except the reverse one.

    If ``upper`` is empty, only the offsets ``ptr`` (B + 1,) of the pairs of each sentence are filled.
    """
    k = 0
    for b in range(len(node_ptr) - 1):
        for node in range(node_ptr[b] + 1, node_ptr[b + 1]):
            for p in range(in_start[node], in_start[node + 1]):
                for low in range(out_start[node], out_start[node + 1]):
                    if modifiers[low] != heads[in_arcs[p]]:
                        if len(upper):
                            upper[k], lower[k] = in_arcs[p], low
                        k += 1
        ptr[b + 1] = k
