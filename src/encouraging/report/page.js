// Heads of a table become buttons that sort it.
function sortedByHeads(heads, sort) {
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(head));
  }
}

(() => {
"use strict";

// A link into a folded recipe unfolds it. Browsers do so for what is inside; for the recipe itself they do not.
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target && target.closest("details")) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) unfold();
});
unfold();

const recipes = [...document.querySelectorAll("details.recipe")];
const all = document.querySelector(".fold-all");
if (all) {
  const name = () => { all.textContent = recipes.some((recipe) => !recipe.open) ? "Unfold all" : "Fold all"; };
  all.hidden = false;
  all.addEventListener("click", () => {
    const open = recipes.some((recipe) => !recipe.open);
    for (const recipe of recipes) recipe.open = open;
    name();
  });
  for (const recipe of recipes) recipe.addEventListener("toggle", name);
  name();
}

// Paper has nothing to click on. The style sheet unfolds, too, where a browser lets it.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details.recipe, details.more")].filter((part) => !part.open);
  for (const part of folded) part.open = true;
});
addEventListener("afterprint", () => { for (const part of folded) part.open = false; });

// Of many arms a reader picks some, in one bar per recipe. Lines of the others fade, and so that the page does not move
// under the pointer, panels and names in legends are hidden only by a click.
for (const bar of document.querySelectorAll(".picker")) {
  const inside = bar.parentElement, first = bar.dataset.first.split(" ");
  const buttons = [...bar.querySelectorAll("[data-arm]")];
  const lines = [...inside.querySelectorAll(".fig [data-arm]")];
  const panels = [...inside.querySelectorAll(".panel[data-arm]")];
  const names = [...inside.querySelectorAll(".legend [data-arm]")];
  const arms = buttons.map((button) => button.dataset.arm);
  let picked = new Set(first);
  const light = (shown) => {
    for (const one of [...lines, ...panels]) one.classList.toggle("dim", !shown.has(one.dataset.arm));
  };
  const pick = (tags) => {
    picked = new Set(tags);
    light(picked);
    for (const one of [...panels, ...names]) one.classList.toggle("unpicked", !picked.has(one.dataset.arm));
    for (const button of buttons) button.setAttribute("aria-pressed", String(picked.has(button.dataset.arm)));
    bar.querySelector("output").textContent = `${picked.size} of ${arms.length} arms`;
  };
  for (const button of buttons) {
    const arm = button.dataset.arm, alone = () => light(new Set([arm])), back = () => light(picked);
    button.addEventListener("click", () => pick(arms.filter((one) => (one === arm) !== picked.has(one))));
    button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") alone(); });
    button.addEventListener("pointerleave", back);
    button.addEventListener("focus", () => { if (button.matches(":focus-visible")) alone(); });
    button.addEventListener("blur", back);
  }
  const sets = { first, all: arms, none: [] };
  for (const button of bar.querySelectorAll("[data-pick]")) {
    button.addEventListener("click", () => pick(sets[button.dataset.pick]));
  }
  bar.hidden = false;
  pick(first);
  new ResizeObserver(() => inside.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);
}

const board = document.querySelector(".board");
const form = document.querySelector(".filters");
if (!board || !form) return;
const rows = [...board.querySelectorAll("tbody tr:not(.kind)")];
const words = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
const chips = [...form.querySelectorAll("[data-verdict]")];
const place = new Map(chips.map((chip, number) => [chip.dataset.verdict, number]));
const pressed = (chip) => chip.getAttribute("aria-pressed") === "true";

// Long lists of what nobody has run yet are folded, unless a filter looks into them.
for (const body of board.tBodies) {
  const head = body.querySelector(".kind th");
  if (!head || body.rows.length < 14 || !body.querySelector(".waiting")) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes, ` (${body.rows.length - 1})`);
  const fold = (folded) => {
    body.classList.toggle("folded", folded);
    button.setAttribute("aria-expanded", String(!folded));
  };
  button.addEventListener("click", () => fold(!body.classList.contains("folded")));
  head.append(button);
  fold(true);
}

const filter = () => {
  const verdicts = new Set(chips.filter(pressed).map((chip) => chip.dataset.verdict));
  const task = form.elements.task ? form.elements.task.value : "";
  const sought = form.elements.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  board.classList.toggle("filtered", Boolean(verdicts.size || task || sought.length));
  let shown = 0;
  for (const row of rows) {
    const fits = (!verdicts.size || verdicts.has(row.dataset.verdict)) && (!task || row.dataset.task === task)
      && sought.every((word) => words.get(row).includes(word));
    row.hidden = !fits;
    shown += fits;
  }
  for (const body of board.tBodies) body.hidden = ![...body.rows].some((row) => !row.hidden && !row.matches(".kind"));
  form.querySelector("output").textContent = shown === rows.length ? "" : `${shown} of ${rows.length} claims`;
  form.querySelector("[type=reset]").hidden = shown === rows.length && !verdicts.size && !task && !sought.length;
  document.querySelector(".nothing").hidden = shown > 0;
};
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", filter);
form.addEventListener("reset", (event) => {
  event.preventDefault();  // the browser would empty the fields only after this
  for (const chip of chips) chip.setAttribute("aria-pressed", "false");
  for (const field of form.querySelectorAll("input, select")) field.value = "";
  filter();
});
for (const chip of chips) {
  chip.addEventListener("click", () => { chip.setAttribute("aria-pressed", String(!pressed(chip))); filter(); });
}

const keys = {
  text: (row) => words.get(row).trim(), n: (row) => +row.dataset.n, clear: (row) => +row.dataset.clear,
  verdict: (row) => place.get(row.dataset.verdict),
};
const first = { text: 1, n: -1, clear: -1, verdict: 1 };  // the direction in which most people want it
const order = new Map(rows.map((row, number) => [row, number]));
const heads = [...board.querySelectorAll("[data-sort]")];
const sort = (head) => {
  const kind = head.dataset.sort, before = head.getAttribute("aria-sort");
  const way = { [first[kind] > 0 ? "ascending" : "descending"]: -first[kind] };
  const now = before ? way[before] || 0 : first[kind];  // the other direction, then the order of the paper again
  for (const other of heads) other.removeAttribute("aria-sort");
  if (now) head.setAttribute("aria-sort", now > 0 ? "ascending" : "descending");
  const compare = (a, b) => {
    const x = keys[kind](a), y = keys[kind](b);
    return (now && (x < y ? -now : x > y ? now : 0)) || order.get(a) - order.get(b);
  };
  for (const body of board.tBodies) {
    body.append(...[...body.rows].filter((row) => !row.matches(".kind")).sort(compare));
  }
};
sortedByHeads(heads, sort);
form.hidden = rows.length < 6;
filter();
})();
