// What runs on the boards: versions, systems, disks. The filter of the boards holds here, too.
"use strict";

(() => {
  const ROWS = 100; // most rows of the table
  const LOW = 0.05; // of a disk: a smaller free part is marked
  const FAILED = ["rolled-back", "failed", "interrupted"]; // results of an update
  const HEADS = ["board", "type", "cairn-node", "system", "#free disk", "#~disk", "last heard"];

  const { el, bytes, plain, plural } = Cairn;

  // Counts the boards of each value of a member, the most frequent first: "0.2.0 on 3 boards".
  function countBy(boards, member) {
    const counts = new Map();
    for (const board of boards) counts.set(board[member], (counts.get(board[member]) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([value, count]) => `${value} on ${plural(count, "board")}`);
  }

  function summary(boards, told) {
    if (!boards.length) return "no board fits the filter";
    if (!told.length) return "no board has told yet what it runs";
    const builds = countBy(told, "build");
    const shown = builds.slice(0, 3).join(", ");
    const more = builds.length > 3 ? ` and ${plain(builds.length - 3)} more` : "";
    const silent = boards.length - told.length;
    return `${shown}${more}${silent ? `; ${plural(silent, "board")} did not tell` : ""}`;
  }

  const low = (board) => board.disk_size > 0 && board.disk_free < LOW * board.disk_size;

  // Of a board with two systems: which one runs, and how the last update went.
  function systems(board) {
    const runs = `${board.slot}: ${board.slot_version || "unknown"}`;
    return board.update && board.update !== "good" ? `${runs} (${board.update} ${board.update_version || ""})` : runs;
  }

  // Boards whose disk is nearly full come first, then those with the rarest cairn-node.
  function order(boards) {
    const counts = new Map();
    for (const board of boards) counts.set(board.build, (counts.get(board.build) || 0) + 1);
    return [...boards].sort((a, b) => low(b) - low(a) || counts.get(a.build) - counts.get(b.build)
      || a.name.localeCompare(b.name, "en", { numeric: true }));
  }

  function row(board, two) {
    const slot = two ? [board.slot ? systems(board) : "–"] : [];
    const free = board.disk_size ? bytes(board.disk_free) : "–";
    return { look: low(board) || FAILED.includes(board.update) ? "worry" : null, cells: [board.name, board.type || "–",
      board.build || "–", board.system || "–", ...slot, low(board) ? [
        el("span", { class: "sign worry", "aria-hidden": "true" }, "!"), el("span", { class: "hidden" }, "nearly full: "), ` ${free}`] : free,
      board.disk_size ? bytes(board.disk_size) : "–",
      board.heard_ms ? el("span", { class: "nowrap", "data-heard": board.name }) : "–"] };
  }

  Cairn.showInventory = (store) => {
    const words = store.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const boards = [...store.boards.values()].filter((board) => {
      const text = `${board.name} ${board.group} ${board.type} ${board.build} ${board.system} ${board.slot ? systems(board) : ""}`
        .toLowerCase();
      return board.state !== "revoked" && words.every((word) => text.includes(word));
    });
    const shown = order(boards).slice(0, ROWS);
    const two = shown.some((board) => board.slot);
    const heads = two ? [...HEADS.slice(0, 4), "slot", ...HEADS.slice(4)] : HEADS;
    const key = shown.map((board) => [board.name, board.type, board.build, board.system, board.slot ? systems(board) : "",
      board.disk_size, board.disk_free, board.heard_ms > 0]);
    const text = [summary(boards, boards.filter((board) => board.build))];
    if (boards.length > ROWS) text.push(`${plural(boards.length - ROWS, "board")} more`);
    Cairn.update("inventory-text", text, () => text.join("; "));
    Cairn.update("inventory-table", key, () => (shown.length === 0 ? el("p", { class: "quiet" }, "no board")
      : Cairn.table("What runs on the boards", heads, shown.map((board) => row(board, two)))));
  };
})();
