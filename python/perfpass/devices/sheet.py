"""How devices are shown: a list, and everything known of one."""

from __future__ import annotations

from collections.abc import Sequence

from perfpass.devices.mig import MigProfile
from perfpass.devices.spec import Device
from perfpass.text import columns, digits, paragraph, printable, size


def device_list(devices: Sequence[Device]) -> str:
    """One line per device."""
    rows: list[tuple[str, ...]] = [("id", "memory", "GB/s", "fp32", "fp16", "bf16", "W", "MIG", "name")]
    for d in devices:
        rates = [_short(d.peak_flops[p] / 1e12) if p in d.peak_flops else "-" for p in ("fp32", "fp16", "bf16")]
        rows.append(
            (
                d.id,
                size(d.memory_bytes),
                _short(d.memory_bandwidth_bytes_s / 1e9),
                *rates,
                digits(d.power_limit_w),
                "yes" if d.mig_geometry else "-",
                printable(d.name).removeprefix("NVIDIA "),
            )
        )
    return columns(rows, right=(1, 2, 3, 4, 5, 6), indent="")


def _short(value: float) -> str:
    """Three significant digits: the list is for choosing, the sheet has all."""
    return digits(float(f"{value:.3g}"))


def device_sheet(device: Device) -> str:
    """Everything known of one device, with sources."""
    d = device
    rates = ", ".join(f"{p} {digits(rate / 1e12)}" for p, rate in d.peak_flops.items())
    left = f" ({size(d.usable_bytes)} without check bits)" if d.inline_ecc else ""
    facts = [
        ("id", d.id),
        ("kind", f"{d.vendor} {d.kind}, {d.architecture or 'architecture not stated'}"),
        ("peak", f"{rates} (dense TFLOP/s, TOP/s for int8)"),
        ("memory", f"{size(d.memory_bytes)} {d.memory_type}{left}, {digits(d.memory_bandwidth_bytes_s / 1e9)} GB/s"),
        ("caches", f"L2 {size(d.l2_bytes)}" + (f", L3 {size(d.l3_bytes)}" if d.l3_bytes else "")),
        ("cores", f"{d.sm_count} {'cores' if d.kind == 'cpu' else 'SMs' if d.vendor == 'NVIDIA' else 'compute units'}"),
        ("clock", f"{digits(d.base_clock_hz / 1e6)} to {digits(d.clock_hz / 1e6)} MHz"),
        ("power", f"{digits(d.idle_power_w)} W idle, {digits(d.power_limit_w)} W limit"),
        ("links", _links(d)),
        ("launched", d.launch_date or "not stated"),
        ("aliases", ", ".join(d.aliases) or "-"),
    ]
    if d.compute_capability:
        facts.insert(2, ("capability", "{}.{}".format(*d.compute_capability)))
    lines = [printable(d.name), *(paragraph(label, text) for label, text in facts)]
    if d.mig:
        rows: list[tuple[str, ...]] = [
            ("MIG profile", "SMs", "memory", "per GPU", "CE", "DEC", "ENC", "JPEG", "OFA", "starts at")
        ]
        rows += [_mig_row(p) for p in d.mig.profiles]
        lines += ["", columns(rows, right=tuple(range(1, 9))), paragraph("listing", d.mig.listing)]
    if d.estimated:
        lines += ["", paragraph("estimated", ", ".join(d.estimated))]
    lines += [paragraph("note", note) for note in d.notes]
    by_source: dict[str, list[str]] = {}
    for figure, source in d.sources.items():
        by_source.setdefault(source, []).append(figure)
    lines += ["", *(paragraph("source", f"{source}: {', '.join(f)}") for source, f in by_source.items())]
    return "\n".join(lines)


def _mig_row(p: MigProfile) -> tuple[str, ...]:
    """A profile as `nvidia-smi mig -lgip` and `-lgipp` list it."""
    counts = (p.max_instances, p.engines.copy, *p.engines.media)
    return (p.name, str(p.sm_count), size(p.memory_bytes), *map(str, counts), ", ".join(map(str, p.starts)))


def _links(device: Device) -> str:
    links = []
    if device.pcie_bandwidth_bytes_s:
        links.append(f"host {digits(device.pcie_bandwidth_bytes_s / 1e9)} GB/s one way")
    if device.nvlink_bandwidth_bytes_s:
        name = {"NVIDIA": "NVLink", "AMD": "Infinity Fabric"}.get(device.vendor, "to others")
        peers = f", to {device.link_peers} others" if device.link_peers else ""
        bridge = f", a bridge joins {device.link_group}" if device.link_group else ""
        links.append(f"{name} {digits(device.nvlink_bandwidth_bytes_s / 1e9)} GB/s both ways{peers}{bridge}")
    return ", ".join(links) or "-"
