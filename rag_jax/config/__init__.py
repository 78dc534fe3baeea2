"""HOST. The settings of an experiment: the schema, its validation, and the way in from a command line.

`configs/*.py` hold `get_config(arg="") -> Config`; train.py and eval.py read it through ml_collections' config_flags:

    --config=configs/world.py:variant=token,k=10 --config.optimizer.learning_rate=1e-5
    --config.freeze=question_encoder              one name
    --config.freeze=question_encoder,generator    several; no quotes, no brackets, no spaces
    --config.freeze=                              none
    --config.freeze='["layers/.{1,2}/bias"]'      a list, for a regex that holds a comma
    --config.eval.k=none                          the empty value of an optional field

The flags themselves are `rag_jax.flags`.
"""

from rag_jax.config.arguments import parse_arg
from rag_jax.config.paper import tested_as_in_the_paper, wikipedia_bart_large
from rag_jax.config.schema import FIELDS, LEAVES, Config, ConfigError, unknown_field
from rag_jax.config.sweep import SweepRun, override_flags, sweep_runs
from rag_jax.config.values import (
    AS_TRAINED,
    as_evaluated,
    finalise,
    from_dict,
    from_json,
    get,
    has_towers,
    k_at_test,
    on_other_devices,
    to_json,
    update,
)

__all__ = [
    "AS_TRAINED",
    "FIELDS",
    "LEAVES",
    "Config",
    "ConfigError",
    "SweepRun",
    "as_evaluated",
    "finalise",
    "from_dict",
    "from_json",
    "get",
    "has_towers",
    "k_at_test",
    "on_other_devices",
    "override_flags",
    "parse_arg",
    "sweep_runs",
    "tested_as_in_the_paper",
    "to_json",
    "unknown_field",
    "update",
    "wikipedia_bart_large",
]
