"""Options that several commands share."""

from typing import Annotated

import typer


def _readable(text: str | None) -> str | None:
    """Refuse a beam that cannot be read, before anything is read or learned."""
    from trelliswork.errors import ValueRangeError
    from trelliswork.inference.chain.beam import Beam

    if text not in (None, "auto", "none"):
        try:
            Beam.parse(text)
        except ValueRangeError as error:
            raise typer.BadParameter(str(error)) from None
    return text


BeamOption = Annotated[
    str | None,
    typer.Option(
        "--beam",
        callback=_readable,
        help="Keep few states a token: kl=0.005,min=10 (or kl=auto), size=20, threshold=6.9,min=4; auto where faster.",
    ),
]
OtherBeamOption = Annotated[
    str | None,
    typer.Option(
        "--beam",
        callback=_readable,
        help="Another beam than the model's: kl=0.005,min=10, size=20, threshold=6.9,min=4, auto, or none.",
        show_default="the model's",
    ),
]


def set_beam(model: object, beam: str | None) -> None:
    """Give a model another beam; "none" takes it away."""
    if beam is None:
        return
    if not hasattr(model, "beam"):
        raise typer.BadParameter(f"a model of kind {getattr(model, 'kind', '?')} has no beam: leave --beam out.")
    model.set_params(beam=None if beam == "none" else beam)  # type: ignore[attr-defined]
