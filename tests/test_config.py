import dataclasses
import json
import subprocess
import sys

import pytest
from absl import flags

from rag_jax import flags as rag_flags
from rag_jax.config import Config, ConfigError, as_evaluated, finalise, from_dict, from_json, parse_arg, to_json, update

EXPERIMENT = """
from rag_jax import config

def get_config(arg=""):
    return config.update(config.Config(), config.parse_arg(arg))
"""


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "experiment.py"
    path.write_text(EXPERIMENT)
    return f"--config={path}"


def from_command_line(*arguments):
    argv = ["train.py", *arguments]
    values = flags.FlagValues()
    holder = rag_flags.define_flag(values, argv)
    rest = rag_flags.parse_flags(argv, values)
    return rag_flags.from_flag(holder), rest[1:]


def complaint(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        from_command_line(*arguments)
    assert stop.value.code == 2
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text.strip()


def test_the_defaults_are_a_valid_experiment():
    config = finalise(Config())
    assert (config.variant, config.k, config.optimizer.clip_norm) == ("sequence", 5, 0.1)


def test_a_command_line_overrides_every_kind_of_field(experiment):
    config, rest = from_command_line(
        experiment + ":variant=token,k=10",
        "--config.optimizer.learning_rate=1e-5",
        "--config.optimizer.retriever_learning_rate=1e-6",
        "--config.model.dtype=bfloat16",
        "--config.eval.max_questions",
        "7",
        "left over",
    )
    assert (config.variant, config.k, config.model.dtype) == ("token", 10, "bfloat16")
    assert (config.optimizer.learning_rate, config.optimizer.retriever_learning_rate) == (1e-5, 1e-6)
    assert config.eval.max_questions == 7
    assert rest == ["left over"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("question_encoder", ("question_encoder",)),
        ("question_encoder,generator", ("question_encoder", "generator")),
        ("generator/.*bias,question_encoder", ("generator/.*bias", "question_encoder")),
        ('["layers/.{1,2}/bias"]', ("layers/.{1,2}/bias",)),
        ("(question_encoder|generator)/embed", ("(question_encoder|generator)/embed",)),
        ("", ()),
    ],
)
def test_freeze_is_a_list_without_quotes(experiment, text, names):
    config, _ = from_command_line(experiment, f"--config.freeze={text}")
    assert config.freeze == names


