// The table of many arms is sorted by a click on a head: best first, then the other way round; arms as in the recipe.
for (const table of document.querySelectorAll(".arm-board")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const sort = (head) => {
    const column = heads.indexOf(head), before = head.getAttribute("aria-sort");
    const way = !before ? head.dataset.first : before === "ascending" ? "descending" : "ascending";
    const sign = way === "ascending" ? 1 : -1;
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way);
    const value = (row) => row.cells[column].dataset.value;
    const place = (row) => +row.cells[0].dataset.value;
    body.append(...[...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "") || place(a) - place(b);
      return sign * (x - y) || place(a) - place(b);
    }));
  };
  sortedByHeads(heads, sort);
}
