"""In the checked build, kernels refuse to read or write outside of their arrays."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.programs

ACCESSES = {  # of an array of 64 numbers, whose last vector is taken
    "get(a, k)": "get(a, 63 + step)",
    "put(a, k, x)": "put(a, 63 + step, 1.0)",
    "put(a, -1, x)": "put(a, -step, 1.0)",
    "load(a, k)": "total(load(a, 64 - lanes(a) + step))",
    "store(a, k, v)": "store(a, 64 - lanes(a) + step, spread(a, 1.0))",
    "load_part(a, k, n)": "total(load_part(a, 62, 2 + step, 0.0))",
    "store_part(a, k, n)": "store_part(a, 62, 2 + step, spread(a, 1.0))",
    "load_tile": "total(load_tile(tile(a, 0.0, 2, 1), a, 64 - 2 * lanes(a) + step, lanes(a)))",
    "store_tile": "store_tile(a, 64 - 2 * lanes(a) + step, lanes(a), tile(a, 0.0, 2, 1))",
    "add_outer": "total(add_outer(tile(a, 0.0, 2, 1), a, 62 + step, 1, a, 0))",
    "a[k]": "a[63 + step]",
}
PROGRAM = """
import sys
import numpy as np
from trelliswork.compute import jit, simd, tiles

namespace = vars(simd) | vars(tiles)
for access in sys.stdin.read().splitlines():
    for step in (0, 1):
        source = f"def access(a, step):\\n    return {access}\\n"
        exec(compile(source, simd.__file__, "exec"), namespace)
        compiled = jit._compiled(namespace["access"], False, pipeline_class=jit.KernelCompiler)
        try:
            compiled(np.zeros(64), step)
            print("fine")
        except IndexError as error:
            print("refused")
"""


def test_an_index_outside_of_an_array_is_refused():
    environment = os.environ | {"TRELLISWORK_CHECKED": "1"}
    command = [sys.executable, "-c", PROGRAM]
    text = "\n".join(ACCESSES.values())
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split()
    assert dict(zip(ACCESSES, zip(answers[::2], answers[1::2], strict=True), strict=True)) == dict.fromkeys(
        ACCESSES, ("fine", "refused")
    )
