
// The form: tabs, the model, what a link asks, and the answer as it comes.
(() => {
  const byId = (id) => document.getElementById(id);
  const form = byId('ask'), answer = byId('answer'), models = byId('model');
  const tabs = [...form.querySelectorAll('[role=tab]')];
  const panel = (tab) => byId(tab.getAttribute('aria-controls'));
  const most = Number(form.dataset.most);
  const chosen = new Map();  // a file input -> the file, which a drop cannot write into it
  let asked = null;  // the tab that is shown

  const controls = (place) => [...place.querySelectorAll('[name]')].filter((one) => one.name !== 'way');
  const way = () => form.elements.way.value;
  const showWay = () => {
    for (const one of models.querySelectorAll('[data-way]')) one.hidden = one.dataset.way !== way();
  };
  const setWay = (value) => {
    for (const one of models.querySelectorAll('[name=way]')) one.checked = one.value === value;
    showWay();
  };

  // What stands under a name in one tab stands there in the next, where that knows the name.
  const carry = (from, to) => {
    for (const one of controls(to)) {
      if (!['batch', 'precision', 'mode', 'dims'].includes(one.name)) continue;
      const before = controls(from).find((other) => other.name === one.name && other.tagName === one.tagName);
      if (before && before.value && !one.value) one.value = before.value;
    }
  };
  const show = (tab, focus) => {
    if (asked && asked !== tab) carry(panel(asked), panel(tab));
    asked = tab;
    for (const one of tabs) {
      one.setAttribute('aria-selected', String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
      panel(one).hidden = one !== tab;
    }
    const fleet = tab.dataset.ask === 'fleet', files = tab.dataset.files === '1';
    models.hidden = fleet;
    models.querySelector('[value=file]').disabled = !files;
    if (!files && way() === 'file') setWay('name');
    if (files && way() === 'name' && chosen.get(dropInput) && !models.querySelector('[name=model]').value) setWay('file');
    form.querySelector('.primary').textContent = tab.dataset.does;
    if (focus) tab.focus();
  };
  for (const [i, tab] of tabs.entries()) {
    tab.addEventListener('click', () => show(tab));
    tab.addEventListener('keydown', (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 3, ArrowUp: -3, Home: -i, End: tabs.length - 1 - i}[event.key];
      if (step === undefined) return;
      show(tabs[(i + step + tabs.length) % tabs.length], true);
      event.preventDefault();
    });
  }
  models.addEventListener('change', (event) => { if (event.target.name === 'way') showWay(); });

  // Files: chosen or dropped, and refused before they are sent where they are too large.
  const drop = models.querySelector('.drop'), dropInput = drop.querySelector('input');
  const take = (input, file) => {
    const label = input.closest('label'), said = label.querySelector('span') || label.firstChild;
    if (!file) return;
    if (file.size > most) {
      wrong(`${file.name} has ${(file.size / 2 ** 20).toFixed(1)} MiB, and ${most / 2 ** 20} MiB is the ` +
        'limit here. Structure is enough: save the model with its weights as external data (onnx.save, ' +
        'save_as_external_data=True) and drop the .onnx file alone.', 'The file is too large');
      input.value = '';
      return;
    }
    chosen.set(input, file);
    const named = input.closest('.row') && input.closest('.row').querySelector('[name=model]');
    if (named) named.value = '';
    label.classList.add('has');
    said.textContent = `${file.name} (${file.size < 2 ** 20 ? `${Math.max(1, Math.round(file.size / 1024))} KiB` : `${(file.size / 2 ** 20).toFixed(1)} MiB`}) `;
    byId('said').textContent = `${file.name} is chosen`;
    quiet();
  };
  form.addEventListener('change', (event) => { if (event.target.type === 'file') take(event.target, event.target.files[0]); });
  for (const name of ['dragover', 'dragleave', 'drop'])
    addEventListener(name, (event) => {
      if (!event.dataTransfer || ![...event.dataTransfer.types].includes('Files')) return;
      event.preventDefault();
      drop.classList.toggle('over', name === 'dragover');
      if (name !== 'drop') return;
      const place = event.target.closest && event.target.closest('.row');
      const own = place && place.querySelector('input[type=file]');
      if (!own && !models.hidden) setWay('file');
      take(own || dropInput, event.dataTransfer.files[0]);
    });

  const forget = (choose) => {
    const input = choose.querySelector('input');
    chosen.delete(input);
    input.value = '';
    choose.classList.remove('has');
    choose.firstChild.textContent = 'or a file ';
  };
  form.addEventListener('input', (event) => {  // a name takes the place of a file
    const row = event.target.name === 'model' && event.target.closest('.row');
    if (row && event.target.value) forget(row.querySelector('.choose'));
  });

  // Rows of a fleet; a network and a served model have targets of their own.
  const kinds = () => {
    for (const row of form.querySelectorAll('.row:has([name=kind])'))
      for (const one of row.querySelectorAll('[data-only]')) one.hidden = one.dataset.only !== row.querySelector('[name=kind]').value;
  };
  form.addEventListener('change', (event) => { if (event.target.name === 'kind') kinds(); });
  const rows = (name) => form.querySelector(`[data-rows=${name}]`);
  const addRow = (list, focus) => {
    const all = list.querySelectorAll('.row'), next = all.length;
    if (next >= Number(list.dataset.most)) return;
    const row = all[0].cloneNode(true);
    row.querySelector('legend').textContent = row.querySelector('legend').textContent.replace('1', next + 1);
    for (const one of row.querySelectorAll('[id]')) one.id = one.id.replace('-0-', `-${next}-`);
    for (const one of row.querySelectorAll('[for]')) one.htmlFor = one.htmlFor.replace('-0-', `-${next}-`);
    for (const one of row.querySelectorAll('[aria-describedby]'))
      one.setAttribute('aria-describedby', one.getAttribute('aria-describedby').replace('-0-', `-${next}-`));
    for (const one of controls(row)) one.value = one.tagName === 'SELECT' ? one.options[0].value : '';
    const choose = row.querySelector('.choose');
    if (choose) forget(choose);
    const remove = button(row, 'Remove', `Remove ${row.querySelector('legend').textContent}`, () => {
      row.remove();
      list.querySelector('.add').hidden = false;
    });
    remove.className = 'button';
    list.querySelector('.add').before(row);
    list.querySelector('.add').hidden = next + 1 >= Number(list.dataset.most);
    kinds();
    if (focus) controls(row)[0].focus();
  };
  for (const list of form.querySelectorAll('[data-rows]'))
    list.querySelector('.add').addEventListener('click', () => addRow(list, true));

  // The question as pairs, those of the link; its files go beside it.
  const pairsOf = (place, prefix = '') => {
    const found = new Map();
    for (const one of controls(place)) {
      if (one.closest('.row') && !prefix) continue;
      const value = (one.type === 'checkbox' && !one.checked) || one.closest('[data-only][hidden]') ? '' : one.value.trim();
      const name = prefix + one.name;
      if (value) found.set(name, found.has(name) ? `${found.get(name)},${value}` : value);
    }
    return found;
  };
  const question = () => {
    const pairs = new URLSearchParams(), parts = [];
    if (asked.dataset.ask === 'fleet') {
      for (const name of ['gpu', 'model']) {
        let i = 0;
        for (const row of rows(name).querySelectorAll('.row')) {
          const found = pairsOf(row, `${name}.${i}.`), input = row.querySelector('input[type=file]');
          const file = input && !input.closest('[hidden]') && chosen.get(input);
          if (file) { found.delete(`model.${i}.model`); found.set(`model.${i}.file`, file.name); parts.push([`model.${i}`, file]); }
          if (![`${name}.${i}.device`, `${name}.${i}.model`, `${name}.${i}.file`].some((key) => found.has(key))) continue;
          for (const [key, value] of found) pairs.append(key, value);
          i += 1;
        }
      }
    } else if (way() === 'name') {
      const name = models.querySelector('[name=model]').value.trim();
      if (name) pairs.append('model', name);
    } else if (way() === 'file') {
      const file = chosen.get(dropInput);
      if (file) { pairs.append('file', file.name); parts.push(['model', file]); }
    } else {
      const text = models.querySelector('textarea').value.trim();
      if (text) { pairs.append('file', 'config.json'); parts.push(['config', text]); }
    }
    for (const [key, value] of pairsOf(panel(asked))) pairs.append(key, value);
    return [pairs, parts];
  };

  // A link's question in the form.
  const restore = (pairs) => {
    const tab = tabs.find((one) => one.dataset.ask === pairs.get('ask')) || tabs[1];
    show(tab);
    kinds();
    if (![...pairs.keys()].some((key) => key !== 'ask')) return; // a tab, and nothing that it is asked
    const place = panel(tab);
    for (const one of controls(place)) {
      if (one.closest('.row')) continue;
      const given = (pairs.get(one.name) || '').split(',').filter(Boolean);
      if (one.type === 'checkbox') one.checked = given.includes(one.value);
      else if ('rest' in one.dataset) {
        const boxes = controls(place).filter((other) => other.name === one.name && other.type === 'checkbox');
        one.value = given.filter((value) => !boxes.some((box) => box.value === value)).join(',');
      } else one.value = pairs.get(one.name) || '';
      if (one.value && one.closest('details') && one.type !== 'checkbox') one.closest('details').open = true;
    }
    for (const name of tab.dataset.ask === 'fleet' ? ['gpu', 'model'] : []) {
      const list = rows(name), numbers = [...pairs.keys()].filter((key) => key.startsWith(`${name}.`)).map((key) => Number(key.split('.')[1]));
      const count = Math.min(Math.max(0, ...numbers.map((one) => one + 1)), Number(list.dataset.most));
      while (list.querySelectorAll('.row').length < count) addRow(list);
      for (const [i, row] of [...list.querySelectorAll('.row')].entries())
        for (const one of controls(row)) {
          const given = pairs.get(`${name}.${i}.${one.name}`);
          if (given || one.tagName !== 'SELECT') one.value = given || '';
        }
    }
    kinds();
    if (pairs.get('model')) {
      setWay('name');
      models.querySelector('[name=model]').value = pairs.get('model');
    } else if (pairs.get('file') === 'config.json') setWay('config');
    const file = [...pairs].filter(([key]) => key === 'file' || key.endsWith('.file')).map(([, value]) => value);
    if (file.length) wrong(`The link asks about ${file.join(', ')}, which it does not hold. Choose it again, then ask.`);
    else if (pairs.get('model') || tab.dataset.ask === 'fleet') form.requestSubmit();
  };

  // The answer.
  const part = (name) => answer.querySelector(name);
  const quiet = () => { part('.wrong').hidden = true; };
  const wrong = (detail, title = '') => {
    const place = part('.wrong');
    place.replaceChildren();
    make('strong', place, detail.charAt(0).toUpperCase() + detail.slice(1));
    make('small', place, title);
    place.hidden = false;
    part('.progress').hidden = true;
    if (place.getBoundingClientRect().top > innerHeight || place.getBoundingClientRect().top < 0) place.scrollIntoView({block: 'center'});
  };
  const told = (step, since) => {
    const seconds = Math.round((performance.now() - since) / 1000), bar = part('progress');
    part('.progress p').textContent = `${step.now.charAt(0).toUpperCase()}${step.now.slice(1)} …${seconds ? ` ${seconds} s` : ''}`;
    if (step.of > 1) { bar.max = step.of; bar.value = step.done; } else bar.removeAttribute('value');
    bar.setAttribute('aria-label', step.now || 'working');
  };
  const found = (answered) => {
    const article = part('article');
    article.innerHTML = answered.fragment;  // escaped where it was written; the policy runs nothing else
    enliven(article);
    for (const link of answer.querySelectorAll('[data-kind]')) link.href = `/answers/${answered.key}.${link.dataset.kind}`;
    part('.found').hidden = false;
    document.title = `${answered.title} · perfpass`;
    byId('said').textContent = `Answer: ${article.querySelector('.headline').textContent}`;
    if (answer.getBoundingClientRect().top > innerHeight / 2) answer.scrollIntoView();
  };
  let running = null;
  const ask = async () => {
    if (running) running.abort();
    const mine = running = new AbortController(), since = performance.now();
    const [pairs, parts] = question(), body = new FormData();
    history.replaceState(null, '', `/?${new URLSearchParams([['ask', asked.dataset.ask], ...pairs])}`);
    body.append('question', pairs.toString());
    for (const [name, content] of parts) body.append(name, content);
    quiet();
    part('.start').hidden = true;
    part('.progress').hidden = false;
    answer.classList.add('stale');
    told({now: 'asking', done: 0, of: 0}, since);
    const ended = (detail, title) => {
      part('.found').hidden = true;
      wrong(detail, title);
    };
    try {
      const response = await fetch(`/ask/${asked.dataset.ask}`, {method: 'POST', body, signal: mine.signal});
      if (!response.ok) {
        const problem = await response.json();
        return ended(problem.detail, problem.title);
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = '', last = false; !last;) {
        const {done, value} = await reader.read();
        last = done;
        const lines = (rest + (value || '')).split('\n');
        rest = lines.pop();
        for (const one of lines.map((line) => JSON.parse(line))) {
          if (one.problem) ended(one.problem.detail, one.problem.title);
          else if (one.fragment) found(one);
          else told(one, since);
        }
      }
    } catch (error) {
      if (error.name !== 'AbortError') ended(`The server does not answer (${error.message}). Is perfpass ui still running?`, 'No answer');
    } finally {
      if (running === mine) {
        running = null;
        part('.progress').hidden = true;
        answer.classList.remove('stale');
      }
    }
    return undefined;
  };
  form.addEventListener('submit', (event) => { event.preventDefault(); ask(); });
  byId('link').addEventListener('click', async () => {
    const copied = byId('link');
    try { await navigator.clipboard.writeText(location.href); copied.textContent = 'Link copied'; } catch { copied.textContent = 'It is in the address bar'; }
    setTimeout(() => { copied.textContent = 'Copy link'; }, 2000);
  });
  restore(new URLSearchParams(location.search));
})();
