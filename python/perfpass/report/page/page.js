'use strict';
const make = (name, parent, text) => {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  if (parent) parent.append(element);
  return element;
};
const button = (parent, text, label, act) => {
  const element = make('button', parent, text);
  element.type = 'button';
  if (label) element.setAttribute('aria-label', label);
  element.addEventListener('click', act);
  return element;
};

// What a page, or a part that came later, can do.
const enliven = (root) => {
  // Tables: a heading sorts by its column, rising first; cells carry their number, others go by their letters.
  const sort = (heading) => {
    const head = heading.parentElement, place = [...head.children].indexOf(heading);
    const rising = heading.getAttribute('aria-sort') !== 'ascending';
    for (const other of head.children) if (other.hasAttribute('aria-sort')) other.setAttribute('aria-sort', 'none');
    heading.setAttribute('aria-sort', rising ? 'ascending' : 'descending');
    const body = heading.closest('table').tBodies[0];
    const value = (row) => {
      const cell = row.cells[place];
      return 'v' in cell.dataset ? [0, Number(cell.dataset.v)] : [1, cell.textContent];
    };
    const order = (a, b) => (a[0] - b[0]) || (a[0] ? a[1].localeCompare(b[1]) : a[1] - b[1]);
    const rows = [...body.rows].map((row) => [value(row), row]);
    rows.sort((a, b) => (rising ? order(a[0], b[0]) : order(b[0], a[0])));
    body.append(...rows.map(([, row]) => row));
  };
  for (const heading of root.querySelectorAll('th[aria-sort]'))
    heading.firstChild.addEventListener('click', () => sort(heading));

  // Long tables can be searched.
  for (const scroll of root.querySelectorAll('[data-search]')) {
    const label = make('label', null, 'Show rows that contain');
    label.className = 'search';
    const input = make('input', label);
    input.type = 'search';
    scroll.before(label);
    input.addEventListener('input', () => {
      const wanted = input.value.toLowerCase();
      for (const row of scroll.querySelector('tbody').rows)
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }

  // Pictures: buttons, keys and the wheel with Ctrl change what part of the picture is seen; dragging moves it.
  for (const plot of root.querySelectorAll('.plot')) {
    // The same part of each of its drawings, of which one is shown: fractions of the whole.
    const drawings = [...plot.querySelectorAll('svg')].map((svg) => {
      const {x, y, width, height} = svg.viewBox.baseVal;
      return {svg, full: {x, y, width, height}};
    });
    let seen = {x: 0, y: 0, size: 1};
    const show = () => {
      seen.x = Math.min(Math.max(seen.x, 0), 1 - seen.size);
      seen.y = Math.min(Math.max(seen.y, 0), 1 - seen.size);
      for (const {svg, full} of drawings)
        svg.setAttribute('viewBox', [full.x + seen.x * full.width, full.y + seen.y * full.height,
          seen.size * full.width, seen.size * full.height].join(' '));
      plot.classList.toggle('zoomed', seen.size < 1);
    };
    const zoom = (factor, at = [0.5, 0.5]) => {
      const size = Math.min(1, Math.max(1 / 40, seen.size / factor));
      seen = {x: seen.x + (seen.size - size) * at[0], y: seen.y + (seen.size - size) * at[1], size};
      show();
    };
    const move = (x, y) => { seen.x += x * seen.size; seen.y += y * seen.size; show(); };
    const reset = () => { seen = {x: 0, y: 0, size: 1}; show(); };
    const placeOf = (event) => {
      const box = event.target.closest('svg').getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    const tools = make('div');
    tools.className = 'tools';
    const name = plot.getAttribute('aria-label');
    button(tools, '+', `Zoom in: ${name}`, () => zoom(1.5));
    button(tools, '−', `Zoom out: ${name}`, () => zoom(1 / 1.5));
    button(tools, 'reset', `Show the whole: ${name}`, reset);
    plot.before(tools);
    const keys = {
      '+': () => zoom(1.5), '=': () => zoom(1.5), '-': () => zoom(1 / 1.5), '0': reset, 'Escape': reset,
      'ArrowLeft': () => move(-0.1, 0), 'ArrowRight': () => move(0.1, 0),
      'ArrowUp': () => move(0, -0.1), 'ArrowDown': () => move(0, 0.1),
    };
    plot.addEventListener('keydown', (event) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key.startsWith('Arrow') && !plot.classList.contains('zoomed')) return;
      act();
      event.preventDefault();
    });
    plot.addEventListener('wheel', (event) => {
      if (!event.ctrlKey || !event.target.closest('svg')) return;
      zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, placeOf(event));
      event.preventDefault();
    }, {passive: false});
    for (const {svg} of drawings) {
      let from = null;
      svg.addEventListener('pointerdown', (event) => {
        if (!plot.classList.contains('zoomed')) return;
        from = [event.clientX, event.clientY];
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener('pointermove', (event) => {
        if (!from) return;
        const box = svg.getBoundingClientRect();
        move((from[0] - event.clientX) / box.width, (from[1] - event.clientY) / box.height);
        from = [event.clientX, event.clientY];
      });
      svg.addEventListener('pointerup', () => { from = null; });
      svg.addEventListener('dblclick', (event) => zoom(2, placeOf(event)));
    }
  }
};
enliven(document);

// Light or dark, if not as the system has it.
const root = document.documentElement;
const dark = () => (root.dataset.theme || (matchMedia('(prefers-color-scheme:dark)').matches ? 'dark' : 'light')) === 'dark';
const list = document.querySelector('nav ul');
const toggle = button(make('li', list), '', '', () => { root.dataset.theme = dark() ? 'light' : 'dark'; say(); });
const say = () => { toggle.textContent = dark() ? 'Light' : 'Dark'; };
say();

// On paper everything is open.
addEventListener('beforeprint', () => {
  for (const one of document.querySelectorAll('details:not([open])')) { one.open = true; one.dataset.folded = ''; }
});
addEventListener('afterprint', () => {
  for (const one of document.querySelectorAll('details[data-folded]')) { one.open = false; delete one.dataset.folded; }
});
