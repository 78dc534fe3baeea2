"""HOST. What a TPU chip can do at most: the numbers that a compiled program is priced with."""

from __future__ import annotations

import dataclasses

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip as jax sees it: of v4 and v5p a device is the whole chip, both of its cores.

    Attributes:
      name: as it stands in a topology's name before the colon.
      flops: peak of bfloat16 matrix products, a second.
      hbm_bandwidth: bytes a second.
      hbm_bytes: size of the memory.
      usable_bytes: what a program gets of it, as libtpu's compiler says when one wants too much.
      clock: cycles a second, to turn the compiler's estimated cycles into time. Derived: the peak over what the matrix
        units do in a cycle. The compiler's model of a large product agrees with it on v5e; on the others it is
        unchecked.
      ici_bandwidth: bytes a second to other chips, over all links together, in one direction.
    """

    name: str
    flops: float
    hbm_bandwidth: float
    hbm_bytes: int
    usable_bytes: float
    clock: float
    ici_bandwidth: float


CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("v4", 275e12, 1228e9, 32 * GIB, 30.75 * GIB, 1.05e9, 300e9),
        Chip("v5e", 197e12, 819e9, 16 * GIB, 15.75 * GIB, 1.5e9, 200e9),
        Chip("v5p", 459e12, 2765e9, 95 * GIB, 95.73 * GIB, 1.75e9, 600e9),
        Chip("v6e", 918e12, 1640e9, 32 * GIB, 31.24 * GIB, 1.75e9, 448e9),
    )
}
