"""Probes: peak memory, RAPL, NVML, the ring of samples, the size in an allocator's message."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from perfpass.errors import DeviceError
from perfpass.measure import host
from perfpass.measure.collector import requested_bytes
from perfpass.measure.sampler import Ring, Sample, Sampler, conditions, mean_power, sample_into

ROOT = Path(__file__).resolve().parents[2]
FAKE_NVML = ROOT / "tests" / "fakes" / "nvml"


def test_peak_resident_memory_is_that_of_the_configuration():
    if not host.reset_peak_rss():
        pytest.skip("the kernel does not let a process reset its peak (/proc/self/clear_refs)")
    # In a process of its own: what other tests left may be freed at any moment.
    code = (
        "import numpy as np\nfrom perfpass.measure import host\n"
        "host.reset_peak_rss()\nbefore = host.peak_rss_bytes()\n"
        "block = np.ones(60_000_000, np.uint8)\nwith_block = host.peak_rss_bytes()\n"
        "del block\nhost.reset_peak_rss()\nprint(with_block - before, host.peak_rss_bytes() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    rise, left = map(int, done.stdout.split())
    assert rise == pytest.approx(60_000_000, rel=0.1)
    assert left < 30_000_000


def zone(root: Path, name: str, label: str, energy: int, span: int = 2**32) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "name").write_text(label)
    (folder / "energy_uj").write_text(str(energy))
    (folder / "max_energy_range_uj").write_text(str(span))
    return folder


def test_rapl_adds_packages_and_memory_and_unwraps(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 4_000_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 10)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000)
    rapl = host.Rapl(tmp_path)
    before = rapl.read_uj()
    (package / "energy_uj").write_text(str(4_000_000_000 + 5_000_000 - 2**32))
    (memory / "energy_uj").write_text("3000000")
    assert rapl.joules_between(before, rapl.read_uj()) == pytest.approx(7.0)
    assert not host.Rapl(tmp_path / "absent").available


def test_work_of_others_is_flagged():
    probe = host.HostProbe()
    before = probe.state()
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        while sum(psutil.Process(other.pid).cpu_times()[:2]) < 0.3:
            time.sleep(0.05)
    finally:
        other.kill()
        other.wait()
    between = probe.between(before, probe.state())
    assert between["cpu_share_of_others"] > 0.2 / (os.cpu_count() or 1)
    assert host.HostProbe.flags(between) == ["contended"]


@pytest.fixture
def fake_nvml(monkeypatch):
    monkeypatch.syspath_prepend(str(FAKE_NVML))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKE_NVML), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    yield
    sys.modules.pop("pynvml", None)


def test_energy_comes_from_the_counter_between_its_steps(tmp_path):
    """A counter that moves every 100 ms by the joules of 300 W, sampled every 10 ms for 0.65 s."""
    ring = Ring(tmp_path / "ring", create=True)
    for moment in range(0, 650_000_000, 10_000_000):
        joules = (moment + 30_000_000) // 100_000_000 * 0.1 * 300.0
        ring.write(moment, Sample(joules, 290.0, 1e9, 40.0, 1.0, 0))
    power = mean_power(ring.window(0, 650_000_000), 0, 650_000_000)
    assert power.method == "energy_counter" and power.mean_w == pytest.approx(300.0)


def test_a_gpu_is_sampled_beside_the_work(fake_nvml):
    sampler = Sampler("GPU-0")
    try:
        start = time.monotonic_ns()
        while len(np.unique(sampler.ring.window(start, end := time.monotonic_ns())[:, 1])) < 8:
            time.sleep(0.05)
        rows = sampler.ring.window(start, end)
    finally:
        sampler.close()
    seen = conditions(rows)
    assert seen["throttle_reasons"] == ["power_cap"]
    assert seen["sm_clock_hz"] == {"min": 1980e6, "median": 1980e6}
    assert seen["device_memory_peak_bytes"] == 3 * 2**30


def test_a_board_without_counter_is_integrated_from_power_and_a_slice_has_none(fake_nvml, tmp_path):
    from perfpass.measure.nvml import Gpu

    def sampled(uuid: str):
        ring = Ring(tmp_path / uuid, create=True)
        start = time.monotonic_ns()
        sample_into(ring, Gpu(uuid).sample, lambda: len(ring) < 20, period_s=0.002)
        end = time.monotonic_ns()
        return mean_power(ring.window(start, end), start, end)

    limited = sampled("GPU-limited")
    assert (limited.method, limited.mean_w) == ("power_samples", pytest.approx(300.0))
    assert sampled("MIG-1").method == "none"
    slice_ = Gpu("MIG-1")
    assert slice_.is_mig
    assert slice_.facts()["mig_name"].endswith("MIG 1g.10gb")
    assert slice_.facts()["power_limit_w"] == 700.0
    assert slice_.facts()["memory_bytes"] == 10 * 2**30
    assert Gpu("GPU-0").process_memory_bytes(1) == 2**30
    assert Gpu("GPU-limited").process_memory_bytes(1) is None


def test_an_absent_gpu_is_one_clear_error(fake_nvml):
    from perfpass.measure.nvml import Gpu

    with pytest.raises(DeviceError, match="GPU-absent"):
        Gpu("GPU-absent")
    with pytest.raises(DeviceError, match="GPU-absent"):
        Sampler("GPU-absent")


def test_the_ring_keeps_the_newest_samples(tmp_path, monkeypatch):
    monkeypatch.setattr("perfpass.measure.sampler.ROWS", 8)
    ring = Ring(tmp_path / "ring", create=True)
    for moment in range(20):
        ring.write(moment, Sample(moment, 1.0, 1.0, 1.0, 1.0, 0))
    assert ring.window(0, 100)[:, 0].tolist() == list(range(12, 20))
    assert ring.window(14, 16)[:, 0].tolist() == [14, 15, 16]


def test_the_size_in_an_allocators_message_is_read():
    assert requested_bytes("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has ...") == int(2.5 * 2**30)
    assert (
        requested_bytes("can't allocate memory: you tried to allocate 60211200000 bytes. Error code 12") == 60211200000
    )
    assert requested_bytes("out of memory") is None


def test_a_child_maps_the_library_pages_of_its_parent_before_it_measures():
    pages = host.mapped_file_pages()
    if not pages:
        pytest.skip("this kernel does not tell which pages are mapped")
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        before = _file_pages()
        host.map_pages(pages)
        os.write(there, f"{before} {_file_pages()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    before, after = map(int, os.read(here, 100).split())
    if after == before:
        pytest.skip("this kernel cannot map pages on request (MADV_POPULATE_READ, Linux 5.14)")
    assert after > sum(size for _, size in pages) / 1024 * 0.9
    assert after - before > 1000


def _file_pages() -> int:
    """Resident file pages of this process, KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssFile")).split()[1])


def test_a_slow_product_is_measured_at_a_smaller_side():
    """Six products of side 2,048 in bf16 took two minutes on a CPU without instructions for them."""
    from perfpass.measure.facts import _SMALL_SIDE, _side

    assert _side(2048, 256, 1e-5) == 2048  # 3.4 TFLOP/s
    assert 256 <= _side(2048, 256, 0.036) < 1024  # 0.9 GFLOP/s: 18 s at the full side
    assert _side(2048, 256, 100.0) == 256
    # On a GPU a small product takes as long as its launch, which says nothing of a large one.
    assert _side(8192, _SMALL_SIDE["cuda"], 1e-4) == 8192