def test_an_optional_field_can_be_emptied_again(experiment):
    config, _ = from_command_line(
        experiment + ":optimizer.retriever_learning_rate=1e-6", "--config.optimizer.retriever_learning_rate=none"
    )
    assert config.optimizer.retriever_learning_rate is None


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "--config.optimzer.learning_rate=1",
            "config.optimzer.learning_rate: no such field; did you mean config.optimi",
        ),
        ("--config.learning_rate=1", "did you mean config.optimizer.learning_rate?"),
        ("--config.optimizer=1", "config.optimizer: a group"),
        ("--config.k=five", "config.k=five: invalid literal for int"),
        ("--config.k=0", "config.k: 0 must be at least 1"),
        ("--config.optimizer.retriever_learning_rate=fast", "retriever_learning_rate=fast: could not convert"),
        ("--config.variant=tokn", "config.variant: 'tokn' is not one of sequence, token, fid; did you mean 'token'?"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(experiment, capsys, argument, message):
    text = complaint(capsys, experiment, argument)
    assert message in text
    assert text.startswith("error: ")
    assert len(text.splitlines()) == 1


def test_a_mistake_after_the_colon_is_one_line(experiment, capsys):
    text = complaint(capsys, experiment + ":varant=token")
    assert text == "error: config.varant: no such field; did you mean config.variant?"


def test_a_missing_experiment_file_is_named(capsys):
    assert "configs/nowhere.py" in complaint(capsys, "--config=configs/nowhere.py")
    assert "configs/nowhere.py" in complaint(capsys, "--config=configs/nowhere.py", "--config.k=3")
    assert "--config is needed" in complaint(capsys)


def test_a_main_needs_three_lines(experiment, tmp_path):
    (tmp_path / "main.py").write_text(
        "from absl import app\n"
        "from rag_jax import flags\n"
        "CONFIG = flags.define_flag()\n"
        "app.run(lambda argv: print(flags.from_flag(CONFIG).k), flags_parser=flags.parse_flags)\n"
    )
    command = [sys.executable, str(tmp_path / "main.py"), experiment]
    good, bad = (
        subprocess.run([*command, flag], capture_output=True, text=True, check=False)
        for flag in ("--config.k=7", "--config.kk=7")
    )
    assert (good.returncode, good.stdout.strip()) == (0, "7")
    assert (bad.returncode, bad.stderr.strip()) == (2, "error: config.kk: no such field; did you mean config.k?")


def test_metrics_are_chosen_by_name(experiment, capsys):
    config, _ = from_command_line(experiment, "--config.eval.metrics=rouge_l,bleu1")
    assert config.eval.metrics == ("rouge_l", "bleu1")
    config, _ = from_command_line(experiment, "--config.data.regex_answers", "--config.eval.metrics=em,regex")
    assert config.data.regex_answers
    text = complaint(capsys, experiment, "--config.eval.metrics=em,rouge")
    known = "em, f1, regex, bleu1, qbleu1, rouge_l, accuracy, distinct_trigrams"
    assert f"config.eval.metrics: 'rouge' is not one of {known}; did you mean 'rouge_l'?" in text
    assert "regex takes answers that are regexes" in complaint(capsys, experiment, "--config.eval.metrics=regex")
    text = complaint(capsys, experiment, "--config.data.regex_answers")
    assert "config.eval.metrics: f1 of answers that are regexes" in text
    assert "take some of em, regex, distinct_trigrams" in text


def test_misspelt_field_names_the_nearest():
    with pytest.raises(ConfigError, match=r"^config.optimzer: no such field; did you mean config.optimizer\?$"):
        from_dict({"optimzer": {"learning_rate": 1e-5}})
    with pytest.raises(ConfigError, match=r"config.train.step: .* did you mean config.train.steps\?"):
        from_dict({"train": {"step": 3}})
    with pytest.raises(ConfigError, match="optimizer"):
        Config().optimzer = None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"k": "5"}, "config.k: expected int, got str '5'"),
        ({"k": True}, "config.k: expected int, got bool True"),
        ({"freeze": "generator"}, "config.freeze: expected a tuple of str, got str 'generator'"),
        ({"optimizer": {"b1": None}}, "config.optimizer.b1: expected float, got NoneType None"),
        ({"eval": {"k": 2.0}}, "config.eval.k: expected int or None, got float 2.0"),
        ({"train": 3}, "config.train: expected a group of fields, got int 3"),
    ],
)
def test_an_ill_typed_value_names_path_and_both_types(values, message):
    with pytest.raises(ConfigError) as error:
        from_dict(values)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("optimizer.b2", 1.0),
        ("optimizer.learning_rate", float("nan")),
        ("optimizer.schedule", "polynomial"),
        ("seed", -1),
        ("freeze", ("generator/(",)),
        ("data.max_question_tokens", 161),
        ("optimizer.warmup_steps", 1001),
        ("eval.k", 0),
        ("train.accumulate", 3),
        ("sharding.params", "zero"),
        ("sharding.model", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_path(path, value):
    config = update(Config(), {path: value})
    with pytest.raises(ConfigError, match=f"config.{path}"):
        finalise(config)


def test_whole_optimizer_state_over_cut_parameters_is_a_contradiction():
    values = {"sharding.params": "fsdp", "sharding.optimizer": "replicated"}
    with pytest.raises(ConfigError, match=r"config.sharding.optimizer: replicated, although config.sharding.params"):
        finalise(update(Config(), values))


def test_layers_without_a_loop_recompute_nothing():
    with pytest.raises(ConfigError, match=r"config.model.unroll: with 6 layers in a pass nothing is recomputed"):
        finalise(update(Config(), {"model.unroll": 6, "model.remat": "full"}))
    assert finalise(update(Config(), {"model.unroll": 6})).model.unroll == 6


def test_finalise_finds_types_that_assignment_let_through():
    config = Config()
    config.k = "5"
    with pytest.raises(ConfigError, match=r"config.k: expected int"):
        finalise(config)


def test_a_final_configuration_cannot_change():
    config = finalise(Config())
    for group in (config, config.optimizer):
        with pytest.raises(ConfigError, match="final"):
            group.k = 3
    assert finalise(dataclasses.replace(config, k=3)).k == 3


def test_finalise_leaves_its_argument_alone_and_is_idempotent():
    config = update(Config(), {"k": 9})
    final = finalise(config)
    config.k = 8
    assert config.eval.k is None
    assert (final.k, final.eval.k) == (9, 9)
    assert finalise(final) == final


def test_closed_book_reads_no_passages():
    final = finalise(update(Config(), {"retriever": "none", "k": 10, "optimizer.retriever_learning_rate": 1e-6}))
    assert (final.k, final.eval.k, final.optimizer.retriever_learning_rate) == (1, 1, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"index.backend": "bm25"}, r"config\.index\.backend: 'bm25' .* give config\.retriever=bm25"),
        (
            {"retriever": "bm25", "index.backend": "device", "index.in_step": True},
            r"in_step: .*bm25 has not",
        ),
        ({"retriever": "none", "null_document": "bias"}, r"config\.null_document: in closed book"),
        ({"variant": "fid", "null_document": "bias"}, r"config\.null_document: Fusion-in-Decoder"),
        ({"retriever": "bm25", "null_document": "mlp"}, r"config\.null_document: mlp .*null_document=bias"),
        ({"eval.retriever": "gold", "null_document": "embedding"}, r"config\.null_document: embedding .*=bias"),
        ({"data.hf_compat_input": True, "eval.retriever": "none"}, r"config\.data\.hf_compat_input: closed book"),
    ],
)
def test_retrieval_that_makes_no_sense_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        finalise(update(Config(), values))


