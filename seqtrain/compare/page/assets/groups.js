// A page of many groups lists them first: a press opens one.

const FEW_GROUPS = 3; // more of them are listed, and only the conclusion of the chosen one is shown

const GROUP_COLUMNS = {
  group: group => `Group ${group.index + 1}: ${group.where}`, "last record": group => group.when, runs: group => String(group.runs.length),
  status: group => group.status, task: group => group.task, "best variant": group => group.best?.name ?? "none yet",
  mean: group => group.best ? told(group.best.mean) : "", metric: group => named(group.metric), seeds: group => group.best ? String(group.best.seeds) : "",
};

/* What a row of the list says of a group. */
function groupRow(group, index) {
  const runs = group.runs.map(each => data.runs[each]), unique = values => [...new Set(values)].join(", ");
  const statuses = Map.groupBy(runs, run => run.status);
  return {
    ...group, index, best: group.variants.find(variant => variant.mean !== null),
    where: unique(runs.map(run => run.asked.sweep ?? run.name.split("/").slice(0, -1).join("/"))),
    when: runs.map(run => run.asked.when ?? "").reduce((a, b) => a > b ? a : b),
    status: [...statuses].map(([status, own]) => `${own.length} ${status}`).join(", "),
    task: unique(runs.map(run => told(valueOf(run, "task")))),
  };
}

function showGroupList() {
  const many = data.groups.length > FEW_GROUPS;
  at("group-list").hidden = !many;
  at("groups").classList.toggle("listed", many);
  if (!many) return;
  const words = at("group-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = data.groups.map(groupRow), top = make("thead"), head = make("tr"), body = make("tbody");
  const rows = all.filter(row => {
    const text = Object.values(GROUP_COLUMNS).map(of => of(row)).join(" ").toLowerCase();
    return words.every(word => text.includes(word));
  });
  head.append(...Object.keys(GROUP_COLUMNS).map(title => make("th", title, { scope: "col" })));
  top.append(head);
  for (const row of rows) body.append(groupLine(row));
  at("group-table").replaceChildren(top, body);
  at("group-count").textContent = rows.length === all.length ? counted(all.length, "group") : `${rows.length} of ${counted(all.length, "group")}`;
}

function groupLine(row) {
  const line = make("tr", null, row.index === chosen.group ? { className: "current" } : {});
  for (const [title, of] of Object.entries(GROUP_COLUMNS)) {
    if (title !== "group") { line.append(make("td", of(row))); continue; }
    const cell = make("th", null, { scope: "row" }), button = make("button", of(row), { type: "button", className: "link" });
    button.setAttribute("aria-pressed", row.index === chosen.group);
    button.onclick = () => { at("group").value = String(row.index); at("group").dispatchEvent(new Event("change")); };
    cell.append(button);
    line.append(cell);
  }
  return line;
}
