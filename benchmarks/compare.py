"""Two commits of this repository side by side: processor time of our contender in the cases of benchmarks, in turns.

    python benchmarks/compare.py OLD NEW NAME [NAME ...] [--repeats 7] [--threads 1] [--cases TEXT]

OLD and NEW are folders of two commits (``git worktree add``), each with a process of its own. A row has the least
processor time of each, their ratio, and the ratio of the medians; a case that one of them lacks or fails is named.
Processor time is disturbed less than wall time by other work on the machine.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 0.2  # of one measurement, at least


def serve(threads: int) -> None:
    """Answer requests on standard input: benchmark and parameters to prepare a task, or an empty line to time it."""
    from trelliswork.compute.threads import set_num_threads

    set_num_threads(threads)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task: Any = None
    for line in sys.stdin:
        try:
            if line.strip():
                name, params = json.loads(line)
                module, _, function = importlib.import_module(f"benchmarks.{name}").BENCHMARK.ours.path.partition(":")
                task = getattr(importlib.import_module(module), function)(params)
                task.call()
                reply: Any = "ready"
            else:
                began, n = time.process_time(), 0
                while not n or time.process_time() - began < SECONDS:
                    task.call()
                    n += 1
                reply = (time.process_time() - began) / n
        except Exception as error:
            reply = f"{type(error).__name__}: {error}"
        print(json.dumps(reply), file=replies, flush=True)


def child(tree: Path, threads: int) -> "subprocess.Popen[str]":
    """Start the process of a tree."""
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    command = [sys.executable, __file__, "--serve", str(threads)]
    return subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(process: "subprocess.Popen[str]", request: str) -> Any:
    """Return the reply of a process."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs=2)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cases", default="", help="only cases whose name contains this text")
    given = parser.parse_args()
    both = [child(tree.resolve(), given.threads) for tree in given.trees]
    sys.path.insert(0, str(given.trees[1].resolve()))
    for name in given.names:
        cases = importlib.import_module(f"benchmarks.{name}").BENCHMARK.cases
        for case in [one for each in cases for one in (each, *each.variants) if given.cases in one.name]:
            ready = [ask(process, json.dumps([name, case.params])) for process in both]
            if ready != ["ready", "ready"]:
                print(f"{name}: {case.name}: {'; '.join(ready)}", flush=True)
                continue
            times = [[ask(process, "") for process in both] for _ in range(given.repeats)]
            old, new = zip(*times, strict=True)
            middle = statistics.median(new) / statistics.median(old)
            text = f"{name}: {case.name}: {min(old):.4g} s, {min(new):.4g} s, ratio {min(new) / min(old):.3f}"
            print(f"{text}, of medians {middle:.3f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
    else:
        main()
