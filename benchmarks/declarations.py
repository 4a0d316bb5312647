"""Declarations of benchmarks: contenders, cases, references, and tasks that a worker times."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Params = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The call to time, and a digest of its result.

    Parameters
    ----------
    call : callable
        Runs once and returns its result, which must be complete (``block_until_ready`` on asynchronous devices).
    digest : callable, optional
        Converts the result to a small dict of numbers and nested lists, which the harness compares between contenders.
        ``None``: no comparison.
    """

    call: Callable[[], Any]
    digest: Callable[[Any], dict[str, Any]] | None = None


@dataclass(frozen=True)
class Contender:
    """Our package or a peer: its code and its environment.

    Parameters
    ----------
    name : str
        Name in rows and for ``--peers``.
    path : str
        ``module:function``; the function maps the parameters of a case to a `Task` and imports its library. An
        ImportError or NotImplementedError means skipped, not failed.
    environment : str
        ``""`` is our environment ``.venv``, ``"bench"`` is ``.venv-bench``, and so on.
    packages : tuple of str
        Distributions whose versions are printed to stderr.
    precision : str
        Floating-point type of its computation, for records.
    one_thread : bool
        Whether it uses one thread whatever the number of threads is.
    """

    name: str
    path: str
    environment: str = "bench"
    packages: tuple[str, ...] = ()
    precision: str = ""
    one_thread: bool = False


@dataclass(frozen=True)
class Reference:
    """A rate of the machine, measured in the same rounds as a case.

    Parameters
    ----------
    contender : Contender
        The work to time, such as a matrix product.
    params : dict
        Its parameters.
    describe : callable
        Maps its seconds to the ``extra`` of its own row.
    relate : callable
        Maps (our seconds, its seconds) to an addition to ``extra`` in the rows of the case.
    """

    contender: Contender
    params: Params
    describe: Callable[[float], dict[str, Any]]
    relate: Callable[[float, float], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One problem for our package and every peer.

    Parameters
    ----------
    name : str
        Name in rows and for ``--cases``.
    params : dict
        Parameters for the contenders' functions; JSON only.
    check : dict, optional
        Parameters of a tiny problem whose digests are compared before anything is timed.
    reference : Reference, optional
        A rate of the machine to measure with it.
    show : bool
        Whether rows include the digests ``ours`` and ``theirs``, such as accuracies.
    alone : bool
        Whether to run without the peers.
    stop : str
        When each side stops, for records, such as ``"100 iterations each"``.
    precision : str
        Floating-point type of our computation in this case, if it is not that of the contender.
    variants : tuple of Case
        Other settings of ours on the same problem, in rows of their own; the peers, which do the same work for all of
        them, are measured once. Only name, params and stop of a variant are used.
    """

    name: str
    params: Params
    check: Params | None = None
    reference: Reference | None = None
    show: bool = False
    alone: bool = False
    stop: str = ""
    precision: str = ""
    variants: "tuple[Case, ...]" = ()


@dataclass(frozen=True)
class Benchmark:
    """A named set of cases, our contender and the peers.

    Parameters
    ----------
    name : str
        Name in rows.
    ours : Contender
        The contender that all ratios refer to.
    peers : tuple of Contender
        Contenders to compare with; may be empty.
    cases : tuple of Case
        Problems in the order of their runs.
    rtol, atol : float
        Tolerances for numbers of a peer's digest, relative to ours and absolute.
    """

    name: str
    ours: Contender
    peers: tuple[Contender, ...]
    cases: tuple[Case, ...]
    rtol: float = 1e-3
    atol: float = 1e-5
