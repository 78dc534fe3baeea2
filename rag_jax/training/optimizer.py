"""DEVICE. Adam, and who is trained at which rate: an ordered table of (path pattern -> schedule, or None = frozen).

The first pattern that matches a parameter's path decides. Frozen parameters are split off with `partition` before
anything is differentiated: they have no gradient and no optimiser state, so freezing saves their memory too.

    rules = make_rules(learning_rate=3e-5, steps=1000, freeze=("question_encoder",))
    trainable, frozen = partition(params, rules)
    optimizer = make_optimizer(rules, clip_norm=0.1)
    gradient = jax.grad(lambda trainable: loss(merge(trainable, frozen)))(trainable)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from flax import traverse_util
from jaxtyping import Array, Float, Int

Schedule = Callable[[Any], Any]
# The ends of the names of biases and of norms' gains. Shapes do not tell: scanned layers give both one more axis.
NOT_DECAYED = ("bias", "scale")


class Rule(NamedTuple):
    """One row of the table.

    Attributes:
      pattern: a regex for a parameter's path ('generator/decoder_layers/attention/query/kernel'). It has to match from
        the start of the path to the end of one of its parts, so a group's plain name stands for all that lies in it.
      schedule: number of updates made so far -> learning rate; None = frozen.
    """

    pattern: str
    schedule: Schedule | None

    def matches(self, path: str) -> bool:
        """Whether this row is about the parameter at `path`."""
        return re.match(rf"(?:{self.pattern})(?:/|$)", path) is not None


def make_schedule(kind: str, peak: float, warmup_steps: int, steps: int) -> Schedule:
    """Linear warm-up to `peak`, then `kind`: 'constant', or 'linear' or 'cosine' down to 0 at `steps`.

    The first of `warmup_steps` updates has peak / warmup_steps, not 0 (as in the paper's script), so it is not lost.

    Returns:
      A function of the number of updates made so far (int scalar, traced or not) to a float32 scalar.

    Raises:
      ValueError: another kind.
    """
    decays = {
        "constant": jnp.ones_like,
        "linear": lambda progress: 1 - progress,
        "cosine": lambda progress: 0.5 * (1 + jnp.cos(jnp.pi * progress)),
    }
    if kind not in decays:
        raise ValueError(f"schedule {kind!r} is not one of {', '.join(decays)}")

    def schedule(count: Int[Array, ""] | int) -> Float[Array, ""]:
        done = jnp.asarray(count, jnp.float32)
        warm = jnp.minimum((done + 1) / max(warmup_steps, 1), 1)
        progress = jnp.clip((done - warmup_steps) / max(steps - warmup_steps, 1), 0, 1)
        return peak * warm * decays[kind](progress)

    return schedule


def make_rules(
    *,
    learning_rate: float,
    steps: int,
    retriever_learning_rate: float | None = None,
    schedule: str = "linear",
    warmup_steps: int = 0,
    freeze: Sequence[str] = (),
) -> tuple[Rule, ...]:
    """The usual table: what is frozen, then the question encoder if it has a rate of its own, then everything else.

    Args:
      learning_rate: peak learning rate.
      steps: number of updates of the whole run, where the decay ends.
      retriever_learning_rate: peak learning rate of the question encoder; None = the same.
      schedule: 'linear', 'constant' or 'cosine', see `make_schedule`.
      warmup_steps: number of updates of warm-up, part of `steps`.
      freeze: patterns as in `Rule`.
    """
    rules = [Rule(pattern, None) for pattern in freeze]
    if retriever_learning_rate is not None:
        own = make_schedule(schedule, retriever_learning_rate, warmup_steps, steps)
        rules.append(Rule("question_encoder", own))
    return (*rules, Rule(".*", make_schedule(schedule, learning_rate, warmup_steps, steps)))


def _deciding_rules(params: Any, rules: Sequence[Rule]) -> dict[tuple[str, ...], int]:
    """Path -> the number of the first rule that matches it."""
    found: dict[tuple[str, ...], int] = {}
    for path in traverse_util.flatten_dict(params):
        name = "/".join(path)
        decides = next((number for number, rule in enumerate(rules) if rule.matches(name)), None)
        if decides is None:
            raise ValueError(f"no rule matches parameter {name!r}; end the table with a rule for '.*'")
        found[path] = decides
    return found


def partition(params: Mapping[str, Any], rules: Sequence[Rule]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits nested dicts of anything (arrays, shapes, shardings) into (trainable, frozen); neither copies a leaf.

    Raises:
      ValueError: a pattern that matches no parameter, with the groups that there are; or a parameter without a rule.
    """
    flat = traverse_util.flatten_dict(params)
    names = ["/".join(path) for path in flat]
    for rule in rules:
        if not any(map(rule.matches, names)):
            groups = sorted({"/".join(path[:depth]) for path in flat for depth in (1, 2) if len(path) > depth})
            raise ValueError(f"{rule.pattern!r} matches no parameter; the groups are {', '.join(groups)}")
    deciding = _deciding_rules(params, rules)
    frozen = {path: leaf for path, leaf in flat.items() if rules[deciding[path]].schedule is None}
    trainable = {path: leaf for path, leaf in flat.items() if path not in frozen}
    return traverse_util.unflatten_dict(trainable), traverse_util.unflatten_dict(frozen)


def merge(trainable: Mapping[str, Any], frozen: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `partition`.

    Raises:
      ValueError: a parameter is in both.
    """
    ours, theirs = traverse_util.flatten_dict(trainable), traverse_util.flatten_dict(frozen)
    both = ours.keys() & theirs.keys()
    if both:
        raise ValueError(f"both trainable and frozen: {', '.join(sorted(map('/'.join, both)))}")
    return traverse_util.unflatten_dict(ours | theirs)


def decay_mask(params: Any) -> Any:
    """For every parameter whether weight decay applies: never to biases and norms, which are told by their names."""
    flat = traverse_util.flatten_dict(params)
    return traverse_util.unflatten_dict({path: not path[-1].endswith(NOT_DECAYED) for path in flat})


def scale_by_rules(rules: Sequence[Rule]) -> optax.GradientTransformation:
    """Multiplies each update by minus its rule's learning rate; the state is one counter of updates."""

    def update(updates: Any, state: optax.ScaleByScheduleState, params: Any = None) -> tuple[Any, Any]:
        del params
        rates = {n: rule.schedule(state.count) for n, rule in enumerate(rules) if rule.schedule is not None}
        deciding = _deciding_rules(updates, rules)
        flat = traverse_util.flatten_dict(updates)
        frozen = ["/".join(path) for path in flat if deciding[path] not in rates]
        if frozen:
            raise ValueError(f"updates for frozen parameters: {', '.join(frozen[:3])}; give the trainable part only")
        scaled = {path: jnp.asarray(-rates[deciding[path]], leaf.dtype) * leaf for path, leaf in flat.items()}
        return traverse_util.unflatten_dict(scaled), optax.ScaleByScheduleState(optax.safe_increment(state.count))

    return optax.GradientTransformation(lambda _: optax.ScaleByScheduleState(jnp.zeros([], jnp.int32)), update)


def make_optimizer(
    rules: Sequence[Rule],
    *,
    clip_norm: float = 0.0,
    weight_decay: float = 0.0,
    b1: float = 0.9,
    b2: float = 0.999,
    epsilon: float = 1e-8,
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay (AdamW) over the trainable part of the parameters.

    Args:
      rules: the table; each parameter's learning rate is that of its rule, its decay that rate times `weight_decay`.
      clip_norm: bound on the norm of all gradients together, before Adam; 0 = no clipping.
    """
    return optax.chain(
        optax.clip_by_global_norm(clip_norm) if clip_norm else optax.identity(),
        optax.scale_by_adam(b1, b2, epsilon),
        optax.add_decayed_weights(weight_decay, decay_mask),
        scale_by_rules(rules),
    )


def learning_rates(rules: Sequence[Rule], count: int) -> dict[str, float]:
    """Pattern -> learning rate after `count` updates, for the log; frozen rows are left out."""
    return {rule.pattern: float(rule.schedule(count)) for rule in rules if rule.schedule is not None}
