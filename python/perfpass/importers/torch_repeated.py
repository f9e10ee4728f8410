"""Calls of a program that differ in nothing but the tensors that they are given: the first is run and recorded, of the
others what it recorded is written again.

A network is a few blocks many times, and running an operator through PyTorch's dispatcher and two modes takes twenty
times as long as writing down what it would record. Only calls are repeated of which shapes, strides, types and numbers
say all: none that writes memory, none on tensors whose values are known or assumed, none that leaves a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from perfpass.importers.torch_recorder import Recorder, storage

_PLAIN = frozenset((bool, int, float, str, type(None), torch.dtype, torch.layout, torch.memory_format))
_LONGEST = 256  # of lists: what a long one follows from is kept for every call of it, and compared with its results
_GIVEN = -2  # places of given tensors count down from here; -1 is an input that is left out


@dataclass(frozen=True)
class _Result:
    """A tensor that a call returns: memory of its own, or of the given tensor ``of``, ``offset`` elements further."""

    index: int  # on the tape, as in `_Recorded`
    of: int | None
    is_given: bool
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int


@dataclass(frozen=True)
class _Recorded:
    """What a call wrote. Tensors by number: new ones from 0, the given ones from -2 down, -1 for one left out."""

    tensors: tuple[tuple[str, tuple[int, ...], str], ...]
    nodes: tuple[tuple[str, str, dict[str, int], tuple[int, ...], tuple[int, ...]], ...]
    results: tuple[_Result, ...]
    container: type | None  # of several results


class RepeatedCalls:
    """What calls recorded on one recorder's tape."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: dict[tuple[Any, ...], _Recorded | None] = {}

    def call(self, function: Any, args: tuple, kwargs: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        """``run()``, which calls ``function`` on these arguments or on what stands for them; raises as it does."""
        recorder, given = self._recorder, list[torch.Tensor]()
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            key = _key((args, tuple(kwargs.items())), given)
            indices = recorder.settled(given) if key is not None and given else None
            if indices is not None:
                key = (function, key, _pattern(given, indices))
                found = self._known.get(key)
                if found is not None:
                    return self._again(found, given, indices)
        if indices is None or key in self._known:
            return run()
        before, tensors, nodes = recorder.seen(), len(recorder.tape.tensors), len(recorder.tape.nodes)
        out = run()
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            is_all = recorder.seen() == before
            self._known[key] = self._recorded(out, given, indices, tensors, nodes) if is_all else None
        return out

    def _again(self, found: _Recorded, given: Sequence[torch.Tensor], indices: Sequence[int]) -> Any:
        recorder = self._recorder
        tape, first = recorder.tape, len(recorder.tape.tensors)
        for dtype, shape, role in found.tensors:
            tape.tensor(dtype, shape, role)

        def number(t: int) -> int:
            return first + t if t >= 0 else -1 if t == -1 else indices[_GIVEN - t]

        for kind, source, attributes, inputs, outputs in found.nodes:
            recorder.node(kind, source, attributes.copy(), [*map(number, inputs)], [*map(number, outputs)])
        results = []
        for one in found.results:
            if one.is_given:
                results.append(given[one.of or 0])
                continue
            if one.of is None:
                tensor = torch.empty_strided(one.shape, one.stride, dtype=one.dtype, device="meta")
            else:
                base = given[one.of]
                tensor = torch.as_strided(base, one.shape, one.stride, base.storage_offset() + one.offset)
            recorder.remember(tensor, number(one.index))
            results.append(tensor)
        return results[0] if found.container is None else found.container(results)

    def _recorded(
        self, out: Any, given: Sequence[torch.Tensor], indices: Sequence[int], tensors: int, nodes: int
    ) -> _Recorded | None:
        """What the call that just ended wrote; None where it cannot be written again."""
        tape = self._recorder.tape
        places = {index: _GIVEN - place for place, index in reversed([*enumerate(indices)])}

        def numbers(ids: Sequence[int]) -> tuple[int, ...]:
            return tuple(t - tensors if t >= tensors else -1 if t == -1 else places[t] for t in ids)

        container = None if isinstance(out, torch.Tensor) else type(out)
        returned = [out] if container is None else list(out) if container in (tuple, list) else []
        if not returned or not all(type(t) is torch.Tensor and t.is_meta and not t.is_complex() for t in returned):
            return None
        ids = self._recorder.settled(returned)
        if ids is None:
            return None
        memory = {storage(t): place for place, t in reversed([*enumerate(given)])}
        own: set[int] = set()
        results = []
        try:
            for tensor, index in zip(returned, numbers(ids), strict=True):
                of = next((i for i, t in enumerate(given) if t is tensor), memory.get(storage(tensor)))
                if of is None and (storage(tensor) in own or not _is_whole(tensor)):
                    return None
                if of is not None and tensor.dtype != given[of].dtype:
                    return None
                own.add(storage(tensor))
                offset = 0 if of is None else tensor.storage_offset() - given[of].storage_offset()
                is_given = of is not None and given[of] is tensor
                results.append(_Result(index, of, is_given, tensor.shape, tensor.stride(), tensor.dtype, int(offset)))
            new = tuple((t.dtype, t.shape, t.role) for t in tape.tensors[tensors:] if not t.name)
            if len(new) != len(tape.tensors) - tensors:
                return None
            wrote = tuple(
                (n.kind, n.source, n.attributes.copy(), numbers(n.inputs), numbers(n.outputs))
                for n in tape.nodes[nodes:]
            )
        except KeyError:  # it reads a tensor that it was not given
            return None
        return _Recorded(new, wrote, tuple(results), container)


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory is as large as one's that is made with its shape and strides."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return not tensor.storage_offset() and made.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()


def _pattern(given: Sequence[torch.Tensor], indices: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """Which given tensors are one, are one on the tape, and lie in one memory, and where; None where all differ."""
    if len(given) == 1:
        return None
    memory = [*map(storage, given)]
    if len(set(memory)) == len(given) == len(set(indices)):
        return None
    ids = [*map(id, given)]
    same = (tuple(map(each.index, each)) for each in (ids, [*indices], memory))
    return *same, tuple(int(t.storage_offset()) for t in given)


def _key(value: Any, given: list[torch.Tensor]) -> Any:
    """What a call follows from beside which tensors it is given, which are added to ``given``; None where more is."""
    kind = type(value)
    if kind is torch.Tensor:
        if not value.is_meta or value.is_complex():
            return None
        given.append(value)
        return value.shape, value.stride(), value.dtype
    if kind in _PLAIN:
        return kind, value  # 1 and True and 1.0 are one key, and three types
    if kind is list or kind is tuple:
        if len(value) > _LONGEST:
            return None
        found = []
        for one in value:
            key = _key(one, given)
            if key is None:
                return None
            found.append(key)
        return kind, tuple(found)
    return None
