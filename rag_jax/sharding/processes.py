"""HOST. Several hosts, one process each: whether there are any, how they find each other, and who works alone.

`start` is the first thing that train.py and eval.py do. One host stays as it is. Several are told by their environment:

    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID    set by hand, for any machines that reach each other
    TPU_WORKER_HOSTNAMES with several names                       GKE
    MEGASCALE_COORDINATOR_ADDRESS                                 several slices
    SLURM_NTASKS, OMPI_COMM_WORLD_SIZE above 1                    Slurm, Open MPI
    a TPU VM whose metadata names several workers                 a slice made with gcloud or by a queued resource
"""

from __future__ import annotations

import logging
import os
import pathlib
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import jax

from rag_jax.sharding.mesh import largest, make_mesh

_METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/worker-network-endpoints"
_CHIPS = ("accel0", "vfio/0")  # under /dev where a TPU is attached
_SECONDS = 2  # a metadata server answers in milliseconds
_HEARTBEAT_SECONDS = 30  # a process that says nothing for so long is dead, and the others end with a message


def start() -> None:
    """Joins the other processes of this run, if the environment tells of any; must come before any use of a device.

    Raises:
      ValueError: JAX_COORDINATOR_ADDRESS without numbers of processes.
    """
    # Which backends jax looked for in vain is told at a level that absl's programs print.
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.WARNING)
    arguments = found(os.environ)
    if arguments is not None and not jax.distributed.is_initialized():
        jax.distributed.initialize(**arguments, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS)


def found(environment: Mapping[str, str], workers: Callable[[], int] | None = None) -> dict[str, Any] | None:
    """Arguments for `jax.distributed.initialize`, which asks the same places for what is left out; None = one host.

    Args:
      environment: variables.
      workers: asks the machine's metadata for the number of a slice's workers.

    Raises:
      ValueError: a coordinator, but not how many processes there are or which is this one.
    """
    coordinator = environment.get("JAX_COORDINATOR_ADDRESS")
    if coordinator:
        try:
            count, number = (int(environment[name]) for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"JAX_COORDINATOR_ADDRESS={coordinator} needs whole numbers in JAX_NUM_PROCESSES and JAX_PROCESS_ID"
            ) from error
        return {"coordinator_address": coordinator, "num_processes": count, "process_id": number}
    counts = [environment.get(name, "1") for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")]
    several = (
        "MEGASCALE_COORDINATOR_ADDRESS" in environment
        or "," in environment.get("TPU_WORKER_HOSTNAMES", "")
        or any(count.isdigit() and int(count) > 1 for count in counts)
        or ("TPU_WORKER_HOSTNAMES" not in environment and (workers or _workers)() > 1)
    )
    return {} if several else None


def _workers() -> int:
    """How many hosts the slice of this TPU VM has; 1 anywhere else."""
    if not any((pathlib.Path("/dev") / name).exists() for name in _CHIPS):
        return 1
    request = urllib.request.Request(_METADATA, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return len(answer.read().decode().split(","))
    except OSError:  # chips, but no such server: a machine of one's own
        return 1


def is_first() -> bool:
    """Whether this process is the one that writes what is written once."""
    return jax.process_index() == 0


def first_alone(work: Callable[[], Any]) -> None:
    """The first process works, the others wait; all must call it.

    Raises:
      Exception: in the first process what the work raised.
      ValueError: in the others, that it failed.
    """
    failure = None
    if is_first():
        try:
            work()
        except Exception as error:
            failure = error
    if largest(failure is not None, make_mesh()):
        raise failure or ValueError("the first process failed, and its message says why")
