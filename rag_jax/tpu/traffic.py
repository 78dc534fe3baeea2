"""HOST. Bytes that an instruction of a compiled program reads from and writes to HBM.

Counted as laid out: a TPU moves whole tiles, so a slice of four columns costs the 128 that they lie in, and one that is
written into whole tiles' parts is read before. What lies in vector memory is free. Slices, gathers and updates in place
cost what they touch, inside fusions too.
"""

from __future__ import annotations

from rag_jax.tpu.hlo import HBM, Computation, Instruction, Program, Shape

FREE = (
    *("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "replica-id"),
    *("opt-barrier", "add-dependency", "domain"),
)
FREE_CALLS = ("ConcatBitcast", "AllocateBuffer", "AssumeGatherIndicesInBound", "Sharding")  # names for what lies there
READ_IN_PART = ("dynamic-slice", "slice", "gather")
WRITTEN_IN_PART = ("dynamic-update-slice", "scatter")


def bytes_of(program: Program, computation: Computation, instruction: Instruction) -> float:
    """Bytes of one run of the instruction; of loops and calls nothing: their computations are priced themselves.

    The end of an asynchronous pair is free, its start is charged with the whole.
    """
    operation = instruction.operation
    if operation in FREE or operation.endswith("-done") or operation in ("while", "conditional", "call"):
        return 0.0
    if instruction.attribute(r'custom_call_target="(\w+)"') in FREE_CALLS:
        return 0.0
    given = [_only(computation, name) for name in instruction.operands]
    if operation == "fusion" or (operation == "async-start" and instruction.called("calls")):
        return _fusion(program, program.computations[instruction.called("calls")[0]], given, _results(instruction))
    if operation.removesuffix("-start") in READ_IN_PART:
        result = _results(instruction)[0]
        rest = sum(_in_hbm(shape) for shape in given[1:] if shape)
        return _part(given[0], result) + rest + _in_hbm(result)
    if operation in WRITTEN_IN_PART:
        update = given[1 if operation == "dynamic-update-slice" else 2]
        rest = sum(_in_hbm(shape) for shape in given[1:] if shape)
        return _change(instruction.shapes[0], update) + rest
    results = _results(instruction)
    return sum((_in_hbm(shape) for shape in (*given, *results) if shape), 0.0)


def rearrangements(program: Program, computation: str, at_least: int | float) -> list[Instruction]:
    """Copies, transpositions and gathers of a computation that give arrays of so many bytes or more.

    Fusions that end in one count, and so does bringing an array back from vector memory. Bringing it there as it lies
    does not: it has to be read.
    """
    found = []
    here = program.computations[computation]
    for instruction in here.instructions.values():
        last = instruction
        while last.operation == "fusion":
            inner = program.computations[last.called("calls")[0]]
            last = _plain(inner, inner.root.name)
        if last.operation in ("copy", "transpose", "gather", "reverse", "concatenate"):
            if sum(shape.laid_out() for shape in instruction.shapes) >= at_least:
                found.append(instruction)
        elif last.operation == "copy-start":
            (source,), target = here.instructions[last.operands[0]].shapes, last.shapes[0]
            fetched = source.space == HBM != target.space
            if not fetched and target.laid_out() >= at_least:
                found.append(instruction)
    return found


def _only(computation: Computation, name: str) -> Shape | None:
    """An operand's shape; None for a tuple, whose parts are charged where they are used."""
    shapes = computation.instructions[name].shapes
    return shapes[0] if len(shapes) == 1 else None


def _results(instruction: Instruction) -> tuple[Shape, ...]:
    """What an instruction writes. The start of an asynchronous pair shows its operands and a handle beside that."""
    operation, shapes = instruction.operation, instruction.shapes
    if not operation.endswith("-start") or len(shapes) == 1:
        return shapes
    if operation == "copy-start":
        return shapes[:1]
    arrays = [shape for shape in shapes if shape.dims or shape.space == HBM]
    count = len(instruction.operands)
    return tuple(arrays[count : 2 * count]) or shapes[-1:]


def _in_hbm(shape: Shape) -> float:
    return shape.laid_out() if shape.space == HBM else 0.0


def _part(whole: Shape | None, part: Shape) -> float:
    """Reading a part of an array: at most all of it."""
    if whole is None or whole.space != HBM:
        return 0.0
    if len(part.dims) != len(whole.dims):  # a gather may drop or add dimensions: then its elements are counted
        return min(part.bytes, whole.laid_out())
    return min(whole.laid_out(part.dims), whole.laid_out())


def _change(whole: Shape, part: Shape | None) -> float:
    """Writing a part of an array in place; where it fills tiles only in part, they are read first."""
    if whole.space != HBM or part is None:
        return 0.0
    touched = _part(whole, part)
    return touched if touched == part.bytes else 2 * touched


def _fusion(program: Program, body: Computation, given: list[Shape | None], results: tuple[Shape, ...]) -> float:
    """What a fusion reads of its operands, and what it writes."""
    total = 0.0
    for number, shape in enumerate(given):
        if shape is not None and shape.space == HBM and number in body.parameters:
            total += _read(program, body, body.parameters[number].name, shape)
    root = _plain(body, body.root.name)
    parts = [_plain(body, name) for name in root.operands] if root.operation == "tuple" else [root]
    for part, shape in zip(parts, results, strict=False):
        total += _written(program, body, part, shape)
    return total


def _plain(body: Computation, name: str) -> Instruction:
    """The instruction behind bitcasts."""
    instruction = body.instructions[name]
    return _plain(body, instruction.operands[0]) if instruction.operation == "bitcast" else instruction


def _written(program: Program, body: Computation, part: Instruction, shape: Shape) -> float:
    """What one result of a fusion costs: all of it, or what an update in place touches."""
    if part.operation == "fusion":
        inner = program.computations[part.called("calls")[0]]
        root = _plain(inner, inner.root.name)
        return _written(program, inner, root, shape) if root.operation != "tuple" else _in_hbm(shape)
    if part.operation in WRITTEN_IN_PART and part.shapes[0].elements == shape.elements:
        update = _only(body, part.operands[1 if part.operation == "dynamic-update-slice" else 2])
        return _change(_placed(part.shapes[0], shape), update)
    return _in_hbm(shape)


def _placed(inside: Shape, outside: Shape) -> Shape:
    """An array's shape inside a fusion, in the memory space that only the outside tells."""
    return Shape(inside.dtype, inside.dims, inside.order, inside.tile, outside.space)


def _read(program: Program, body: Computation, name: str, shape: Shape) -> float:
    """Bytes that a computation reads of one of its values, which lies in memory as `shape`."""
    total = 0.0
    for user in body.users(name):
        first = user.operands[0] == name and name not in user.operands[1:]
        if user.operation == "bitcast":
            total += _read(program, body, user.name, _placed(user.shapes[0], shape))
        elif user.operation in READ_IN_PART and first:
            total += _part(shape, user.shapes[0])
        elif user.operation in WRITTEN_IN_PART and first:
            pass  # in place: the write is charged for what it touches
        elif user.operation == "fusion":
            inner = program.computations[user.called("calls")[0]]
            for number, operand in enumerate(user.operands):
                if operand == name and number in inner.parameters:
                    total += _read(program, inner, inner.parameters[number].name, shape)
            if _plain(inner, inner.root.name).operation == "parameter":  # a fusion that only names its operand anew
                total += _read(program, body, user.name, _placed(user.shapes[0], shape))
        else:
            total += shape.laid_out()
    return min(total, shape.laid_out())
