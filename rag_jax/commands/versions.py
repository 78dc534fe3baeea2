"""HOST. `rag-jax --version`: the versions that decide what a program computes, and the devices it would run on."""

import platform
from collections import Counter
from importlib import metadata

import typer

PACKAGES = ("rag-jax", "jax", "jaxlib", "flax", "scann")


def show_versions(wanted: bool) -> None:
    """Prints them and ends the command, if that is `wanted`."""
    if not wanted:
        return
    for name, value in [*((name, _version(name)) for name in PACKAGES), ("python", platform.python_version())]:
        typer.echo(f"{name:<8} {value}")
    typer.echo(f"{'devices':<8} {_devices()}")
    raise typer.Exit


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> str:
    """'8 x TPU v5 lite (tpu)', or why there are none."""
    import jax

    try:
        kinds = Counter((device.device_kind, device.platform) for device in jax.devices())
    except RuntimeError as error:  # no device of the kind that JAX_PLATFORMS names, or it is another process's
        return f"none can be used: {error}"
    return ", ".join(f"{count} x {kind} ({platform})" for (kind, platform), count in kinds.items())
