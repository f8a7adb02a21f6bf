// Draws the section: controls from the catalogue, curves from formulas.js or, without a formula there, from samples.
const chance = (gap) => (sigmoid(-gap) < 1e-3 ? `1 − ${tiny(sigmoid(-gap))}` : sigmoid(gap).toFixed(3));

function sampled({ first, step, value, pull }) {
  const at = (numbers) => (gap) => {
    const position = Math.min(Math.max((gap - first) / step, 0), numbers.length - 1);
    const left = Math.min(Math.floor(position), numbers.length - 2);
    return numbers[left] + (position - left) * (numbers[left + 1] - numbers[left]);
  };
  const [valueAt, pullAt] = [at(value), at(pull)];
  return {
    edges: () => [], value: valueAt, pull: pullAt,
    words: () => `At p = 0.9 the pull is ${times(10 * pullAt(logit(0.9)))} times CE’s. Drawn at its default parameters.`,
  };
}

// Curves drawn from samples have no parameters to move.
const curves = Object.fromEntries(catalogue.map((entry) => [entry.name, {
  ...(entry.samples ? sampled(entry.samples) : formulas[entry.name]),
  parameters: entry.samples ? [] : entry.parameters,
}]));
const crossEntropy = formulas.cross_entropy;

// The picture. It is drawn at the width it has on the page, so that its letters keep their size on a small screen.
const root = document.getElementById("explorer");
const find = (selector) => root.querySelector(selector);
const select = find("#explorer-curve");
const probe = find("#explorer-gap");
const sliders = [...root.querySelectorAll("[data-param]")];
const [low, high] = [Number(probe.min), Number(probe.max)];

// The sliders of a log scale hold the decimal exponent, and their lowest position means 0.
const numberOf = ({ value, min }, { scale }) =>
  scale !== "log" ? Number(value) : value === min ? 0 : Number(`1e${value}`);
const positionOf = (number, { scale }) => (scale === "log" ? Math.round(Math.log10(number)) : number);
const sliderOf = (param) => find(`#explorer-${param.name}`);
const moved = new Map(); // where the reader has left a slider, which a curve with a shorter range may not reach

function paramsOf(name) {
  return Object.fromEntries(curves[name].parameters.map((param) => [param.name, numberOf(sliderOf(param), param)]));
}

// Ranges and labels are those of the chosen curve; a slider that the reader has not moved is at its default.
function choose(name) {
  for (const slider of sliders) slider.closest(".slider").hidden = true;
  for (const param of curves[name].parameters) {
    const slider = sliderOf(param);
    slider.closest(".slider").hidden = false;
    slider.min = positionOf(param.low, param);
    slider.max = positionOf(param.high, param);
    slider.step = param.scale === "log" ? Math.log10(param.step) : param.step;
    slider.value = moved.get(param.name) ?? positionOf(param.default, param);
    find(`label[for="${slider.id}"]`).textContent = param.meaning;
  }
}

