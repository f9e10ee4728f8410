"""The page itself: one document, the same for everyone; what a link asks is filled in by its script."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files
from urllib.parse import parse_qs

from perfpass import __version__
from perfpass.report.page import document, script, style
from perfpass.serve.settings import Settings
from perfpass.ui.fields import COMMON, GPU_ROW, MODEL_ROW, QUESTIONS, Field, Question
from perfpass.ui.questions import MOST_ROWS

_EXAMPLES = (
    ("Does Llama 3.1 70B fit, and where?", "ask=fit&model=llama-3.1-70b"),
    ("Llama 3.1 8B on an H100, 16 requests in flight",
     "ask=serve&model=llama-3.1-8b&device=h100-sxm5-80gb&concurrency=16"),
    ("Training Llama 3.1 8B on 8 H100: which layout?",
     "ask=train&model=llama-3.1-8b&device=h100-sxm5-80gb&gpus=8&search=true&tokens=10e9"),
    ("Two language models on four A100",
     "ask=fleet&gpu.0.device=a100-sxm4-80gb&gpu.0.count=4"
     "&model.0.model=llama-3.1-8b&model.0.kind=llm&model.0.rate=2&model.0.ttft_ms=1500&model.0.tpot_ms=60"
     "&model.1.model=qwen2.5-7b&model.1.kind=llm&model.1.rate=1&model.1.ttft_ms=2000&model.1.tpot_ms=80"),
)  # fmt: skip


def page(settings: Settings) -> str:
    """The document of a server with these limits."""
    policy = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    return document(
        "perfpass", _body(settings), policy, f"{style()}{_file('page.css')}", f"{script()}{_file('page.js')}"
    )


def _body(settings: Settings) -> str:
    tabs = "".join(
        f'<button type="button" role="tab" id="tab-{q.name}" aria-controls="panel-{q.name}" data-ask="{q.name}" '
        f'data-files="{int(q.files)}" data-does="{escape(q.does)}">{escape(q.title)}</button>'
        for q in QUESTIONS
    )
    titles = {q.name: q.title for q in QUESTIONS}
    examples = "".join(
        f'<li><a href="/?{escape(link)}"><small>{titles[parse_qs(link)["ask"][0]]}</small>{escape(text)}</a></li>'
        for text, link in _EXAMPLES
    )
    return (
        '<a class="skip" href="#answer">Skip to the answer</a>'
        f'<header class="bar"><h1 class="brand">perfpass <span>{escape(__version__)}</span></h1>'
        "<p>What a model costs on a device, before it runs there.</p>"
        '<nav aria-label="Look"><ul></ul></nav></header>'
        f'<div class="bench"><form id="ask" data-most="{settings.most_body_bytes}" novalidate>'
        f'<div role="tablist" aria-label="Questions">{tabs}</div>'
        f"{_model(settings)}{''.join(map(_panel, QUESTIONS))}"
        '<p class="go"><button type="submit" class="primary">Ask</button></p>'
        "<noscript><p>This page needs its script, which comes from this machine like all of it. Without one there is "
        "<code>perfpass report</code>, which writes the same answer as a file.</p></noscript></form>"
        '<main id="answer" tabindex="-1"><div class="progress" hidden><p></p><progress></progress></div>'
        '<div class="wrong" role="alert" hidden></div><div class="found" hidden><p class="actions">'
        '<a class="button" data-kind="html">Report (HTML)</a><a class="button" data-kind="json">JSON</a>'
        '<button type="button" class="button" id="link">Copy link</button></p><article></article></div>'
        '<div class="start"><h2 class="headline">Ask about a model</h2><p>Drop a file of ONNX or another '
        "framework, name a model, or paste a config.json. Every figure comes with the interval that holds nine of "
        "ten measured values, and with what stands behind it.</p><p>Weights are not read: an ONNX file with external "
        "weights may be dropped without them. Files stay in this machine's memory while the question is answered, and "
        "are then forgotten.</p>"
        f'<p>Or begin with one of these:</p><ul class="examples">{examples}</ul></div></main></div>'
        f'<p class="hidden" role="status" id="said"></p>{_lists()}'
    )


def _model(settings: Settings) -> str:
    ways = "".join(
        f'<label><input type="radio" name="way" value="{value}"{" checked" * (value == "file")}> {text}</label>'
        for value, text in (("file", "File"), ("name", "Name"), ("config", "config.json"))
    )
    return (
        f'<fieldset id="model"><legend>Model</legend><div class="ways">{ways}</div>'
        '<label class="drop" data-way="file"><span>Drop a model file here, or choose one</span>'
        f"<small>ONNX and other formats; up to {settings.body_mib:,} MiB; weights are not read</small>"
        '<input type="file"></label>'
        '<label class="field" data-way="name" hidden>Name, as on Hugging Face or in timm'
        '<input name="model" list="names" placeholder="llama-3.1-8b" autocomplete="off" spellcheck="false"></label>'
        '<label class="field" data-way="config" hidden>Content of a config.json'
        '<textarea rows="7" spellcheck="false" placeholder="{&quot;model_type&quot;: &quot;llama&quot;, ...}">'
        "</textarea></label></fieldset>"
    )


def _panel(question: Question) -> str:
    shown = "".join(_field(f, f"{question.name}-{f.name}") for f in question.fields)
    inside = f'<div class="fields">{shown}</div>'
    if question.name == "fleet":
        inside = _rows("gpu", "GPU", GPU_ROW) + _rows("model", "model", MODEL_ROW) + inside
    if question.more:
        rest = "".join(_field(f, f"{question.name}-{f.name}") for f in question.more)
        inside += f'<details><summary>More settings</summary><div class="fields">{rest}</div></details>'
    return (
        f'<div role="tabpanel" id="panel-{question.name}" aria-labelledby="tab-{question.name}" hidden>'
        f"<p>{escape(question.says)}</p>{inside}</div>"
    )


def _rows(name: str, what: str, fields: tuple[Field, ...]) -> str:
    """Rows of a fleet: one, which the script copies."""
    cells = "".join(_field(f, f"fleet-{name}-0-{f.name}") for f in fields)
    return (
        f'<div class="rows" data-rows="{name}" data-most="{MOST_ROWS}"><fieldset class="row">'
        f"<legend>{what[0].upper()}{what[1:]} 1</legend>"
        f'<div class="fields">{cells}</div></fieldset>'
        f'<button type="button" class="button add">Add a {what}</button></div>'
    )


def _field(field: Field, identifier: str) -> str:
    if field.kind == "devices":
        return _devices(field, identifier)
    key = escape(identifier.replace(".", "-"))
    hint = f'<small id="{key}-hint">{escape(field.hint)}</small>' if field.hint else ""
    same = f'id="{key}" name="{escape(field.name)}"' + (f' aria-describedby="{key}-hint"' if field.hint else "")
    only = f' data-only="{field.only}"' if field.only else ""
    if field.kind == "flag":
        box = f'<input type="checkbox" value="true" {same}{" checked" * bool(field.given)}>'
        return f'<div class="field flag"><label>{box} {escape(field.label)}</label>{hint}</div>'
    label = f'<label for="{key}">{escape(field.label)}</label>'
    return f'<div class="field"{only}>{label}{_control(field, same)}{hint}{_file_of(field)}</div>'


def _control(field: Field, same: str) -> str:
    """What is typed or chosen; ``same``: attributes that all have."""
    if field.kind == "choice":
        left = f'<option value="">{escape(field.assumed)}</option>' if field.assumed else ""
        options = "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in field.choices)
        return f"<select {same}>{left}{options}</select>"
    listed = {"device": ' list="devices"', "model": ' list="names"', "number": ' inputmode="decimal"'}
    held = f' placeholder="{escape(field.assumed)}"' if field.assumed else ""
    given = f' value="{escape(field.given)}"' if field.given else ""
    return f'<input {same}{listed.get(field.kind, "")}{held}{given} autocomplete="off" spellcheck="false">'


def _file_of(field: Field) -> str:
    if field.kind != "model":
        return ""
    return '<label class="choose" data-only="graph">or a file <input type="file"></label>'


def _devices(field: Field, key: str) -> str:
    chosen = field.given.split(",")
    boxes = "".join(
        f'<label><input type="checkbox" name="{field.name}" value="{device}"{" checked" * (device in chosen)}> {device}'
        "</label>"
        for device in COMMON
    )
    return (
        f'<fieldset class="field devices"><legend>{escape(field.label)}</legend><div class="boxes">{boxes}</div>'
        f'<label for="{key}-more">and others, with commas</label><input id="{key}-more" name="{field.name}" data-rest '
        'list="devices" autocomplete="off" spellcheck="false"></fieldset>'
    )


@cache
def _lists() -> str:
    """What can be named, as the browser's suggestions."""
    from perfpass.devices import catalogue
    from perfpass.importers import configuration_names, definitions, library_names

    devices = "".join(f'<option value="{escape(d.id)}">{escape(d.name)}</option>' for d in catalogue())
    known = {*configuration_names.first(), *definitions.names(), *library_names.names()}
    names = "".join(f'<option value="{escape(name)}">' for name in sorted(known, key=str.lower))
    return f'<datalist id="devices">{devices}</datalist><datalist id="names">{names}</datalist>'


def _file(name: str) -> str:
    return files("perfpass.ui").joinpath(name).read_text(encoding="utf-8").strip()
