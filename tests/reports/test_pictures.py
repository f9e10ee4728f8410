"""Promises of pictures: whole and well-formed, said in words too, with their interval, safe, and legible."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ElementTree
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfpass
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.report import interval_charts, plots_of
from perfpass.report.chart import Axis, Chart, Dot, Dots, Line, Note, around
from perfpass.report.interval_charts import TITLES, records
from perfpass.report.layout import NARROW, WIDTH, Area, Words, fitted, placed
from perfpass.report.nodes import module_of
from perfpass.report.palette import ROLES, SERIES, THEMES, colour, tint
from perfpass.report.picture import Picture
from perfpass.text import count, size
from report_models import EXAMPLES

RUN = ("roofline", "operators", "icicle", "flame", "memory", "mig", "intervals")
SVG = "{http://www.w3.org/2000/svg}"


def pictures(request) -> list[Picture]:
    get = request.getfixturevalue
    found = [getattr(get("vision").plot, name)() for name in RUN]
    found += [getattr(get("step").plot, name)() for name in RUN if name != "mig"]
    sweeps, loads, served = get("batches").plot, get("loads").plot, get("served").plot
    found += [served.intervals(), served.memory(), get("fleet").plot.fleet()]
    return [*found, sweeps.batch(), sweeps.pareto(), loads.load(), loads.pareto("ttft_ms", "output_tokens_per_s")]


@pytest.fixture(scope="module")
def drawn(request) -> list[Picture]:
    return pictures(request)


def test_every_picture_is_well_formed_with_a_title_and_words(drawn):
    for picture in drawn:
        for theme in THEMES:
            root = ElementTree.fromstring(picture.svg(theme))
            assert root.get("role") == "img" and root.get("aria-labelledby") == "title desc"
            assert root.findtext(f"{SVG}title") and len(root.findtext(f"{SVG}desc")) > 80
            assert "nan" not in picture.svg(theme).lower().replace("nano", "")


def test_every_picture_shows_an_interval(drawn):
    for picture in drawn:
        said = [chart.subtitle + chart.description for chart in picture.charts]
        assert any("90 %" in text or "96 %" in text for text in said), picture.name


def test_every_picture_says_its_figures_in_words_too(drawn):
    for picture in drawn:
        text = str(picture)
        for chart in picture.charts:
            assert chart.title in text and chart.rows and len({len(row) for row in (chart.head, *chart.rows)}) == 1


@pytest.mark.parametrize("name", ["vision", "encoder", "step"])
def test_a_buffer_has_the_bytes_of_its_shape_in_the_type_it_is_named_with(request, name):
    chart = request.getfixturevalue(name).plot.memory().charts[1]
    assert chart.rows
    for _, shape, held in chart.rows:
        sizes, dtype = shape.split(" ")
        bits = int("".join(filter(str.isdigit, dtype)))
        assert held == size(math.prod(map(int, sizes.split("x"))) * bits / 8), (shape, held)


def test_records_that_are_far_away_are_not_shown_as_near(vision):
    evidence = records(vision)
    for (figure, part), far in product(evidence.items(), (False, True)):
        chart = next(c for c in vision.plot.intervals().charts if c.title == TITLES[figure])
        drawn = [p for m in chart.marks if isinstance(m, Dots) and ("far" in m.label) == far for p in m.points]
        assert len(drawn) == sum(part.far(r) == far for r in part.records), (figure, far)
    memory = evidence["peak_memory_bytes"]
    assert any(map(memory.far, memory.records))


def test_throughput_of_a_record_is_its_batch_over_its_time(vision):
    evidence = records(vision)
    for time, throughput in zip(evidence["latency_ms"].records, evidence["throughput_per_s"].records, strict=True):
        assert throughput["copied"] * time["copied"] == pytest.approx(1e3 * vision.workload["batch"])
        assert throughput["measured"] * time["measured"] == pytest.approx(1e3 * time["batch"])


def test_names_of_a_front_stand_apart(batches):
    chart = batches.plot.pareto().charts[0]
    notes = [m for m in chart.marks if isinstance(m, Note)]
    levels = sorted(chart.y.place(note.y) for note in notes)
    assert notes and all(above - below > 0.03 for below, above in pairwise(levels))


def test_nothing_of_a_roofline_stands_above_its_roof(drawn):
    for picture in (p for p in drawn if p.name == "roofline"):
        for chart in picture.charts:
            roof = max(y for mark in chart.marks if isinstance(mark, Line) for _, y in mark.points)
            rates = [dot.y for mark in chart.marks if isinstance(mark, Dots) for dot in mark.points]
            assert rates and max(rates) <= roof


def test_axes_have_names_and_units(drawn):
    for picture in drawn:
        for chart in picture.charts:
            assert chart.bare or chart.x.label
            assert chart.bare or chart.y.label or chart.y.names
            assert len(chart.x.ticks()) >= 2, (picture.name, chart.title, chart.x)


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_what_is_drawn_is_in_the_picture(drawn, width):
    for picture in drawn:
        for chart in picture.charts:
            page = placed(chart, width)
            for shape in (*page.frame, *page.inside):
                for x, y in getattr(shape, "points", ((getattr(shape, "x", 0), getattr(shape, "y", 0)),)):
                    assert -1 <= x <= page.width + 1 and -1 <= y <= page.height + 1, (chart.title, shape)


def across(shape: Words) -> tuple[float, float]:
    """From where to where a text is, about."""
    wide = len(shape.text) * 0.56 * shape.size
    begin = shape.x - {"start": 0.0, "middle": wide / 2, "end": wide}[shape.anchor]
    return begin, begin + wide


def meet(word: Words, box: Area) -> bool:
    """Whether a text stands on a box."""
    begin, end = across(word)
    beside = box.x > end or box.x + box.width < begin
    return not (beside or box.y >= word.y or box.y + box.height <= word.y - 9)


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_words_are_in_the_picture_and_ticks_apart(drawn, width):
    for picture in drawn:
        for chart in picture.charts:
            page = placed(chart, width)
            words = [s for s in (*page.frame, *page.inside) if isinstance(s, Words) and not s.turned]
            for begin, end in map(across, words):
                assert begin >= -2 and end <= page.width + 2, chart.title
            ticks = [across(s) for s in words if s.anchor == "middle" and s.colour == "soft"]
            assert chart.bare or len(ticks) >= 2
            assert all(before[1] <= after[0] for before, after in pairwise(sorted(ticks))), chart.title


def test_a_name_on_a_phone_stands_over_its_marks_and_on_none(drawn):
    for picture in drawn:
        for chart in (c for c in picture.charts if c.y.names and not c.bare):
            page = placed(chart, NARROW)
            names = {fitted(text, NARROW - page.plot[0] - 4) for _, text in chart.y.names}
            found = [s for s in page.frame if isinstance(s, Words) and s.text in names]
            assert len(found) >= len(chart.y.names) and page.plot[2] > 0.85 * NARROW
            for word in found:
                assert not [box for box in page.inside if isinstance(box, Area) and meet(word, box)], (
                    chart.title,
                    word,
                )


def test_what_is_said_of_slices_and_tensors_on_a_phone_stands_on_no_box(vision):
    charts = [*vision.plot.mig().charts, *vision.plot.memory().charts]
    beside = [(chart, [m for m in chart.marks if isinstance(m, Note) and m.stands == "beside"]) for chart in charts]
    beside = [(chart, notes) for chart, notes in beside if notes]
    assert len(beside) == 2
    for chart, notes in beside:
        page = placed(chart, NARROW)
        said = [
            s for s in page.inside if isinstance(s, Words) and s.text in {t for n in notes for t in (n.text, n.short)}
        ]
        assert len(said) == len(notes)
        assert not [word.text for word in said for box in page.inside if isinstance(box, Area) and meet(word, box)]


def test_names_of_a_hostile_model_are_text_alone(hostile):
    for name in RUN[:5]:
        svg = getattr(hostile.plot, name)().svg()
        root = ElementTree.fromstring(svg)
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "title", "desc", "g", "rect", "circle", "polygon", "polyline", "text", "clipPath"}
        assert not any(a.startswith("on") or "href" in a for element in root.iter() for a in element.attrib)
        assert "\x1b" not in svg and "\u202e" not in svg


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
@pytest.mark.parametrize("theme", THEMES)
def test_files_are_the_same_bytes_each_time(encoder, tmp_path, kind, theme):
    pytest.importorskip("matplotlib")
    picture = encoder.plot.icicle()
    for name in ("a", "b"):
        picture.save(tmp_path / f"{name}.{kind}", theme)
    content = (tmp_path / f"a.{kind}").read_bytes()
    assert content == (tmp_path / f"b.{kind}").read_bytes()
    start = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<svg"}[kind]
    assert content.startswith(start)
    if kind == "png":
        assert b"Time by module" in content and b"Description" in content


def test_pictures_of_the_documents_are_drawn_by_perfpass_and_say_what_they_show():
    """In its colours, with a title and words, whoever measured what is in them."""
    folder = EXAMPLES.parent / "docs" / "pictures"
    known = {*ROLES["light"].values(), *SERIES["light"], *(tint(i, "light") for i in range(len(SERIES["light"])))}
    for path in sorted(folder.glob("*.svg")):
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.get("role") == "img" and len(root.findtext(f"{SVG}desc") or "") > 80, path.name
        used = {element.get(name) for element in root.iter() for name in ("fill", "stroke")} - {None, "none"}
        assert used <= known, (path.name, used - known)


def test_the_picture_of_growth_has_the_figures_of_its_table():
    from publish import pictures as published

    drawn = published.growth(published.GROWTH.read_text(encoding="utf-8"))
    assert (published.OUT / "growth.svg").read_text(encoding="utf-8") == drawn.svg("light")
    assert [chart.rows[0][0] for chart in drawn.charts] == ["1,000", "1,000"] and len(drawn.charts[0].rows) == 4


def test_files_of_other_kinds_and_themes_are_refused(vision, tmp_path):
    with pytest.raises(ArgumentError, match=r"\.svg, \.pdf, \.png"):
        vision.plot.operators().save(tmp_path / "a.jpg")
    with pytest.raises(ArgumentError, match="light, dark"):
        vision.plot.operators().save(tmp_path / "a.svg", "blue")


def test_without_matplotlib_svg_is_drawn_and_png_names_the_extra(vision, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    vision.plot.roofline().save(tmp_path / "a.svg")
    with pytest.raises(UnsupportedError, match=r"perfpass\[plot\]"):
        vision.plot.roofline().save(tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_what_has_no_graph_or_slices_says_so(vision):
    from dataclasses import replace

    with pytest.raises(UnsupportedError, match="no graph"):
        replace(vision, asked=None).plot.icicle()
    with pytest.raises(UnsupportedError, match="limits="):
        replace(vision, decision=None).plot.mig()
    with pytest.raises(UnsupportedError, match="cannot be partitioned"):
        perfpass.predict(vision.asked.run().graph, "t4", limits=perfpass.Limits()).plot.mig()
    with pytest.raises(ArgumentError, match="no pictures"):
        plots_of(3)


def test_a_sweep_of_the_other_kind_says_so(batches, loads):
    for draw in (batches.plot.load, loads.plot.batch):
        with pytest.raises(UnsupportedError, match="this sweep"):
            draw()
    with pytest.raises(ArgumentError, match="latency_ms"):
        batches.plot.pareto("latency")


def test_the_flame_graph_is_the_icicle_upside_down(encoder):
    one, other = encoder.plot.icicle().charts[0], encoder.plot.flame().charts[0]
    assert [m.tip for m in one.marks] == [m.tip for m in other.marks]
    assert one.rows == other.rows


def test_time_by_module_is_the_time_of_the_run(encoder, step):
    for found in (encoder, step):
        tree = found.plot.nodes.tree()
        total = sum(found.breakdown["latency_ms"].values())
        assert tree.ms == pytest.approx(total)
        for _, _, frame in tree.walk():
            assert frame.leaf or frame.ms == pytest.approx(sum(child.ms for child in frame.children.values()))


def test_nodes_have_the_names_of_the_file(encoder):
    onnx = pytest.importorskip("onnx")
    names = {node.name for node in onnx.load(EXAMPLES / "vit_base_patch16_224.onnx").graph.node}
    assert set(encoder.plot.nodes.name) <= names


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("/blocks/blocks.0/attn/MatMul", ("blocks", "blocks.0", "attn")),
        ("encoder.layer.0.attention.self.aten.view_1", ("encoder", "layer.0", "attention", "self")),
        ("layer1.0.relu.aten.relu_", ("layer1.0", "relu")),
        ("aten.mm", ()),
        ("node_linear_8", ()),
        ("", ()),
    ],
)
def test_a_node_stands_in_the_modules_of_its_name(name, modules):
    assert module_of(name) == modules


FIGURES = st.floats(1e-9, 1e15, allow_nan=False)


@given(st.lists(FIGURES, min_size=1, max_size=20), st.booleans(), st.sampled_from(["number", "count", "size"]))
def test_an_axis_holds_its_values_and_its_ticks(values, log, form):
    axis = around("x", values, log=log, form=form)
    assert all(-1e-9 <= axis.place(v) <= 1 + 1e-9 for v in values)
    places = [value for value, _ in axis.ticks()]
    assert places == sorted(set(places)) and len(places) <= 24
    assert all(axis.low * (1 - 1e-6) <= v <= axis.high * (1 + 1e-6) for v in places)
    assert all(a < b for a, b in pairwise(map(axis.place, places)))


@given(st.text(max_size=200), st.floats(0, 2000))
def test_a_fitted_text_has_room(text, width):
    shown = fitted(text, width)
    assert len(shown) * 6.38 <= width + 7 and shown.isprintable()


@given(st.text(max_size=60), st.text(max_size=300))
def test_any_words_make_a_well_formed_picture(title, tip):
    marks = (Dots((Dot(1, 1, tip=tip),), 0, label=tip),)
    chart = Chart(title, tip, Axis("x", 0, 2), Axis(tip, 0, 2), marks, tip, ("a",), ((tip,),))
    ElementTree.fromstring(Picture("any", (chart,)).svg())


def luminance(value: str) -> float:
    parts = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_words_and_series_are_legible_on_their_paper(theme):
    paper = ROLES[theme]["paper"]
    for role in ("ink", "soft"):
        assert contrast(colour(role, theme), paper) >= 4.5
        assert contrast(colour(role, theme), ROLES[theme]["raised"]) >= 4.5
    for series in range(len(SERIES[theme])):
        assert contrast(colour(series, theme), paper) >= 3
        assert contrast(ROLES[theme]["ink"], tint(series, theme)) >= 4.5


def deuteranope(value: str) -> tuple[float, ...]:
    """How red-green blindness sees a colour (Viénot, Brettel and Mollon, "Digital video colourmaps", 1999)."""
    parts = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    seen = (0.29275 * r + 0.70725 * g, 0.29275 * r + 0.70725 * g, -0.02234 * r + 0.02234 * g + b)
    return tuple(max(v, 0.0) ** (1 / 2.4) for v in seen)


@pytest.mark.parametrize("theme", THEMES)
def test_the_first_series_differ_for_the_colour_blind(theme):
    seen = [deuteranope(value) for value in SERIES[theme][:3]]
    for i, one in enumerate(seen):
        for other in seen[i + 1 :]:
            assert math.dist(one, other) > 0.15


def test_a_step_is_called_one_where_its_time_and_energy_are_shown(vision, step):
    run, training = (
        [chart.title for chart in interval_charts.intervals(p, "") if chart.title.startswith(("Time", "Energy"))]
        for p in (vision, step)
    )
    assert run == ["Time of a run", "Energy of a run"] and training == ["Time of a step", "Energy of a step"]


def test_a_record_of_a_thousand_samples_says_so_in_figures():
    record = {"model": "resnet50", "device": "t4", "precision": "fp16", "batch": 1024.0}
    assert interval_charts._short(record) == "resnet50, t4, fp16, b1024"


def test_a_count_stands_apart_from_its_unit_with_and_without_a_prefix():
    assert [count(n, "MAC") for n in (0, 1, 999, 1000, 4.1e9)] == ["0 MAC", "1 MAC", "999 MAC", "1 kMAC", "4.1 GMAC"]
    assert [count(n) for n in (1, 4.1e9)] == ["1", "4.1 G"]