function tag(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const evenly = (from, to, steps) => Array.from({ length: steps + 1 }, (_, i) => from + ((to - from) * i) / steps);

// Besides an even grid, both sides of every edge: a jump is drawn where it is.
const withEdges = (grid, edges) => [...grid, ...edges.flatMap((edge) => [edge - 1e-9, edge + 1e-9])]
  .filter((gap) => gap >= grid[0] && gap <= grid[grid.length - 1]).sort((a, b) => a - b);

function plot(svg, { x, y, xs, ys, above, xTitle, aboveTitle, grid, edges, mine, ce, gap, fill, label }) {
  const width = Math.round(svg.parentNode.clientWidth) || 480;
  const height = Math.round(Math.min(320, Math.max(230, width * 0.6)));
  const box = { left: 34, right: width - 10, top: above ? 38 : 12, bottom: height - 40 };
  const across = (g) => box.left + ((x.of(g) - x.low) / (x.high - x.low)) * (box.right - box.left);
  const up = (v) => box.bottom - ((v - y.low) / (y.high - y.low)) * (box.bottom - box.top);
  // A pole at infinity has no place in a path; far outside the clip is as good.
  const point = (f) => (g) => `${across(g).toFixed(2)} ${Math.min(Math.max(up(f(g)), -4e3), 4e3).toFixed(2)}`;
  const gaps = withEdges(grid, edges);
  const line = (f) => `M${gaps.map(point(f)).join("L")}`;
  const between = () => `${line(mine)}L${[...gaps].reverse().map(point(ce)).join("L")}Z`;
  const text = (words, [left, top], attributes = {}) =>
    tag("text", { x: left, y: top, "text-anchor": "middle", ...attributes }, words);
  const middle = (box.left + box.right) / 2;
  const clip = `${svg.id}-clip`;
  const parts = [
    tag("clipPath", { id: clip }, tag("rect", {
      x: box.left, y: box.top - 3, width: box.right - box.left, height: box.bottom - box.top + 6 })),
    ...ys.flatMap((v) => [
      tag("line", { class: v === 0 ? "zero" : "grid", x1: box.left, x2: box.right, y1: up(v), y2: up(v) }),
      text(minus(String(v)), [box.left - 7, up(v) + 4], { "text-anchor": "end" })]),
    ...xs.map(([g, words]) => text(words, [across(g), box.bottom + 17])),
    text(xTitle, [middle, height - 5], { class: "title" }),
  ];
  let taken = -Infinity;
  for (const [g, words] of above || []) {
    const reach = words.length * 3.4 + 5;
    parts.push(tag("line", { class: "grid", x1: across(g), x2: across(g), y1: box.top - 5, y2: box.bottom }));
    if (across(g) - reach < taken || across(g) + reach > width) continue;
    taken = across(g) + reach;
    parts.push(text(words, [across(g), box.top - 9]));
  }
  if (above) parts.push(text(aboveTitle, [middle, 11], { class: "title" }));
  const inside = tag("g", { "clip-path": `url(#${clip})` },
    ...(fill ? [tag("path", { class: "between", d: between() })] : []),
    tag("path", { class: "ce", d: line(ce) }),
    tag("path", { class: "curve", d: line(mine) }));
  // A point beyond the picture stays at its edge, hollow.
  const dots = [[ce, "ce-dot"], [mine, "dot"]].map(([f, kind]) => {
    const at = Math.min(y.high, Math.max(y.low, f(gap)));
    return [at, at === f(gap) ? kind : `${kind} beyond`];
  });
  parts.push(
    tag("line", { class: "probe", x1: across(gap), x2: across(gap), y1: box.top, y2: box.bottom }), inside,
    ...dots.map(([at, kind]) => tag("circle", { class: kind, cx: across(gap), cy: up(at), r: 4.5 })));
  const attributes = { viewBox: `0 0 ${width} ${height}`, width, height, "aria-label": label };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  svg.replaceChildren(...parts);
  svg.gapAt = (pixel) => {
    const inner = (pixel / svg.clientWidth) * width;
    const position = x.low + ((inner - box.left) / (box.right - box.left)) * (x.high - x.low);
    return Math.min(high, Math.max(low, x.back(position)));
  };
}

const percent = (p) => `${Number((100 * p).toPrecision(7))}%`;
const pTicks = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999].map((p) => [logit(p), percent(p)]);
const lossGrid = [...evenly(-9, 14, 115), ...evenly(0.005, 0.995, 198).map(logit)].sort((a, b) => a - b);
const pullGrid = evenly(low, high, 200);

