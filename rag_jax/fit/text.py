"""HOST. A report as text for people, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from rag_jax.config import Config, has_towers
from rag_jax.fit.advice import Advice
from rag_jax.fit.batches import passages_of_a_question
from rag_jax.fit.report import Part, Report, Times
from rag_jax.models.hf import variant_name
from rag_jax.tpu.chips import GIB
from rag_jax.training.pretrain import TARGET_WIDTH

ESTIMATE = "AOT estimate, never compared with a chip"


def to_text(report: Report) -> str:
    """Lines of at most 120 characters."""
    step, lines = report.step, _head(report)
    lines += ["", "Train step, GiB of HBM a chip"]
    lines += [f"  {name:<24}{size / GIB:>9.2f}" for name, size in _sizes(report).items()]
    lines += [f"  {'peak':<24}{step.peak / GIB:>9.2f}  of {step.capacity / GIB:.2f}{_beyond(step)}"]
    if step.refusal and not (report.memory.compiled and step.over):  # a compiler's number says more than its words
        lines += [f"  {step.refusal}"]
    if step.times:
        lines += ["", f"Train step, ms ({ESTIMATE})", *_times(step.times), *_speed(report, step.times)]
        lines += [f"  bound by {report.bound}"]
    lines += ["", *_retrieval(report), *_decode(report)] if report.whole else []
    if report.advice:
        lines += ["", "What would make the train step fit, with about what peak, GiB"]
        lines += [_advice(one) for one in report.advice]
    return "\n".join(lines)


def _head(report: Report) -> list[str]:
    plan = report.plan
    chips = f"{plan.topology}, {plan.chips} chip" + "s" * (plan.chips > 1)
    verdict = f"fits {chips}" if report.fits else f"does not fit {chips}"
    if report.step.over:
        about = "" if report.memory.compiled else "about "
        verdict += f": the train step is {about}{report.step.over / GIB:.2f} GiB over"
    return [verdict, *_SIZES[plan.trains](report)]


def _rag_sizes(report: Report) -> list[str]:
    plan, c = report.plan, report.plan.config
    where = "in the step" if c.index.in_step else f"by the hosts ({_searched(c)})"
    count = f"{plan.passages:,} passages" if c.index.in_step or plan.searches_from_host else "passages"
    found = "closed book" if c.retriever == "none" else f"{count} found {where}, k={c.k}"
    sizes = f"{plan.questions} questions a step, sources of {report.width} tokens, answers of "
    sizes += f"{c.data.max_target_tokens}; {c.model.dtype}, {_settings(c)}"
    return [found, sizes + (f", accumulate={plan.accumulate}" if plan.accumulate > 1 else "")]


def _tower_sizes(report: Report) -> list[str]:
    plan, c = report.plan, report.plan.config
    each, d = passages_of_a_question(plan), c.data
    passages = f"{each} passage" + "s" * (each > 1)
    sizes = f"{plan.questions} questions a step of {d.max_question_tokens} tokens, with {passages} of "
    sizes += f"{d.max_passage_tokens} each; {c.model.dtype}, {_settings(c)}"
    return ["both towers; the other passages of a batch are negatives", sizes]


def _reader_sizes(report: Report) -> list[str]:
    questions = f"{report.plan.questions} questions a step, sources of {report.width} tokens, answers of {TARGET_WIDTH}"
    return ["the generator as a reader of one passage a question, on one chip", f"{questions}; float32"]


_SIZES: dict[str, Callable[[Report], list[str]]] = {"rag": _rag_sizes, "towers": _tower_sizes, "reader": _reader_sizes}


def _settings(config: Config) -> str:
    return f"parameters {config.sharding.params}, remat={config.model.remat}"


def _searched(config: Config) -> str:
    return config.index.backend if has_towers(config) else config.retriever


def _sizes(report: Report) -> dict[str, float]:
    m = report.memory
    return {
        "parameters": m.parameters,
        "optimiser state": m.optimizer,
        "index": m.index,
        "passage tokens": m.tokens,
        "batch, padding of tiles": m.batch,
        "activations": m.activations,
    }


def _beyond(part: Part) -> str:
    return f", {part.over / GIB:.2f} over" if part.over else ""


def _times(times: Times) -> list[str]:
    lines = [
        f"  {'matrix products':<24}{times.products * 1e3:>9.2f}  {times.flops / 1e12:.3g} TFLOP",
        f"  {'other work, by memory':<24}{times.other * 1e3:>9.2f}  {times.hbm_bytes / 1e9:.3g} GB with the products'",
        f"  {'on the chip':<24}{times.on_chip * 1e3:>9.2f}",
    ]
    lines += [
        f"  {one.operation:<24}{one.seconds * 1e3:>9.2f}  {one.count} exchanges, {one.bytes / 1e6:,.0f} MB"
        for one in times.exchanges
    ]
    if times.exchanges:
        lines += [f"  {'without overlap':<24}{times.total * 1e3:>9.2f}"]
    if times.loops_counted_once:
        lines += [f"  loops that end on their data, counted once: {times.loops_counted_once}"]
    return lines


def _speed(report: Report, times: Times) -> list[str]:
    questions = report.plan.questions
    return [
        f"  model: {report.model_flops / 1e12:.3g} TFLOP without recomputation, utilisation "
        f"{report.utilisation(times.on_chip):.2f} with exchanges behind other work, "
        f"{report.utilisation(times.total):.2f} without overlap",
        f"  {questions / times.total:,.0f} to {questions / times.on_chip:,.0f} questions a second; "
        f"{times.host_transfers} transfers to the host",
    ]


def _retrieval(report: Report) -> list[str]:
    part, c = report.retrieval, report.plan.config
    if part is None:
        return ["Retrieval: none" if c.retriever == "none" else "Retrieval: by the hosts, in none of these figures"]
    if part.times is None:
        return [_refused("Retrieval", part)]
    share = f", {report.retrieval_share:.1%} of the step" if report.retrieval_share is not None else ""
    return [
        f"Retrieval alone: {part.times.total * 1e3:.2f} ms, {part.times.exchanging * 1e3:.2f} of it exchanges{share}; "
        f"peak {part.peak / GIB:.2f} GiB{_beyond(part)}"
    ]


def _decode(report: Report) -> list[str]:
    part, c = report.decode, report.plan.config
    if part is None:
        return []
    if part.times is None:
        return [_refused("Decoding", part), *(_advice(one) for one in report.decode_advice)]
    kind = variant_name(c.variant) + (f", {c.eval.decoding}" if c.variant == "sequence" else "")
    lines = [
        f"Decoding ({kind}): {report.decoded} questions, k={c.eval.k}, beams={c.eval.beams}: "
        f"{part.times.total * 1e3:.1f} ms if all answers are longest; peak {part.peak / GIB:.2f} GiB{_beyond(part)}"
    ]
    if report.token:
        lines.append(
            f"  one token of them {report.token.total * 1e3:.3f} ms, {report.token.hbm_bytes / 1e6:,.1f} MB moved"
        )
    if part.times.loops_counted_once:
        lines.append("  scoring of candidates, which ends on its data, is counted as one pass")
    return [*lines, *(_advice(one) for one in report.decode_advice)]


def _refused(name: str, part: Part) -> str:
    if not part.peak:
        return f"{name} does not fit: {part.refusal}"
    return f"{name} does not fit: peak {part.peak / GIB:.2f} GiB of {part.capacity / GIB:.2f}{_beyond(part)}"


def _advice(one: Advice) -> str:
    return f"  {one.peak / GIB:>9.2f}  {one.change}{'' if one.enough else ' (not enough alone)'}"


def to_dict(report: Report) -> dict[str, Any]:
    """The report as JSON's types; bytes and seconds, without units of people."""
    plan, step = report.plan, report.step
    times = step.times
    return {
        "fits": report.fits,
        "trains": plan.trains,
        "topology": plan.topology,
        "chips": plan.chips,
        "passages": plan.passages,
        "source_width": report.width,
        "memory": dataclasses.asdict(report.memory) | {"peak": report.memory.peak, "over": report.memory.over},
        "step": _part(step),
        "model_flops": report.model_flops,
        "utilisation": None if times is None else report.utilisation(times.on_chip),
        "utilisation_without_overlap": None if times is None else report.utilisation(times.total),
        "bound": report.bound,
        "retrieval": report.retrieval and _part(report.retrieval),
        "retrieval_share": report.retrieval_share,
        "decode": report.decode and _part(report.decode) | {"questions": report.decoded},
        "token": report.token and _times_dict(report.token),
        "advice": [dataclasses.asdict(one) for one in report.advice],
        "decode_advice": [dataclasses.asdict(one) for one in report.decode_advice],
        "estimate": ESTIMATE,
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "peak": part.peak,
        "capacity": part.capacity,
        "over": part.over,
        "refusal": part.refusal,
        "compile_seconds": part.compile_seconds,
        "times": None if part.times is None else _times_dict(part.times),
    }


def _times_dict(times: Times) -> dict[str, Any]:
    sums = {"on_chip": times.on_chip, "exchanging": times.exchanging, "total": times.total}
    return dataclasses.asdict(times) | sums