def trained_again(config):
    """What evaluation reads of a run before it changes settings."""
    return from_json(to_json(config))


def test_evaluation_may_retrieve_in_another_way():
    values = {"k": 7, "index.backend": "device", "index.in_step": True, "index.directory": "here/index"}
    trained = finalise(update(Config(), values | {"null_document": "bias"}))
    assert trained.eval.retriever == "dpr"
    assert as_evaluated(trained) == trained
    asked = as_evaluated(finalise(update(trained_again(trained), {"eval.retriever": "bm25"})))
    assert (asked.retriever, asked.index.in_step, asked.index.directory) == ("bm25", False, "here/index-bm25")
    assert (asked.k, asked.eval.k, asked.null_document) == (7, 7, "bias")
    asked = as_evaluated(finalise(update(trained_again(trained), {"eval.retriever": "random"})))
    assert asked.index.directory == "here/index"
    closed = as_evaluated(finalise(update(trained_again(trained), {"eval.retriever": "none"})))
    assert (closed.eval.k, closed.null_document) == (1, "none")


def test_fusion_in_decoder_freezes_the_question_encoder():
    final = finalise(update(Config(), {"variant": "fid", "freeze": ("generator/tokens",)}))
    assert final.freeze == ("generator/tokens", "question_encoder")
    assert finalise(final) == final
    assert finalise(update(Config(), {"variant": "fid", "retriever": "bm25"})).freeze == ()


def test_json_round_trips():
    final = finalise(update(Config(), {"freeze": ("question_encoder",), "eval.max_questions": 3, "model.dropout": 0}))
    assert from_json(to_json(final)) == final
    assert json.loads(to_json(final))["freeze"] == ["question_encoder"]
    with pytest.raises(ConfigError, match="varant"):
        from_json(to_json(final).replace("variant", "varant"))


def test_parse_arg_is_typed_and_strict():
    assert parse_arg("") == {}
    assert parse_arg("variant=token,k=10,optimizer.learning_rate=1e-5,eval.k=none") == {
        "variant": "token",
        "k": 10,
        "optimizer.learning_rate": 1e-5,
        "eval.k": None,
    }
    assert parse_arg("freeze=question_encoder,generator,k=3") == {"freeze": ("question_encoder", "generator"), "k": 3}
    assert parse_arg("variant=closed_book,size=base", also=["size"]) == {"variant": "closed_book", "size": "base"}
    for wrong, message in [
        ("size=base", "config.size: no such field"),
        ("k=ten", "config.k: 'ten'"),
        ("k", "config.k: needs a value"),
        ("k=1,k=2", "config.k: given twice"),
        ("optimizer=1", "config.optimizer: no such field"),
        ("k=3,generator", "config.generator: no such field"),
    ]:
        with pytest.raises(ConfigError, match=message):
            parse_arg(wrong)


def test_labels_are_two_words_or_more_found_without_a_search():
    final = finalise(update(Config(), {"data.labels": ("yes", "no")}))
    assert final.data.max_target_tokens == 1  # a label's one token
    assert finalise(final) == final
    for values, message in [
        ({"data.labels": ("yes",)}, r"config\.data\.labels: yes: give two words or more, each once"),
        ({"data.labels": ("yes", "no", "yes")}, r"config\.data\.labels: yes, no, yes: give two"),
        ({"data.labels": ("yes", "no"), "eval.beams": 4}, r"config\.eval\.beams: the likeliest of .* needs no search"),
    ]:
        with pytest.raises(ConfigError, match=message):
            finalise(update(Config(), values))
