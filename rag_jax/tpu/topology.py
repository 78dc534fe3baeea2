"""HOST. Chips to compile for that are not there: libtpu's descriptions of TPU topologies."""

from __future__ import annotations

import importlib.util
import os

import jax
from jax.experimental import topologies

# Without these libtpu looks for chips and for the machine that they would belong to.
_NO_MACHINE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def can_compile() -> bool:
    """Whether libtpu is installed."""
    return importlib.util.find_spec("libtpu") is not None


def devices(name: str) -> list[jax.Device]:
    """The chips of a topology, such as 'v5e:2x4' or 'v5p:2x2x1', as devices to lower and compile for.

    Call it before any backend is used on a machine without a TPU. A topology of v4 is made of whole chips (libtpu's own
    default is their halves).

    Raises:
      RuntimeError: libtpu is not installed, or does not know the name.
    """
    if not can_compile():
        raise RuntimeError('libtpu is not installed: pip install "rag-jax[tpu]"')
    for key, value in _NO_MACHINE.items():
        os.environ.setdefault(key, value)
    chips = {"chip_config_name": "megacore", "chips_per_host_bounds": (2, 2, 1), "num_slices": 1}
    settings = chips if name.startswith("v4:") else {}
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=name, **settings).devices)
    except Exception as error:
        raise RuntimeError(f"{name}: libtpu has no such topology ({error})") from error
