"""Rate of float32 matrix products on this machine, as a reference."""

from benchmarks.declarations import Contender, Params, Reference, Task


def matmul(params: Params) -> Task:
    """Multiply two square float32 matrices of ``params["size"]`` rows with torch."""
    import torch

    n = params["size"]
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, n, generator=generator) for _ in range(2))
    product = torch.empty(n, n)
    return Task(lambda: torch.matmul(a, b, out=product))


def gemm_reference(n_flops: float, size: int = 2048) -> Reference:
    """Return a reference for the fraction of the GEMM rate that our package reaches.

    Parameters
    ----------
    n_flops : float
        Floating point operations of the case, a multiply-add counted as two.
    size : int
        Number of rows of the square matrices.
    """
    gemm_flops = 2.0 * size**3

    def relate(seconds: float, gemm_seconds: float) -> dict[str, float]:
        return {"gemm_fraction": (n_flops / seconds) / (gemm_flops / gemm_seconds)}

    return Reference(
        contender=Contender("gemm", "benchmarks.contenders.gemm:matmul", environment="", packages=("torch",)),
        params={"size": size},
        describe=lambda gemm_seconds: {"gflops": gemm_flops / gemm_seconds / 1e9},
        relate=relate,
    )