function draw() {
  const name = select.value;
  const params = paramsOf(name);
  const curve = curves[name];
  const gap = Number(probe.value);
  const mine = { value: (g) => curve.value(g, params), pull: (g) => curve.pull(g, params) };
  const unused = curve.unused ? curve.unused(params) : {};
  for (const param of curve.parameters) {
    const slider = sliderOf(param);
    slider.disabled = param.name in unused;
    const words = unused[param.name] ||
      (param.scale === "log" && !params[param.name] ? "none" : tiny(params[param.name]));
    find(`output[for="${slider.id}"]`).textContent = words;
    slider.setAttribute("aria-valuetext", words);
  }
  const written = Object.entries(params).filter(([param]) => !(param in unused));
  const spelled = `curves.${name}(${written.map(([param, number]) => `${param}=${number}`).join(", ")})`;
  find("#explorer-name").textContent = spelled;
  find("#explorer-words").textContent = curve.words(params).replace(/ ([=+−]) /g, "\u00a0$1\u00a0");

  const facts = {
    p: chance(gap), gap: minus(gap.toFixed(1)), loss: tiny(mine.value(gap)), pull: tiny(mine.pull(gap)),
    ce: tiny(crossEntropy.pull(gap)), times: `${times(mine.pull(gap) / crossEntropy.pull(gap))}×`,
  };
  for (const [key, words] of Object.entries(facts)) find(`[data-fact="${key}"]`).textContent = words;
  find('output[for="explorer-gap"]').textContent = `gap ${facts.gap}, p = ${facts.p}`;
  probe.setAttribute("aria-valuetext", `gap ${facts.gap}, p = ${facts.p}`);

  const common = { edges: curve.edges(params), gap };
  plot(find("#explorer-loss"), {
    ...common, mine: mine.value, ce: nll, grid: lossGrid,
    x: { of: sigmoid, back: logit, low: 0, high: 1 }, y: { low: -5, high: 4 },
    xs: [0, 0.25, 0.5, 0.75, 1].map((p) => [logit(p), String(p)]), ys: [-4, -2, 0, 2, 4],
    xTitle: "probability p of the label",
    label: `Loss of ${spelled} and of cross-entropy over p. At p = ${facts.p} it is ${facts.loss}, ` +
      `cross-entropy’s ${tiny(nll(gap))}.`,
  });
  const highest = Math.max(1.15, 0.1 + Math.max(...pullGrid.map(mine.pull)));
  plot(find("#explorer-pull"), {
    ...common, mine: mine.pull, ce: crossEntropy.pull, grid: pullGrid, fill: true,
    x: { of: (g) => g, back: (g) => g, low, high }, y: { low: 0, high: highest },
    xs: [-6, -4, -2, 0, 2, 4, 6, 8, 10, 12, 14].map((g) => [g, minus(String(g))]),
    ys: [0, 0.5, 1, 1.5].filter((v) => v <= highest),
    above: pTicks, aboveTitle: "the same as p", xTitle: "gap = log(p / (1 − p))",
    label: `Pull of ${spelled} and of cross-entropy over the gap. At gap ${facts.gap} it is ${facts.pull}, ` +
      `cross-entropy’s ${facts.ce}: ${facts.times}.`,
  });
}

select.addEventListener("input", () => choose(select.value));
for (const slider of sliders) slider.addEventListener("input", () => moved.set(slider.dataset.param, slider.value));
root.addEventListener("input", draw);
for (const svg of root.querySelectorAll("svg")) {
  const follow = (event) => {
    probe.value = svg.gapAt(event.clientX - svg.getBoundingClientRect().left);
    draw();
  };
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointermove", follow);
}
let width = 0;
// In a frame of its own: drawing changes the height that is being observed.
new ResizeObserver(([{ contentRect }]) => {
  if (contentRect.width !== width) requestAnimationFrame(draw);
  width = contentRect.width;
}).observe(find(".figures"));
find(".live").hidden = false;
choose(select.value);
draw();

window.encouragingExplorer = {
  value: (name, params, gap) => curves[name].value(gap, params),
  pull: (name, params, gap) => curves[name].pull(gap, params),
  takes: (name) => curves[name].parameters.map((param) => param.name),
  formulas: Object.keys(formulas),
};
