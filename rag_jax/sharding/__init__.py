"""HOST and DEVICE. Meshes, rules that say where arrays lie on them, and start-up on several hosts."""

from rag_jax.sharding.mesh import (
    DATA,
    MODEL,
    by_rows,
    global_rows,
    largest,
    local_rows,
    make_mesh,
    my_rows,
    place,
    to_host,
    whole,
)
from rag_jax.sharding.processes import first_alone, is_first, start
from rag_jax.sharding.rules import ONE_DEVICE, Cut, CutRule, Layout, state_rules

__all__ = [
    "DATA",
    "MODEL",
    "ONE_DEVICE",
    "Cut",
    "CutRule",
    "Layout",
    "by_rows",
    "first_alone",
    "global_rows",
    "is_first",
    "largest",
    "local_rows",
    "make_mesh",
    "my_rows",
    "place",
    "start",
    "state_rules",
    "to_host",
    "whole",
]
