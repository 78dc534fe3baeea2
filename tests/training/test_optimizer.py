import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rag_jax.training import optimizer
from rag_jax.training.optimizer import Rule, make_optimizer, make_rules, make_schedule, merge, partition


def parameters():
    """Two groups, with scanned layers (a leading axis of 2) as the models have them."""

    def tower():
        return {
            "embeddings": {"word": {"embedding": jnp.ones((5, 3))}},
            "layers": {
                "attention": {"query": {"kernel": jnp.ones((2, 3, 4)), "bias": jnp.ones((2, 4))}},
                "norm": {"scale": jnp.ones((2, 3)), "bias": jnp.ones((2, 3))},
            },
        }

    return {"question_encoder": tower(), "generator": tower() | {"final_logits_bias": jnp.ones(5)}}


def constant(rate, **settings):
    return make_rules(learning_rate=rate, steps=100, schedule="constant", **settings)


def step(rules, params, gradients=None, **settings):
    """Parameters after one update, all gradients 1 unless given."""
    trainable, frozen = partition(params, rules)
    gradients = jax.tree.map(jnp.ones_like, trainable) if gradients is None else gradients
    chosen = make_optimizer(rules, **settings)
    updates, _ = jax.jit(chosen.update)(gradients, chosen.init(trainable), trainable)
    return merge(optax.apply_updates(trainable, updates), frozen)


def moved(before, after):
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): float(jnp.abs(new - old).max())
        for (path, old), new in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
    }


def test_merge_is_the_inverse_of_partition():
    params = parameters()
    for freeze in [(), ("question_encoder",), (".*/norm",), ("question_encoder", "generator")]:
        trainable, frozen = partition(params, constant(1.0, freeze=freeze))
        again = merge(trainable, frozen)
        assert jax.tree.structure(again) == jax.tree.structure(params)
        assert all(a is b for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(params), strict=True))


def test_frozen_group_has_no_optimizer_state():
    rules = constant(1.0, freeze=("question_encoder",))
    trainable, frozen = partition(parameters(), rules)
    assert (set(trainable), set(frozen)) == ({"generator"}, {"question_encoder"})

    def size(tree):
        return sum(leaf.size for leaf in jax.tree.leaves(tree))

    assert size(make_optimizer(rules).init(trainable)) == 2 * size(trainable) + 2  # two moments and two counters


def test_frozen_parameters_are_not_differentiated():
    params = parameters()
    trainable, frozen = partition(params, constant(1.0, freeze=("question_encoder",)))

    def total(trainable):
        return sum(leaf.sum() for leaf in jax.tree.leaves(merge(trainable, frozen)))

    assert set(jax.grad(total)(trainable)) == {"generator"}
    everything = moved(params, step(constant(0.1, freeze=("question_encoder",)), params))
    assert all((change == 0) == path.startswith("question_encoder") for path, change in everything.items())


def test_the_first_rule_that_matches_decides():
    rate = make_schedule("constant", 1.0, 0, 1)
    params = parameters()
    kept = [Rule("generator/layers/norm", rate), Rule("generator", None), Rule(".*", rate)]
    assert set(partition(params, kept)[0]["generator"]) == {"layers"}
    assert "generator" not in partition(params, [kept[1], kept[0], kept[2]])[0]


def test_a_name_means_a_whole_part_of_the_path():
    rule = Rule("gen", None)
    assert not rule.matches("generator/layers/kernel")
    assert Rule("generator", None).matches("generator/layers/kernel")
    assert Rule(".*bias", None).matches("generator/layers/bias")
    assert not Rule("layers", None).matches("generator/layers/kernel")


def test_a_pattern_that_matches_nothing_is_an_error_with_the_groups():
    with pytest.raises(ValueError, match=r"'reader' matches no parameter; .*generator.*question_encoder"):
        partition(parameters(), constant(1.0, freeze=("reader",)))


def test_a_parameter_without_a_rule_is_an_error():
    with pytest.raises(ValueError, match="no rule matches parameter 'generator/"):
        partition(parameters(), [Rule("question_encoder", None)])


def test_the_retriever_has_its_own_learning_rate():
    rules = constant(0.5, retriever_learning_rate=0.125)
    params = parameters()
    for path, change in moved(params, step(rules, params)).items():
        # Adam's first update is the learning rate, whatever the gradient's size.
        np.testing.assert_allclose(change, 0.125 if path.startswith("question_encoder") else 0.5, rtol=1e-5)
    assert optimizer.learning_rates(rules, 3) == {"question_encoder": 0.125, ".*": 0.5}


def test_weight_decay_spares_norms_and_biases():
    params = parameters()
    zero = jax.tree.map(jnp.zeros_like, params)
    for path, change in moved(params, step(constant(0.5), params, zero, weight_decay=0.1)).items():
        decayed = path.endswith(("kernel", "embedding"))
        np.testing.assert_allclose(change, 0.05 if decayed else 0.0, rtol=1e-6, err_msg=path)


def test_gradients_are_clipped_by_their_common_norm():
    rules = constant(1.0)
    params = {"generator": {"a": jnp.zeros(1), "b": jnp.zeros(1)}}
    gradients = {"generator": {"a": jnp.array([3.0]), "b": jnp.array([4.0])}}
    chosen = make_optimizer(rules, clip_norm=0.1, b1=0.0)
    _, state = chosen.update(gradients, chosen.init(params), params)
    first_moment = optax.tree.get(state, "mu")["generator"]
    np.testing.assert_allclose([first_moment["a"][0], first_moment["b"][0]], [0.06, 0.08], rtol=1e-6)


def test_the_optimizer_is_optax_adamw():
    rules = make_rules(learning_rate=0.1, steps=20, warmup_steps=4)
    params = {"generator": {"kernel": jnp.linspace(-1.0, 1.0, 6)}}
    ours = make_optimizer(rules, weight_decay=0.01, clip_norm=0.5)
    theirs = optax.chain(
        optax.clip_by_global_norm(0.5), optax.adamw(make_schedule("linear", 0.1, 4, 20), weight_decay=0.01)
    )

    def run(chosen):
        def body(carry, _):
            values, state = carry
            updates, state = chosen.update(jax.tree.map(jnp.sin, values), state, values)
            return (optax.apply_updates(values, updates), state), None

        return jax.lax.scan(body, (params, chosen.init(params)), length=10)[0][0]

    np.testing.assert_allclose(run(ours)["generator"]["kernel"], run(theirs)["generator"]["kernel"], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "halfway", "end"),
    [("constant", 2.0, 2.0), ("linear", 1.0, 0.0), ("cosine", 1.0, 0.0)],
)
def test_schedules_warm_up_then_decay(kind, halfway, end):
    schedule = make_schedule(kind, 2.0, 4, 24)
    values = [float(schedule(count)) for count in (0, 3, 4, 14, 24, 99)]
    np.testing.assert_allclose(values, [0.5, 2.0, 2.0, halfway, end, end], atol=1e-6)


def test_an_unknown_schedule_is_an_error():
    with pytest.raises(ValueError, match="'polynomial' is not one of constant, linear, cosine"):
        make_schedule("polynomial", 1.0, 0, 1)


def test_updates_for_frozen_parameters_are_refused():
    params = parameters()
    chosen = make_optimizer(constant(1.0, freeze=("question_encoder",)))
    with pytest.raises(ValueError, match="frozen"):
        chosen.update(params, chosen.init(params), params)
