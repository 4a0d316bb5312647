"""The words a benchmark is declared in: contenders, cases, references, and the task a worker times."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Params = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a contender hands to its worker: the call to time and a digest of its result.

    Parameters
    ----------
    call : callable
        Does the work once and returns its result. It must have finished when it returns
        (``block_until_ready`` on asynchronous devices).
    digest : callable, optional
        Turns the result into a small dict of numbers and nested lists, which the harness compares
        between contenders. None leaves the contender unchecked.
    """

    call: Callable[[], Any]
    digest: Callable[[Any], dict[str, Any]] | None = None


@dataclass(frozen=True)
class Contender:
    """Ours or a peer: where its code is and which environment runs it.

    Parameters
    ----------
    name : str
        As it appears in the rows and after ``--peers``.
    path : str
        ``module:function``; the function maps the parameters of a case to a `Task`. It imports its
        library itself; an ImportError or NotImplementedError from it means skipped, not failed.
    environment : str
        ``""`` is our environment ``.venv``, ``"bench"`` is ``.venv-bench``, and so on.
    packages : tuple of str
        Distributions whose versions are told on stderr.
    """

    name: str
    path: str
    environment: str = "bench"
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A figure of the machine, measured in the same rounds as a case.

    Parameters
    ----------
    contender : Contender
        What is timed, such as a matrix product.
    params : dict
        Its parameters.
    describe : callable
        Maps its seconds to the ``extra`` of its own row.
    relate : callable
        Maps (our seconds, its seconds) to what the rows of the case get in ``extra``.
    """

    contender: Contender
    params: Params
    describe: Callable[[float], dict[str, Any]]
    relate: Callable[[float, float], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One problem, given to ours and to every peer alike.

    Parameters
    ----------
    name : str
        As it appears in the rows and after ``--cases``.
    params : dict
        What the contenders' functions get; JSON only.
    check : dict, optional
        Parameters of a tiny problem whose digests are compared before anything is timed.
    reference : Reference, optional
        A figure of the machine to measure beside it.
    show : bool
        Whether rows tell the digests, ``ours`` and ``theirs``: figures of quality beside those of speed.
    alone : bool
        Whether ours runs without the peers.
    """

    name: str
    params: Params
    check: Params | None = None
    reference: Reference | None = None
    show: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Benchmark:
    """A named set of cases, our contender and the peers.

    Parameters
    ----------
    name : str
        As it appears in the rows.
    ours : Contender
        The contender all ratios refer to.
    peers : tuple of Contender
        Those it is compared with; may be empty.
    cases : tuple of Case
        The problems, in the order they are run.
    rtol, atol : float
        How far a number of a peer's digest may be from ours, relative to ours and absolutely.
    """

    name: str
    ours: Contender
    peers: tuple[Contender, ...]
    cases: tuple[Case, ...]
    rtol: float = 1e-3
    atol: float = 1e-5
