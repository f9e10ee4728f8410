"""What a forward pass asks of the values of tensors, of which a trace has shapes alone.

A value follows from constants of the program, or from an assumption where the model's own weights decide: which experts
a router chooses, how many boxes a detector finds. Assumptions stand at these sources; everything behind them is
computed from them when the program asks (`nonzero`, a mask as index, `item`), and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from perfpass.graph.assumed import DETECTIONS, EXPERTS, FRAMES, Assumed, merged
from perfpass.importers.torch_operators import KIND_OF, tensors_in, written_arguments

_MOST_ELEMENTS = 1 << 26  # of a value: half a GB of int64
_LEVELS = 64  # of a tensor that counts as a choice between levels (feature pyramids have four or five)
_BOX = 96  # pixels a side: COCO's objects of medium size have 32 to 96
# Results that are the same for every value of their input.
_FILLED = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
_UNSET = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"})
_COMPARED = frozenset({"gt", "ge", "lt", "le"})
_BOTH = frozenset({"logical_and", "bitwise_and", "__and__"})
_SAME_MASK = frozenset({"reshape", "slice", "split", "copy", "identity", "gather", "transpose", "concat"})
_PROBABILITY = frozenset({"sigmoid", "softmax"})
# What leaves a score a score.
_SAME_SCORE = _SAME_MASK | {"mul", "sqrt", "reduce_max", "max_pool", "where", "expand", "cast"}
# What leaves a duration in frames a duration: masks, a speed, the one that was added before the logarithm.
_SAME_DURATION = frozenset({"mul", "add", "sub"})
_CHOSEN = {"topk": 1, "max": 1, "min": 1, "argmax": 0, "argmin": 0, "sort": 1, "argsort": 0}  # which result has indices

Value = Callable[[], "torch.Tensor | None"]
Results = Callable[[], "tuple[torch.Tensor | None, ...] | None"]


class Values:
    """Values of tensors on the meta device, as far as they follow from the program and from ``assume``.

    ``assume``: `perfpass.graph.assumed`; ``say`` takes notes of what else is assumed. ``used`` are the assumptions that
    a value was made of.
    """

    def __init__(self, assume: Mapping[str, int], say: Callable[[str], None]) -> None:
        self.assume, self._say = dict(assume), say
        self.used: dict[str, Assumed] = {}
        self._of: dict[int, Value] = {}
        self._sharing: dict[int, set[int]] = {}  # storage -> ids of the tensors over it that have a value
        self._by_score: dict[int, bool] = {}  # id(mask made by comparing floats) -> whether it leaves all in
        self.tokens: set[int] = set()  # ids of whole-numbered inputs
        self._probabilities: set[int] = set()
        self._sides: set[int] = set()
        self._rounded: set[int] = set()
        self._exponentials: set[int] = set()
        self._bounds: dict[int, bool] = {}  # id(mask of what is above a negative number or below a positive) -> above
        self._selected: set[int] = set()  # ids of tensors behind a selection whose size was assumed
        self._all: tuple[Collection[int], ...] = (
            *(self._of, self._by_score, self.tokens, self._probabilities, self._sides, self._rounded),
            *(self._exponentials, self._bounds, self._selected),
        )

    # -- what is asked ---------------------------------------------------------------------------------------------

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The values of a tensor, on the host; None where they are not known."""
        if tensor.device.type != "meta":
            return tensor
        make = self._of.get(id(tensor))
        return make() if make is not None else None

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether anything is known or assumed of a tensor's values."""
        key = id(tensor)
        for known in self._all:  # noqa: SIM110 - asked of every tensor of every call, and a generator takes thrice as long
            if key in known:
                return True
        return False

    def seen(self) -> tuple[int, ...]:
        """Of how many tensors something is known, by what."""
        return (len(self.used), *map(len, self._all))

    def selected(self, mask: torch.Tensor) -> int | None:
        """How many elements of a mask hold; None where nothing is known and it was not made by comparing scores."""
        value = self.of(mask)
        if value is not None:
            return int(value.count_nonzero())
        leaves_all = self._by_score.get(id(mask))
        if leaves_all is None:
            return None
        return mask.numel() if leaves_all else self._detections(mask.numel())

    def assumes(self, mask: torch.Tensor) -> bool:
        """Whether the number that `selected` gives is an assumption."""
        return id(mask) not in self._of and self._by_score.get(id(mask)) is False

    def kept(self, boxes: torch.Tensor) -> int:
        """How many boxes non-maximum suppression keeps: all proposals, and all detections that are assumed."""
        return self._detections(boxes.shape[0]) if id(boxes) in self._selected else int(boxes.shape[0])

    def result(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """What an operator gives on known values: tensors on the host, or numbers; None where they are not known."""
        given = pytree.tree_map(lambda v: self.of(v) if isinstance(v, torch.Tensor) else v, (args, kwargs))
        before, after = pytree.tree_leaves((args, kwargs)), pytree.tree_leaves(given)
        if any(isinstance(b, torch.Tensor) and a is None for b, a in zip(before, after, strict=True)):
            return None
        return _run(func, *given)

    # -- what is seen ----------------------------------------------------------------------------------------------

    def put(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """A tensor's values."""
        self._set(tensor, lambda: value)

    def select(self, tensor: torch.Tensor) -> None:
        """Remember that a tensor's size was assumed."""
        self._selected.add(id(tensor))

    def note(self, func: Any, name: str, args: tuple, kwargs: dict, results: list[torch.Tensor]) -> None:
        """An operator has run, with these arguments as the program gave them. ``results``: tensors, in order."""
        given = tensors_in([args, kwargs])
        plain = name if name.startswith("__") else name.removesuffix("_")
        written = _written(func, args, kwargs)
        if any(id(t) in self._selected for t in given):
            self._selected.update(id(t) for t in (*results, *written))
        known = plain in _FILLED or (
            all(t.device.type != "meta" or id(t) in self._of for t in given)
            and plain not in _UNSET
            and KIND_OF.get(plain) not in ("random", "dropout")
        )
        if written:
            call = self._call(func, args, kwargs, at_most=max(t.numel() for t in written)) if known else None
            for tensor in written:
                self._forget(tensor)
            if call is not None and len(written) == 1 and written[0].device.type == "meta":
                self._set(written[0], _part(call, 0))
            return
        if not any(t.device.type == "meta" for t in results):
            return
        if known:
            call = self._call(func, args, kwargs, at_most=max(t.numel() for t in results))
            for i, tensor in enumerate(results):
                self._set(tensor, _part(call, i))
            return
        self._sources(plain, args, kwargs, results)

    def _sources(self, name: str, args: tuple, kwargs: dict, results: list[torch.Tensor]) -> None:
        """Where values begin that no program knows, and masks whose size none does."""
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if source is None:
            return
        kind, result = KIND_OF.get(name), results[-1]
        if name in _CHOSEN and len(results) > _CHOSEN[name]:
            self._choice(name, source, args, kwargs, results[_CHOSEN[name]])
        elif name in _COMPARED and id(source) in self._probabilities:
            self._by_score[id(result)] = name == "ge" and isinstance(args[1], int | float) and args[1] <= 0
        elif name in _COMPARED and id(source) in self._selected and not source.is_floating_point():
            self._by_score[id(result)] = True  # few of the places that were found lie at the border
        elif name in _COMPARED and source.is_floating_point() and (above := _is_above(name, args[1])) is not None:
            self._bounds[id(result)] = above
        elif name in _BOTH and {self._bounds.get(id(t)) for t in tensors_in([args])} == {True, False}:
            self._say("values are assumed to lie in an interval around zero that a function is made for")
            self._set(result, lambda: torch.ones(result.shape, dtype=torch.bool))
        elif name == "ne" and id(source) in self.tokens and isinstance(args[1], int):
            self._say("nothing of the input is assumed to be padded")
            self._set(result, lambda: torch.ones(result.shape, dtype=torch.bool))
        elif name in ("ne", "eq") and _are_edges(source, args[1]):
            self._say("a graph's edges are assumed to hold no self loop")
            self._set(result, lambda: torch.full(result.shape, name == "ne"))
        elif name == "ge" and id(source) in self._sides:
            self._by_score[id(result)] = True  # boxes without an area are rare
        elif result.dtype == torch.bool:
            before = [self._by_score[id(t)] for t in tensors_in([args, kwargs]) if id(t) in self._by_score]
            if before:
                holds = all(before) and (name in _BOTH or kind in _SAME_MASK)
                self._by_score.update((id(t), holds) for t in results)
        elif name == "sub" and isinstance(args[1], torch.Tensor) and _memory(source) == _memory(args[1]):
            self._sides.add(id(result))  # of boxes: one coordinate less another
        elif kind in _PROBABILITY or (kind in _SAME_SCORE and self._are_scores(name, args)):
            self._probabilities.update(id(t) for t in results)
        elif name == "ceil" and id(source) in self._selected:  # sizes of boxes, which heat maps are resized to
            self._set(result, lambda: torch.full(result.shape, float(_BOX), dtype=result.dtype))
        elif name == "exp" or (kind in _SAME_DURATION and id(source) in self._exponentials):
            self._exponentials.add(id(result))
        elif name in ("ceil", "round") and id(source) in self._exponentials:  # how long a token of a text is spoken
            self._set(result, lambda: torch.full(result.shape, float(self._frames()), dtype=result.dtype))
        elif name in ("floor", "round", "ceil"):
            self._rounded.add(id(result))
        elif name == "clamp" and id(source) in self._rounded:
            least, most = (args[i] if len(args) > i else kwargs.get(k) for i, k in ((1, "min"), (2, "max")))
            if least is not None and most is not None and 0 <= most - least < _LEVELS:
                self._set(result, lambda: _cycle(result, int(most - least) + 1).add(least).to(result.dtype))
        elif name == "_to_copy" and id(source) in self._selected and _are_corners(result):
            corners = torch.tensor([0, 0, _BOX - 1, _BOX - 1], dtype=result.dtype)
            self._set(result, lambda: corners.expand(result.shape))

    def _are_scores(self, name: str, args: tuple) -> bool:
        """Whether what leaves a score a score was given one; of a choice between two, either."""
        return any(id(t) in self._probabilities for t in (tensors_in([args]) if name == "where" else args[:1]))

    def _choice(self, name: str, source: torch.Tensor, args: tuple, kwargs: dict, result: torch.Tensor) -> None:
        """Indices of the largest along an axis: each of its entries is chosen as often as any other."""
        place = 2 if name == "topk" else 1
        axis = args[place] if len(args) > place else kwargs.get("dim", -1)
        if isinstance(axis, bool) or not isinstance(axis, int) or not source.dim():
            return
        axis %= source.dim()
        of = int(source.shape[axis])
        each = int(result.shape[axis]) if result.dim() == source.dim() else 1
        whole = name in ("sort", "argsort")

        def make() -> torch.Tensor | None:
            if not result.numel():
                return torch.empty(result.shape, dtype=result.dtype)
            rows = result.numel() // max(each, 1)
            if whole:
                index = (torch.arange(rows)[:, None] + torch.arange(each)) % of
            else:
                index = torch.arange(rows * each).reshape(rows, each) % self._experts(of, each, rows)
            if result.dim() < source.dim():
                return index.reshape(result.shape)
            shape = [s for i, s in enumerate(result.shape) if i != axis]
            return index.reshape(*shape, each).movedim(-1, axis)

        self._set(result, make)

    # -- assumptions -----------------------------------------------------------------------------------------------

    def _experts(self, of: int, each: int, rows: int) -> int:
        """Over how many of ``of`` experts ``rows`` tokens are shared that choose ``each``."""
        stated = self.assume.get(EXPERTS)
        over = min(max(stated or of, each), of)
        most = min(of, rows * each)
        least = each if stated else max(each, most // 2)
        found = Assumed(EXPERTS, min(over, most), of, least, most, stated is not None)
        self.used[EXPERTS] = merged(self.used.get(EXPERTS), found)
        return over

    def _detections(self, of: int) -> int:
        found = Assumed.detections(of, self.assume.get(DETECTIONS))
        self.used[DETECTIONS] = merged(self.used.get(DETECTIONS), found)
        return found.value

    def _frames(self) -> int:
        found = Assumed.frames(self.assume.get(FRAMES))
        self.used[FRAMES] = found
        return found.value

    # -- values ----------------------------------------------------------------------------------------------------

    def _set(self, tensor: torch.Tensor, make: Value) -> None:
        found: list[torch.Tensor | None] = []

        def once() -> torch.Tensor | None:
            if not found:
                found.append(make())
            return found[0]

        self._of[id(tensor)] = once
        self._sharing.setdefault(_memory(tensor), set()).add(id(tensor))

    def _forget(self, tensor: torch.Tensor) -> None:
        """What shares memory with a tensor that was written has other values now."""
        for other in self._sharing.pop(_memory(tensor), ()):
            self._of.pop(other, None)

    def _call(self, func: Any, args: tuple, kwargs: dict, at_most: int) -> Results:
        """The operator's results, once: from the values that its arguments have now."""

        def now(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if value.device.type != "meta":
                return _Later(lambda: value)
            # Of a tensor without a value its shape alone is read (`_FILLED`).
            return _Later(self._of.get(id(value), lambda: torch.empty(value.shape, dtype=value.dtype)))

        held = pytree.tree_map(now, (args, kwargs))
        found: list[tuple[torch.Tensor | None, ...] | None] = []

        def call() -> tuple[torch.Tensor | None, ...] | None:
            if not found:
                later = [v for v in pytree.tree_leaves(held) if isinstance(v, _Later)]
                if at_most > _MOST_ELEMENTS or any(v.make() is None for v in later):
                    found.append(None)
                else:
                    given = pytree.tree_map(lambda v: v.make() if isinstance(v, _Later) else v, held)
                    found.append(tuple(tensors_in(_run(func, *given))))
            return found[0]

        return call


class _Later:
    """A tensor among arguments whose value is made when it is needed."""

    def __init__(self, make: Value) -> None:
        self.make = make


def _part(call: Results, of: int) -> Value:
    """One of an operator's results."""

    def value() -> torch.Tensor | None:
        found = call()
        return None if found is None else found[of]

    return value


def _is_above(name: str, bound: Any) -> bool | None:
    """Whether a comparison asks what lies above a negative number (True) or below a positive one (False)."""
    if not isinstance(bound, int | float):
        return None
    above = name in ("gt", "ge")
    return above if bound and (bound < 0) == above else None


def _are_edges(source: torch.Tensor, target: Any) -> bool:
    """Whether these are the two rows of a graph's edges, [2, E]."""
    rows = isinstance(target, torch.Tensor) and source.dim() == target.dim() == 1 and not source.is_floating_point()
    return rows and _memory(source) == _memory(target) and source.storage_offset() != target.storage_offset()


def _are_corners(tensor: torch.Tensor) -> bool:
    """Whether it holds boxes in pixels, which masks are pasted into."""
    return tensor.shape[1:] == (4,) and not tensor.is_floating_point()


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _written(func: Any, args: tuple, kwargs: dict) -> list[torch.Tensor]:
    marked = written_arguments(func)
    return [t for i, name in marked for t in tensors_in(args[i] if i < len(args) else kwargs.get(name))]


def _run(func: Any, args: tuple, kwargs: dict) -> Any:
    """An operator on the host, nothing of its arguments changed."""
    if func._schema.name == "aten::histc":  # for floats alone on the host
        args = (args[0].float(), *args[1:])
    if _written(func, args, kwargs):
        args, kwargs = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, kwargs))
    return func(*args, **(kwargs | {"device": torch.device("cpu")} if kwargs.get("device") is not None else kwargs))


def _cycle(like: torch.Tensor, of: int) -> torch.Tensor:
    """0, 1, ..., of - 1, 0, ... in the shape of a tensor."""
    return (torch.arange(like.numel()) % of).reshape(like.shape)
