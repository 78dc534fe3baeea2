import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from absl import logging as absl_logging

from rag_jax import config as rag_config
from rag_jax.training import checkpoint
from rag_jax.training.checkpoint import Checkpointer, ConfigurationMismatch


def config_json(**changes):
    values = {name.replace("__", "."): value for name, value in changes.items()}
    return rag_config.to_json(rag_config.finalise(rag_config.update(rag_config.Config(), values)))


def training_state(value=1.0):
    params = {"generator": {"kernel": jnp.full((3, 4), value), "half": jnp.full(2, value, jnp.bfloat16)}}
    optimizer = optax.chain(optax.identity(), optax.scale_by_adam())  # a state with an empty part before the arrays
    state = {"params": params, "optimizer": optimizer.init(params)}
    return state | {"step": jnp.int32(value), "key": jax.random.key(7)}


def abstract(state):
    return jax.eval_shape(lambda: state)


def contents(directory):
    return {path.relative_to(directory): path.stat().st_mtime_ns for path in directory.rglob("*")}


def test_a_state_comes_back_as_it_was(tmp_path):
    saved = training_state(3.0)
    with Checkpointer(tmp_path / "run", config_json()) as checkpoints:
        assert checkpoints.latest_step() is None
        assert checkpoints.save(3, saved)
    with Checkpointer(tmp_path / "run", config_json()) as checkpoints:
        assert checkpoints.latest_step() == 3
        restored = checkpoints.restore(abstract(saved))
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for new, old in zip(jax.tree.leaves(restored), jax.tree.leaves(saved), strict=True):
        assert new.dtype == old.dtype
        plain = jax.random.key_data if jnp.issubdtype(old.dtype, jax.dtypes.prng_key) else np.asarray
        np.testing.assert_array_equal(plain(new), plain(old))


def test_only_the_newest_are_kept(tmp_path):
    with Checkpointer(tmp_path, config_json(), keep=2) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, training_state(float(step)))
        assert not checkpoints.save(3, training_state(9.0))
        assert checkpoints.restore(abstract(training_state()))["step"] == 3
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["2", "3"]


def test_checkpoint_of_another_configuration_is_refused(tmp_path):
    with Checkpointer(tmp_path, config_json()) as checkpoints:
        checkpoints.save(1, training_state())
    before = contents(tmp_path)
    with pytest.raises(ConfigurationMismatch) as refusal:
        Checkpointer(tmp_path, config_json(optimizer__learning_rate=1e-4, freeze=("generator",), train__steps=2000))
    message = str(refusal.value)
    assert "optimizer.learning_rate: 3e-05 there, 0.0001 now" in message
    assert 'freeze: [] there, ["generator"] now' in message
    assert "train.steps" not in message
    assert "--workdir" in message
    assert contents(tmp_path) == before


def test_a_longer_run_goes_on_and_config_json_follows(tmp_path):
    with Checkpointer(tmp_path, config_json()) as checkpoints:
        checkpoints.save(1, training_state())
    with Checkpointer(tmp_path, config_json(train__steps=2000, eval__k=7)) as checkpoints:
        assert checkpoints.latest_step() == 1
    written = json.loads((tmp_path / "config.json").read_text())
    assert (written["train"]["steps"], written["eval"]["k"]) == (2000, 7)


def test_a_directory_without_checkpoints_takes_any_configuration(tmp_path):
    Checkpointer(tmp_path, config_json()).close()
    Checkpointer(tmp_path, config_json(k=7)).close()
    assert json.loads((tmp_path / "config.json").read_text())["k"] == 7


def test_checkpoints_without_a_configuration_are_refused(tmp_path):
    with Checkpointer(tmp_path, config_json()) as checkpoints:
        checkpoints.save(1, training_state())
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigurationMismatch, match=r"no config\.json"):
        Checkpointer(tmp_path, config_json())


def test_fields_that_may_differ_exist():
    fields = rag_config.Config()
    for name in checkpoint.MAY_DIFFER:
        rag_config.get(fields, name)


def test_a_state_of_another_shape_is_an_error(tmp_path):
    with Checkpointer(tmp_path, config_json()) as checkpoints:
        checkpoints.save(1, training_state())
        other = training_state()
        other["params"]["generator"]["kernel"] = jnp.zeros((3, 5))
        with pytest.raises(ValueError, match=r"params/generator/kernel: stored \(3, 4\), wanted \(3, 5\)"):
            checkpoints.restore(abstract(other))
        del other["optimizer"]
        with pytest.raises(ValueError, match=r"optimizer/1/count: stored \(\), wanted None"):
            checkpoints.restore(abstract(other))


def test_nothing_to_restore_is_an_error(tmp_path):
    with Checkpointer(tmp_path, config_json()) as checkpoints, pytest.raises(FileNotFoundError):
        checkpoints.restore(abstract(training_state()))


def test_orbax_is_quiet_and_we_are_heard(tmp_path, caplog):
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.INFO)
    try:
        with caplog.at_level(logging.INFO, logger="absl"), Checkpointer(tmp_path, config_json()) as checkpoints:
            checkpoints.save(1, training_state())
            checkpoints.restore(abstract(training_state()))
            absl_logging.info("step 1")
    finally:
        absl_logging.set_verbosity(verbosity)
    assert [record.getMessage() for record in caplog.records if record.levelno < logging.WARNING] == ["step 1"]
