// The curves as functions of the gap, as encouraging.curves writes them: 1 - p is sigmoid(-gap), never 1 - sigmoid(gap),
// which is 0 where these losses differ most. Comparisons read `gap <= edge` on the same sides as there.
//
// One entry per curve: its value and pull, the edges where its formula changes, and one sentence about it. A curve of
// the catalogue without an entry here is drawn from samples.
const sigmoid = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
const nll = (gap) => Math.max(-gap, 0) + Math.log1p(Math.exp(-Math.abs(gap)));
const logit = (p) => (p <= 0 ? -Infinity : p >= 1 ? Infinity : Math.log(p) - Math.log1p(-p));
const clampEdge = (eps) => Math.log1p(-eps) - Math.log(eps);
const power = (k, gap) => (k ? Math.exp(-k * nll(gap)) : 1);

// Numbers as text.
const superscript = (n) => String(n).replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
const minus = (text) => text.replace("-", "−");
const short = (x) => minus(String(Number(x.toPrecision(3))));
const raised = (k) => (k === 1 ? "p" : `p^${short(k)}`);
const tiny = (x) => {
  if (x === 0 || Math.abs(x) >= 1e-3) return short(x);
  const [digits, exponent] = x.toExponential(1).split("e");
  return `${digits === "1.0" ? "" : `${minus(digits)}·`}10${superscript(Number(exponent))}`;
};
const times = (x) => (x >= 1000 ? Number(x.toPrecision(3)).toLocaleString("en") : tiny(x));
const clampWords = (eps) =>
  eps ? `up to the clamp at 1 − p = ${tiny(eps)} (gap ${clampEdge(eps).toFixed(1)}); past it, it is CE’s`
    : "at any confidence: the loss has no minimum";

const formulas = {};

formulas.cross_entropy = {
  edges: () => [],
  value: nll,
  pull: (gap) => sigmoid(-gap),
  words: () => "Without a bonus the pull is 1 − p: at p = 0.99 it is 0.01. Learned examples stop teaching.",
};

formulas.normal = {
  edges: ({ eps }) => [clampEdge(eps)],
  value: (gap, { eps }) => (gap <= clampEdge(eps) ? -gap : nll(gap) + Math.log(eps)),
  pull: (gap, { eps }) => (gap <= clampEdge(eps) ? 1 : sigmoid(-gap)),
  words: ({ eps }) => `The bonus mirrors the loss, and the pull stays 1 ${clampWords(eps)}.`,
};

formulas.conservative = {
  edges: ({ log_end: end }) => [logit(end)],
  value: (gap, { log_end: end }) =>
    gap <= logit(end) ? -gap : nll(gap) + sigmoid(-gap) / (1 - end) + (Math.log(1 - end) - 1),
  pull: (gap, { log_end: end }) => (gap <= logit(end) ? 1 : sigmoid(-gap) * (1 + sigmoid(gap) / (1 - end))),
  words: ({ log_end: end }) =>
    end === 0 ? "The bonus is a line from the start, p itself: learned examples pull up to twice as hard as under CE."
      : `Up to p = ${short(end)} the pull is 1. Past p = ${short(end)} the log bonus continues as a line: the pull ` +
        `fades with 1 − p, but is up to ${times(1 + 1 / (1 - end))} times CE’s.`,
};

const byEnd = ({ log_end: end }) => formulas[end === 1 ? "normal" : "conservative"];
formulas.encouraging = {
  edges: (params) => byEnd(params).edges(params),
  value: (gap, params) => byEnd(params).value(gap, params),
  pull: (gap, params) => byEnd(params).pull(gap, params),
  words: (params) => byEnd(params).words(params),
  unused: ({ log_end: end }) => (end === 1 ? {} : { eps: "at LE = 1 only" }),
};

formulas.aggressive = {
  edges: ({ start, eps }) => [logit(start), clampEdge(eps)],
  value: (gap, { start, eps }) =>
    gap >= logit(start) ? formulas.normal.value(gap, { eps }) - Math.log1p(-start) : nll(gap),
  pull: (gap, { start, eps }) => (gap >= logit(start) ? formulas.normal.pull(gap, { eps }) : sigmoid(-gap)),
  words: ({ start, eps }) =>
    (start ? `Below p = ${short(start)} this is cross-entropy; from there on the pull is 1 ` : "The pull is 1 ") +
    `${clampWords(eps)}.`,
};

formulas.power = {
  edges: () => [],
  value: (gap, { exponent: k, weight }) => nll(gap) - weight * power(k, gap),
  pull: (gap, { exponent: k, weight }) => sigmoid(-gap) * (1 + weight * k * power(k, gap)),
  words: ({ exponent: k, weight }) =>
    weight * k === 0 ? "A constant bonus teaches nothing: the pull is CE’s."
      : `The pull is CE’s times 1 + ${short(weight * k)} ${raised(k)}: up to ${times(1 + weight * k)} times as ` +
        "strong where p nears 1, but it still fades with 1 − p.",
};

formulas.poly = {
  edges: () => [],
  value: (gap, { epsilon }) => nll(gap) + epsilon * sigmoid(-gap),
  // 1 + epsilon p, without a difference: near epsilon = -1 and p = 1 it would cancel.
  pull: (gap, { epsilon }) =>
    sigmoid(-gap) * (epsilon >= 0 ? 1 + epsilon * sigmoid(gap) : 1 + epsilon - epsilon * sigmoid(-gap)),
  words: ({ epsilon }) =>
    epsilon === 0 ? "With ε = 0 this is cross-entropy."
      : epsilon === -1 ? "With ε = −1 the pull is (1 − p)²: learned examples fade even sooner."
        : `The pull is CE’s times 1 ${epsilon < 0 ? "−" : "+"} ${short(Math.abs(epsilon))} p: where p nears 1, ` +
          `${times(1 + epsilon)} times as strong, but it still fades with 1 − p.`,
};

formulas.focal = {
  edges: () => [],
  value: (gap, { gamma }) => power(gamma, -gap) * nll(gap),
  pull: (gap, { gamma }) =>
    power(gamma, -gap) * (sigmoid(-gap) + gamma * sigmoid(gap) * Math.min(nll(gap), Number.MAX_VALUE)),
  words: (params) =>
    params.gamma === 0 ? "With γ = 0 this is cross-entropy."
      : "The opposite of a bonus: learned examples are turned down further. At p = 0.9 the pull is " +
        `${times(10 * formulas.focal.pull(logit(0.9), params))} times CE’s.`,
};

formulas.halted_focal = {
  edges: ({ halt }) => [logit(halt)],
  value: (gap, { gamma, halt }) =>
    gap <= logit(halt) ? formulas.focal.value(gap, { gamma })
      : nll(gap) + (halt ? (1 - (1 - halt) ** gamma) * Math.log(halt) : 0),
  pull: (gap, { gamma, halt }) => (gap <= logit(halt) ? formulas.focal.pull(gap, { gamma }) : sigmoid(-gap)),
  words: ({ gamma, halt }) =>
    halt === 0 || gamma === 0 ? formulas.cross_entropy.words()
      : halt === 1 ? formulas.focal.words({ gamma })
        : `Focal loss up to p = ${short(halt)}; there the pull steps from ` +
          `${tiny(formulas.focal.pull(logit(halt), { gamma }))} to CE’s ${short(1 - halt)}, ` +
          "and learned examples are not turned down.",
};
