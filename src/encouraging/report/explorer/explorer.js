(() => {
  "use strict";

  // The curves in the gap, as encouraging.curves writes them: 1 - p is sigmoid(-gap), never 1 - sigmoid(gap), which is
  // 0 where these losses differ most. Comparisons read `gap <= edge` on the same sides as there.
  const sigmoid = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
  const nll = (gap) => Math.max(-gap, 0) + Math.log1p(Math.exp(-Math.abs(gap)));
  const logit = (p) => (p <= 0 ? -Infinity : p >= 1 ? Infinity : Math.log(p) - Math.log1p(-p));
  const clampEdge = (eps) => Math.log1p(-eps) - Math.log(eps);
  const power = (k, gap) => (k ? Math.exp(-k * nll(gap)) : 1);

  const crossEntropy = { takes: [], edges: () => [], value: nll, pull: (gap) => sigmoid(-gap) };

  const normal = {
    takes: ["eps"],
    edges: ({ eps }) => [clampEdge(eps)],
    value: (gap, { eps }) => (gap <= clampEdge(eps) ? -gap : nll(gap) + Math.log(eps)),
    pull: (gap, { eps }) => (gap <= clampEdge(eps) ? 1 : sigmoid(-gap)),
  };

  const conservative = {
    takes: ["log_end"],
    edges: ({ log_end: end }) => [logit(end)],
    value: (gap, { log_end: end }) =>
      gap <= logit(end) ? -gap : nll(gap) + sigmoid(-gap) / (1 - end) + (Math.log(1 - end) - 1),
    pull: (gap, { log_end: end }) => (gap <= logit(end) ? 1 : sigmoid(-gap) * (1 + sigmoid(gap) / (1 - end))),
  };

  const byEnd = ({ log_end: end }) => (end === 1 ? normal : conservative);
  const encouraging = {
    takes: ["log_end", "eps"],
    edges: (params) => byEnd(params).edges(params),
    value: (gap, params) => byEnd(params).value(gap, params),
    pull: (gap, params) => byEnd(params).pull(gap, params),
  };

  const aggressive = {
    takes: ["start", "eps"],
    edges: ({ start, eps }) => [logit(start), clampEdge(eps)],
    value: (gap, { start, eps }) => (gap >= logit(start) ? normal.value(gap, { eps }) - Math.log1p(-start) : nll(gap)),
    pull: (gap, { start, eps }) => (gap >= logit(start) ? normal.pull(gap, { eps }) : sigmoid(-gap)),
  };

  const powerBonus = {
    takes: ["exponent", "weight"],
    edges: () => [],
    value: (gap, { exponent: k, weight }) => nll(gap) - weight * power(k, gap),
    pull: (gap, { exponent: k, weight }) => sigmoid(-gap) * (1 + weight * k * power(k, gap)),
  };

  const poly = {
    takes: ["epsilon"],
    edges: () => [],
    value: (gap, { epsilon }) => nll(gap) + epsilon * sigmoid(-gap),
    // 1 + epsilon p, without a difference: near epsilon = -1 and p = 1 it would cancel.
    pull: (gap, { epsilon }) =>
      sigmoid(-gap) * (epsilon >= 0 ? 1 + epsilon * sigmoid(gap) : 1 + epsilon - epsilon * sigmoid(-gap)),
  };

  const focal = {
    takes: ["gamma"],
    edges: () => [],
    value: (gap, { gamma }) => power(gamma, -gap) * nll(gap),
    pull: (gap, { gamma }) =>
      power(gamma, -gap) * (sigmoid(-gap) + gamma * sigmoid(gap) * Math.min(nll(gap), Number.MAX_VALUE)),
  };

  const haltedFocal = {
    takes: ["gamma", "halt"],
    edges: ({ halt }) => [logit(halt)],
    value: (gap, { gamma, halt }) =>
      gap <= logit(halt) ? focal.value(gap, { gamma })
        : nll(gap) + (halt ? (1 - (1 - halt) ** gamma) * Math.log(halt) : 0),
    pull: (gap, { gamma, halt }) => (gap <= logit(halt) ? focal.pull(gap, { gamma }) : sigmoid(-gap)),
  };

  const curves = {
    encouraging, normal, conservative, aggressive, power: powerBonus, poly, cross_entropy: crossEntropy, focal,
    halted_focal: haltedFocal,
  };

  // Numbers and words.
  const superscript = (n) => String(n).replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
  const minus = (text) => text.replace("-", "−");
  const short = (x) => minus(String(Number(x.toPrecision(3))));
  const raised = (k) => (k === 1 ? "p" : `p^${short(k)}`);
  const tiny = (x) => {
    if (x === 0 || Math.abs(x) >= 1e-3) return short(x);
    const [digits, exponent] = x.toExponential(1).split("e");
    return `${digits === "1.0" ? "" : `${minus(digits)}·`}10${superscript(Number(exponent))}`;
  };
  const chance = (gap) => (sigmoid(-gap) < 1e-3 ? `1 − ${tiny(sigmoid(-gap))}` : sigmoid(gap).toFixed(3));
  const times = (x) => (x >= 1000 ? Number(x.toPrecision(3)).toLocaleString("en") : tiny(x));
  const clampWords = (eps) =>
    eps ? `up to the clamp at 1 − p = ${tiny(eps)} (gap ${clampEdge(eps).toFixed(1)}); past it only CE’s is left`
      : "at any confidence: nothing ever stops it, and the loss has no minimum";

  const lessons = {
    cross_entropy: () =>
      "Without a bonus the pull is 1 − p: at p = 0.99 a hundredth of it is left. What is learned stops teaching.",
    normal: ({ eps }) => `The bonus mirrors the loss, and the pull stays 1 ${clampWords(eps)}.`,
    conservative: ({ log_end: end }) =>
      end === 0 ? "The bonus is a line from the start, p itself: what is learned pulls up to twice as hard as under CE."
        : `Up to p = ${short(end)} the pull is 1. Past p = ${short(end)} the log bonus runs on as a line: the pull ` +
          `fades with 1 − p, but stays up to ${times(1 + 1 / (1 - end))} times CE’s.`,
    encouraging: (params) => lessons[params.log_end === 1 ? "normal" : "conservative"](params),
    aggressive: ({ start, eps }) =>
      (start ? `Below p = ${short(start)} this is cross-entropy; from there on the pull is 1 ` : "The pull is 1 ") +
      `${clampWords(eps)}.`,
    power: ({ exponent: k, weight }) =>
      weight * k === 0 ? "A constant bonus teaches nothing: the pull is CE’s."
        : `The pull is CE’s times 1 + ${short(weight * k)} ${raised(k)}: up to ${times(1 + weight * k)} times as ` +
          "strong where p nears 1, and yet it dies with 1 − p.",
    poly: ({ epsilon }) =>
      epsilon === 0 ? "With ε = 0 this is cross-entropy."
        : epsilon === -1 ? "With ε = −1 the pull is (1 − p)²: what is learned fades all the sooner."
          : `The pull is CE’s times 1 ${epsilon < 0 ? "−" : "+"} ${short(Math.abs(epsilon))} p: where p nears 1, ` +
            `${times(1 + epsilon)} times as strong, and yet it dies with 1 − p.`,
    focal: (params) =>
      params.gamma === 0 ? "With γ = 0 this is cross-entropy."
        : "The opposite of a bonus: what is learned is turned down further. At p = 0.9 the pull is " +
          `${times(10 * focal.pull(logit(0.9), params))} times CE’s.`,
    halted_focal: ({ gamma, halt }) =>
      halt === 0 || gamma === 0 ? lessons.cross_entropy()
        : halt === 1 ? lessons.focal({ gamma })
          : `Focal loss up to p = ${short(halt)}; there the pull steps from ` +
            `${tiny(focal.pull(logit(halt), { gamma }))} to CE’s ${short(1 - halt)}, ` +
            "and what is learned is not turned down.",
  };

  // The picture. It is drawn at the width it has on the page, so that its letters keep their size on a small screen.
  const root = document.getElementById("explorer");
  const find = (selector) => root.querySelector(selector);
  const select = find("#explorer-curve");
  const probe = find("#explorer-gap");
  const sliders = [...root.querySelectorAll("[data-param]")];
  const [low, high] = [Number(probe.min), Number(probe.max)];

  function paramsOf(name) {
    const read = ({ value, min, dataset }) =>
      dataset.param !== "eps" ? Number(value) : value === min ? 0 : Number(`1e${value}`);
    const all = Object.fromEntries(sliders.map((slider) => [slider.dataset.param, read(slider)]));
    return Object.fromEntries(curves[name].takes.map((param) => [param, all[param]]));
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
      const place = x.low + ((inner - box.left) / (box.right - box.left)) * (x.high - x.low);
      return Math.min(high, Math.max(low, x.back(place)));
    };
  }

  const percent = (p) => `${Number((100 * p).toPrecision(7))}%`;
  const pTicks = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999].map((p) => [logit(p), percent(p)]);
  const lossGrid = [...evenly(-9, 14, 115), ...evenly(0.005, 0.995, 198).map(logit)].sort((a, b) => a - b);
  const pullGrid = evenly(low, high, 200);

  function draw() {
    const name = select.value;
    // conservative ends below 1, where it would be the normal curve.
    find("#explorer-log_end").max = name === "conservative" ? 0.99 : 1;
    const params = paramsOf(name);
    const curve = curves[name];
    const gap = Number(probe.value);
    const mine = { value: (g) => curve.value(g, params), pull: (g) => curve.pull(g, params) };
    const fades = name === "encouraging" && params.log_end < 1;
    for (const slider of sliders) {
      const param = slider.dataset.param;
      const fits = curve.takes.includes(param);
      slider.closest(".slider").hidden = !fits;
      if (!fits) continue;
      slider.disabled = param === "eps" && fades;
      const words = slider.disabled ? "at LE = 1 only" : param === "eps" && !params.eps ? "none" : tiny(params[param]);
      find(`output[for="${slider.id}"]`).textContent = words;
      slider.setAttribute("aria-valuetext", words);
    }
    const written = Object.entries(params).filter(([param]) => !(param === "eps" && fades));
    const spelled = `curves.${name}(${written.map(([param, number]) => `${param}=${number}`).join(", ")})`;
    find("#explorer-name").textContent = spelled;
    find("#explorer-lesson").textContent = lessons[name](params).replace(/ ([=+−]) /g, "\u00a0$1\u00a0");

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
    const top = Math.max(1.15, 0.1 + Math.max(...pullGrid.map(mine.pull)));
    plot(find("#explorer-pull"), {
      ...common, mine: mine.pull, ce: crossEntropy.pull, grid: pullGrid, fill: true,
      x: { of: (g) => g, back: (g) => g, low, high }, y: { low: 0, high: top },
      xs: [-6, -4, -2, 0, 2, 4, 6, 8, 10, 12, 14].map((g) => [g, minus(String(g))]),
      ys: [0, 0.5, 1, 1.5].filter((v) => v <= top),
      above: pTicks, aboveTitle: "the same as p", xTitle: "gap = log(p / (1 − p))",
      label: `Pull of ${spelled} and of cross-entropy over the gap. At gap ${facts.gap} it is ${facts.pull}, ` +
        `cross-entropy’s ${facts.ce}: ${facts.times}.`,
    });
  }

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
  draw();

  window.encouragingExplorer = {
    value: (name, params, gap) => curves[name].value(gap, params),
    pull: (name, params, gap) => curves[name].pull(gap, params),
    takes: (name) => curves[name].takes,
  };
})();
