"""The allocators in plain Python: segments as lists of [size, used], searched from end to end."""

from __future__ import annotations

MIB = 1 << 20


class _Pools:
    """Segments of blocks in address order. A block is [size, event block or None]; an address is (segment, offset)."""

    def __init__(self) -> None:
        self.segments: dict[int, list[list]] = {}
        self.made = 0

    def new_segment(self, size: int) -> int:
        self.made += 1
        self.segments[self.made] = [[size, None]]
        return self.made

    def free_blocks(self):
        for number, blocks in self.segments.items():
            for index, block in enumerate(blocks):
                if block[1] is None:
                    yield block[0], number, sum(b[0] for b in blocks[:index]), index

    def take(self, number: int, index: int, owner: int, size: int | None) -> int:
        block = self.segments[number][index]
        if size is not None:
            self.segments[number].insert(index + 1, [block[0] - size, None])
            block[0] = size
        block[1] = owner
        return block[0]

    def give(self, owner: int) -> None:
        for blocks in self.segments.values():
            for block in blocks:
                if block[1] == owner:
                    block[1] = None
                    for index in range(len(blocks) - 1, 0, -1):
                        if blocks[index][1] is None and blocks[index - 1][1] is None:
                            blocks[index - 1][0] += blocks.pop(index)[0]
                    return

    def reserved(self) -> int:
        return sum(b[0] for blocks in self.segments.values() for b in blocks)


def _run(events, serve, pools_of) -> dict[str, int]:
    live: dict[int, tuple[int, int]] = {}
    out = {"peak_requested": 0, "peak_allocated": 0, "peak_reserved": 0, "failed_event": -1}
    pools = pools_of()
    for number, (block, size) in enumerate(events):
        if size < 0:
            requested, _ = live.pop(block)
            if requested:
                for pool in pools:
                    pool.give(block)
            continue
        taken = serve(block, size) if size else 0
        if taken is None:
            out["failed_event"] = number
            break
        live[block] = (size, taken)
        now = {
            "peak_requested": sum(r for r, _ in live.values()),
            "peak_allocated": sum(t for _, t in live.values()),
            "peak_reserved": sum(p.reserved() for p in pools),
        }
        for name, value in now.items():
            out[name] = max(out[name], value)
    return out


def caching(events, limit: int, max_split: int, divisions: int) -> dict[str, int]:
    small, large = _Pools(), _Pools()

    def rounded(size: int) -> int:
        if size < 512:
            return 512
        unit = 512
        if divisions > 1 and size > 512 * divisions:
            unit = max(1, (1 << (size.bit_length() - 1)) // divisions)
        return -(-size // unit) * unit

    def serve(block: int, requested: int) -> int | None:
        size = rounded(requested)
        pool = small if size <= MIB else large
        segment = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        fits = sorted(f for f in pool.free_blocks() if f[0] >= size)
        if fits and (
            (size < max_split and fits[0][0] >= max_split) or (size >= max_split and fits[0][0] >= size + 20 * MIB)
        ):
            fits = []
        if fits:
            _, number, _, index = fits[0]
        else:
            index = 0
            number = grow(pool, size, segment)
            if number is None:
                return None
        rest = pool.segments[number][index][0] - size
        splits = rest >= 512 if pool is small else size < max_split and rest > MIB
        return pool.take(number, index, block, size if splits else None)

    def grow(pool: _Pools, size: int, segment: int) -> int | None:
        def fits() -> bool:
            return small.reserved() + large.reserved() + segment <= limit

        if fits():
            return pool.new_segment(segment)
        if max_split < 1 << 50:
            wanted, released = max(size, max_split), 0
            enough = sorted(f for f in pool.free_blocks() if f[0] >= wanted)
            for found, number, _, _ in enough[:1] or sorted(pool.free_blocks(), reverse=True):
                if released < wanted and found >= max_split:
                    released += found
                    del pool.segments[number]
            if released >= wanted and fits():
                return pool.new_segment(segment)
        for each in (small, large):
            for number in [n for n, blocks in each.segments.items() if len(blocks) == 1 and blocks[0][1] is None]:
                del each.segments[number]
        return pool.new_segment(segment) if fits() else None

    return _run(events, serve, lambda: (small, large))


def arena(events, initial: int, dead: int, power_of_two: bool) -> dict[str, int]:
    pool = _Pools()
    region = -(-initial // 256) * 256

    def serve(block: int, requested: int) -> int:
        nonlocal region
        size = -(-requested // 256) * 256
        fits = sorted(f for f in pool.free_blocks() if f[0] >= size)
        if fits:
            _, number, _, index = fits[0]
        else:
            index, grown = 0, False
            while power_of_two and region < size:
                region, grown = region * 2, True
            number = pool.new_segment(region if power_of_two else size)
            if power_of_two and not grown:
                region *= 2
        found = pool.segments[number][index][0]
        return pool.take(number, index, block, size if found >= 2 * size or found - size >= dead else None)

    return _run(events, serve, lambda: (pool,))


def pattern(events) -> int:
    """The size of the one buffer: every gap between live blocks is looked at."""
    live: dict[int, tuple[int, int]] = {}
    end = 0
    for block, size in events:
        if size < 0:
            live.pop(block, None)
            continue
        if not size:
            continue
        spans = sorted(live.values())
        gaps, last = [], 0
        for start, length in spans:
            if start - last >= size:
                gaps.append((start - last - size, last))
            last = max(last, start + length)
        offset = min(gaps)[1] if gaps else spans[-1][0] + spans[-1][1] if spans else 0
        live[block] = (offset, size)
        end = max(end, offset + size)
    return end


def storage(events, shares) -> tuple[list[int], int]:
    """TVM: the storage of each block in order of allocation, and the bytes of all storage."""
    sizes: list[int] = []
    free: list[int] = []  # storages, in the order in which they were freed
    of: dict[int, int] = {}
    order = []
    for number, (block, size) in enumerate(events):
        if size < 0:
            free.append(of[block])
            continue
        larger = [s for s in free if size <= sizes[s] <= 16 * size]
        smaller = [s for s in free if size // 16 <= sizes[s] < size]
        if shares[number] and larger:
            found = min(larger, key=lambda s: (sizes[s], free.index(s)))
        elif shares[number] and smaller:
            found = max(smaller, key=lambda s: (sizes[s], free.index(s)))
        else:
            found = len(sizes)
            sizes.append(0)
        if found in free:
            free.remove(found)
        sizes[found] = max(sizes[found], size)
        of[block] = found
        order.append(found)
    return order, sum(sizes)
