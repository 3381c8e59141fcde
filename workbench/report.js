// SPDX-License-Identifier: Apache-2.0
// Tables sort on a click on a column's head: numbers by data-v, others as text; what has neither comes last.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const numeric = head.classList.contains("n");
      const down = head.ariaSort ? head.ariaSort === "ascending" : numeric;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.ariaSort = down ? "descending" : "ascending";
      const value = (row) => (numeric ? parseFloat(row.cells[column].dataset.v) : row.cells[column].textContent);
      const none = (x) => x === "" || Number.isNaN(x);
      const order = (x, y) => (numeric ? x - y : x.localeCompare(y, undefined, { numeric: true }));
      const compare = (x, y) => (none(x) || none(y) ? none(x) - none(y) : (down ? -1 : 1) * order(x, y));
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => compare(value(a), value(b))));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
}
