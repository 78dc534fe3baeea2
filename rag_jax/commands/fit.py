"""HOST. `rag-jax fit`: whether an experiment fits a TPU slice, and how fast it can go there."""

# No `from __future__ import annotations`: typer reads the annotations' values.
import json
import os
import sys
from typing import Annotated

import typer

from rag_jax.commands.plainly import told_plainly


def fit(
    context: typer.Context,
    config: Annotated[str, typer.Option(help="Experiment file, as train.py takes it.", show_default=False)],
    topology: Annotated[str, typer.Option(help="The slice: v5e:4x4, v4:2x2x2, v5p:2x2x2, v6e:2x4, ...")] = "v5e:4x4",
    passages: Annotated[
        int | None,
        typer.Option(
            help="How many; else what the index's manifest says, without one 21,015,324.", min=1, show_default=False
        ),
    ] = None,
    step_only: Annotated[
        bool, typer.Option("--step-only", help="The train step alone, without retrieval alone and decoding.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON: one object, or a list of two where two steps are compiled.")
    ] = False,
) -> None:
    """Compiles train step, retrieval and decoding for TPUs that are not here, and says what they need and take.

    Where towers alone are trained there is nothing but the step; where a tiny model is made from nothing there are two,
    the towers' and the reader's.

    Fields are set as for train.py, by `--config=file.py:k=10` or `--config.train.batch_size=128`. Minutes for a large
    model. Ends with status 1 where something does not fit.

    Examples:
      rag-jax fit --config=configs/nq.py --topology=v5e:4x4

      rag-jax fit --config=configs/nq.py:k=100,train.batch_size=1024 --topology=v5e:2x2 --json
    """
    # What XLA is told about this machine's own programs: libtpu ends the process at a flag that it does not know.
    os.environ.pop("XLA_FLAGS", None)

    import jax
    from absl import flags

    from rag_jax.fit import make_plans, make_report, to_dict, to_text, topology_devices
    from rag_jax.flags import define_flag, from_flag, parse_flags

    argv = ["rag-jax fit", f"--config={config}", *context.args]
    values = flags.FlagValues()
    holder = define_flag(values, argv)
    left = parse_flags(argv, values)[1:]
    if left:
        raise typer.BadParameter(f"unexpected {' '.join(left)}")
    jax.config.update("jax_platforms", "cpu")  # nothing runs; on a machine with a TPU that stays free
    with told_plainly():
        chip, devices = topology_devices(topology)
        plans = make_plans(from_flag(holder), topology, devices, chip, passages)
        reports = [make_report(plan, not step_only, _say_what_is_compiled) for plan in plans]
    if as_json:
        found = [to_dict(report) for report in reports]
        typer.echo(json.dumps(found[0] if len(found) == 1 else found, indent=2))
    else:
        typer.echo("\n\n".join(to_text(report) for report in reports))
    if not all(report.fits for report in reports):
        raise typer.Exit(1)


def _say_what_is_compiled(name: str) -> None:
    print(f"compiling: {name}", file=sys.stderr, flush=True)
