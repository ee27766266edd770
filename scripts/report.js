"use strict";
(() => {
  const all = (where, what) => Array.from(where.querySelectorAll(what));

  // --- Hover and keyboard: what a mark is. A picture has one tab stop, arrows go through its marks.
  const tip = document.getElementById("tip");
  const spoken = document.getElementById("spoken");
  let chosen = null;

  function show(mark, x, y) {
    if (chosen) chosen.classList.remove("chosen");
    chosen = mark;
    if (!mark) { tip.hidden = true; return; }
    mark.classList.add("chosen");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = (y + 18 + box.height < innerHeight ? y + 18 : y - box.height - 10) + "px";
  }

  function showAtItself(mark) {
    const box = mark.getBoundingClientRect();
    show(mark, box.left + box.width / 2, box.top + Math.min(box.height, 20));
    spoken.textContent = mark.dataset.tip;
  }

  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest && event.target.closest(".mark");
    if (mark || chosen) show(mark, event.clientX, event.clientY);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });

  for (const picture of all(document, "figure svg")) {
    const marks = all(picture, ".mark");
    if (!marks.length) continue;
    picture.setAttribute("tabindex", "0");
    let at = -1;
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      at = at < 0 ? (step > 0 ? 0 : marks.length - 1) : (at + step + marks.length) % marks.length;
      showAtItself(marks[at]);
    });
    picture.addEventListener("blur", () => { at = -1; show(null); });
  }

  // --- Tables: sort by a column, keep the rows that hold a text.
  for (const table of all(document, "table.sortable")) {
    const heads = all(table, "thead th");
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = (row) => row.cells[column].dataset.value;
        const rows = all(body, "tr");
        const numbers = rows.some((row) => value(row) !== undefined);
        rows.sort((left, right) => {
          if (!numbers) {
            const [a, b] = [left, right].map((row) => row.cells[column].textContent);
            return (up ? 1 : -1) * a.localeCompare(b, "en", { numeric: true });
          }
          const [a, b] = [left, right].map((row) => parseFloat(value(row)));
          if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
          return (up ? 1 : -1) * (a - b);
        });
        body.append(...rows);
      });
    });
  }
  for (const field of all(document, "input[data-table]")) {
    const rows = all(document.getElementById(field.dataset.table).tBodies[0], "tr");
    const count = document.getElementById(field.dataset.count);
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      let left = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        left += row.hidden ? 0 : 1;
      }
      count.textContent = left + " of " + rows.length + " rows";
    });
  }

  // --- Timelines: lanes of ranges; zoom with + and -, Ctrl and wheel, or the buttons.
  const SVG = "http://www.w3.org/2000/svg";
  const LEFT = 160, GAP = 10, AXIS = 26;

  function make(name, attributes, parent) {
    const element = document.createElementNS(SVG, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (parent) parent.append(element);
    return element;
  }

  function stepOf(span) {
    const rough = span / 8, power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  }

  for (const place of all(document, ".timeline")) {
    const data = JSON.parse(document.getElementById(place.dataset.source).textContent);
    const ends = data.lanes.flatMap((lane) => lane.events.map((event) => event[1]));
    const whole = [0, Math.max(...ends)];
    let view = data.view.slice();
    const height = AXIS + data.lanes.reduce((sum, lane) => sum + lane.height + GAP, 0);
    const picture = make("svg", { height, role: "img", "aria-label": data.label }, null);
    place.append(picture);

    function draw() {
      show(null);
      const width = Math.max(300, place.clientWidth);
      const scale = (width - LEFT) / (view[1] - view[0]);
      const x = (ms) => LEFT + (ms - view[0]) * scale;
      picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const defs = make("defs", {}, null);
      const clip = make("clipPath", { id: place.id + "-clip" }, defs);
      make("rect", { x: LEFT, y: 0, width: width - LEFT, height }, clip);
      for (const [key, color] of Object.entries(data.hatched)) {
        const pattern = make("pattern", { id: `${place.id}-${key}`, width: 7, height: 7,
          patternUnits: "userSpaceOnUse", patternTransform: `rotate(${key === "copy" ? 45 : -45})` }, defs);
        make("rect", { width: 7, height: 7, fill: color }, pattern);
        make("line", { x1: 0, y1: 0, x2: 0, y2: 7, stroke: "#333", "stroke-width": 1 }, pattern);
      }
      const inside = make("g", { "clip-path": `url(#${place.id}-clip)` }, null);
      const parts = [defs, inside];
      const step = stepOf(view[1] - view[0]);
      for (let ms = Math.ceil(view[0] / step) * step; ms <= view[1]; ms += step) {
        make("line", { x1: x(ms), x2: x(ms), y1: AXIS - 4, y2: height, stroke: "#ddd" }, inside);
        const text = make("text", { x: x(ms), y: 15, "font-size": 12, "text-anchor": "middle",
          fill: "#444" }, inside);
        text.textContent = +ms.toPrecision(6) + " ms";
      }
      let next = AXIS;
      for (const lane of data.lanes) {
        const top = next;
        next += lane.height + GAP;
        const name = make("text", { x: 8, y: top + lane.height / 2 + 4, "font-size": 13, fill: "#1b1b1b" }, null);
        name.textContent = lane.name.length > 22 ? lane.name.slice(0, 21) + "…" : lane.name;
        parts.push(name);
        const part = lane.height / lane.depth;
        for (const [begin, end, word, depth, kind] of lane.events) {
          if (end < view[0] || begin > view[1]) continue;
          const from = Math.max(x(begin), LEFT), to = Math.min(x(end), width);
          const look = data.kinds[kind];
          const box = make("rect", { x: from, y: top + depth * part, height: part - 1,
            width: Math.max(to - from, 0.8), class: "mark", stroke: "#333", "stroke-width": 0.5,
            fill: data.hatched[look.hatch] ? `url(#${place.id}-${look.hatch})` : look.color }, inside);
          const name = data.words[word];
          box.dataset.tip = `${name} (${lane.name}): ${begin.toFixed(3)} to ${end.toFixed(3)} ms, ` +
            `${(end - begin).toFixed(3)} ms`;
          if (to - from > 7.2 * name.length + 8 && part > 12) {
            const text = make("text", { x: (from + to) / 2, y: top + depth * part + part / 2 + 4,
              "font-size": 12, "text-anchor": "middle", fill: look.ink, "pointer-events": "none" }, inside);
            text.textContent = name;
          }
        }
      }
      picture.replaceChildren(...parts);
      place.dataset.view = view.map((ms) => ms.toFixed(3)).join(" ");
    }

    function move(from, to) {
      const span = Math.min(Math.max(to - from, whole[1] * 1e-5), whole[1]);
      const start = Math.min(Math.max(from, 0), whole[1] - span);
      view = [start, start + span];
      draw();
    }
    function zoom(factor, center = (view[0] + view[1]) / 2) {
      move(center - (center - view[0]) * factor, center + (view[1] - center) * factor);
    }
    const pan = (share) => { const by = share * (view[1] - view[0]); move(view[0] + by, view[1] + by); };
    const actions = { in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.3),
      right: () => pan(0.3), all: () => move(...whole) };
    const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" };
    for (const button of all(document, `button[data-timeline="${place.id}"]`)) {
      button.addEventListener("click", () => actions[button.dataset.action]());
    }
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || !keys[event.key]) return;
      event.preventDefault();
      actions[keys[event.key]]();
    });
    const msAt = (event) => {
      const box = picture.getBoundingClientRect();
      return view[0] + (event.clientX - box.left - LEFT) / (box.width - LEFT) * (view[1] - view[0]);
    };
    place.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, msAt(event));
    }, { passive: false });
    let held = null;
    picture.addEventListener("pointerdown", (event) => { held = [event.clientX, ...view]; });
    addEventListener("pointerup", () => { held = null; });
    picture.addEventListener("pointermove", (event) => {
      if (!held) return;
      const by = (held[0] - event.clientX) / (picture.clientWidth - LEFT) * (held[2] - held[1]);
      move(held[1] + by, held[2] + by);
    });
    new ResizeObserver(draw).observe(place);
    draw();
  }
})();
